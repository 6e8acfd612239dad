"""What an engine measures, for Prometheus: a registry for each engine, and no label whose value a stranger picks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from math import inf

import trio
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import HistogramMetricFamily, Metric

from hatchway.engine.base.errors import FOREIGN
from hatchway.engine.journal.gauges import Gauges
from hatchway.engine.journal.journal import FileJournal
from hatchway.engine.runtime import Runtime
from hatchway.engine.runtime.records import Record
from hatchway.engine.store.protocol import Store
from hatchway.statecharts.catalogue import CHARTS
from hatchway.statecharts.chart import NONE

LOOK_INTERVAL = 0.5
"""Seconds between two looks at how late the event loop is."""

QUICK = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
"""Buckets in seconds for what the engine does by itself."""

PATIENT = (0.05, 0.25, 1, 2.5, 5, 10, 15, 20, 25, 30, 45, 60)
"""Buckets in seconds for what waits for a person."""

FINEST = tuple(sorted({*QUICK, *PATIENT}))
"""All bounds of all histograms: what workers count by them can be added to any histogram."""

# They would be one more line for each series, which nobody reads.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Series:
    """One series of a histogram."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * len(bounds)
        """Observations in each bucket alone, not added up as Prometheus shows them."""
        self.total = 0.0

    def observe(self, value: float) -> None:
        """One more observation."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def add(self, bounds: Sequence[float], counts: Sequence[int], total: float) -> None:
        """Add observations that a worker counted: `counts` by `bounds`, which hold all of ours, and the sum of them
        all."""
        for bound, count in zip((*bounds, inf), counts, strict=True):
            self.counts[bisect_left(self._bounds, bound)] += count
        self.total += total


class Histogram:
    """All series of one name: a collector to a registry. Fed in the event loop's thread, read in any.

    It takes no lock, unlike the Prometheus client's own, so it costs little.
    """

    def __init__(self, name: str, about: str, labels: Sequence[str], buckets: Sequence[float]) -> None:
        self._name, self._about, self._labels = name, about, labels
        self._bounds = (*map(float, buckets), inf)
        self._names = ["+Inf" if bound == inf else repr(bound) for bound in self._bounds]
        self._series: dict[tuple[str, ...], Series] = {}
        if not labels:
            self.labels()  # a histogram without labels is shown from the first, at zero

    def labels(self, *values: str) -> Series:
        """The series of these label values."""
        found = self._series.get(values)
        if found is None:
            found = self._series[values] = Series(self._bounds)
        return found

    def collect(self) -> Iterable[Metric]:
        """The metric as the Prometheus client wants it."""
        family = HistogramMetricFamily(self._name, self._about, labels=self._labels)
        for values, series in list(self._series.items()):
            total, buckets = 0, []
            for name, count in zip(self._names, list(series.counts), strict=True):
                total += count
                buckets.append((name, float(total)))
            family.add_metric(values, buckets, series.total)
        yield family


class Metrics:
    """The metrics of one engine. They cost little to feed; the text is made when it is asked for."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._transitions = Counter(
            "hatchway_transitions", "Rows taken.", ("chart", "event", "target"), registry=registry
        )
        self._refusals = Counter("hatchway_refusals", "Events refused.", ("chart", "cause"), registry=registry)
        # Prometheus sees no increase in a series that begins at one, and this one is to wake somebody at once.
        self._refusals.labels("session", FOREIGN)
        self._requests = self._timed(
            "request_duration", "From a whole request to its answer, or to a stream's.", ("method", "path", "status")
        )
        self._sign_ins = self._timed(
            "sign_in_duration",
            "From the request (key) or the claim (pairing) to the session.",
            ("method",),
            buckets=FINEST,
        )
        self._lateness = self._timed("timer_lateness", "How late timers fired.").labels()
        self._commits = self._timed("store_commit_duration", "From a step to its being stored.", ("chart",))
        self._lag = self._timed("event_loop_lag", "How late the event loop woke.").labels()
        self._counts = {
            (chart.name, state): 0
            for chart in CHARTS.values()
            for state in chart.states
            if state not in chart.final and state != NONE
        }
        ProcessCollector(registry=registry)
        self._ready = Gauge("hatchway_ready", "1 where people can sign in, as /readyz says, else 0.", registry=registry)
        self._certificate: Gauge | None = None
        self._by_row: dict[tuple[str, str, str | None], Counter] = {}
        self._by_endpoint: dict[tuple[str, str, int], Series] = {}
        self._claimed: dict[str, float] = {}

    def watch(self, runtime: Runtime, store: Store, journal: FileJournal, started_at: float) -> None:
        """Show these too, as they are when the text is asked for. `started_at` is in epoch seconds."""
        self._registry.register(Gauges(runtime, store, journal, started_at, self._counts))
        runtime.subscribe_moves(self._move)

    def tell_ready(self, ready: bool) -> None:
        """Whether the engine is ready at the moment."""
        self._ready.set(ready)

    def tell_certificate(self, ends_at: float) -> None:
        """When the certificate ends that is shown now, in epoch seconds. Without TLS there is none."""
        if self._certificate is None:
            about = "When the certificate that is shown ends, epoch seconds."
            self._certificate = Gauge("hatchway_certificate_end_seconds", about, registry=self._registry)
        self._certificate.set(ends_at)

    def observe_commit(self, chart: str, seconds: float) -> None:
        """A step of the chart was stored, in so many seconds."""
        self._commits.labels(chart).observe(seconds)

    def observe_lateness(self, seconds: float) -> None:
        """A delay fired so many seconds late."""
        self._lateness.observe(seconds)

    def _timed(self, name: str, about: str, labels: Sequence[str] = (), buckets: Sequence[float] = QUICK) -> Histogram:
        histogram = Histogram(f"hatchway_{name}_seconds", about, labels, buckets)
        self._registry.register(histogram)
        return histogram

    def counts(self) -> dict[tuple[str, str], int]:
        """How many actors are in which state that is not final, by chart and state."""
        return dict(self._counts)

    def count(self, runtime: Runtime) -> None:
        """Count the live actors, after a store was read.

        From then on every step says what it changes, so that asking costs the same with a million sessions.
        """
        self._counts.update(dict.fromkeys(self._counts, 0))
        for chart in CHARTS:
            for actor in runtime.actors(chart):
                self._count(chart, actor.state, 1)

    def take(self, record: Record) -> None:
        """A sink of records: counts steps and refusals by chart, and moves actors between states."""
        if record.kind == "transition":
            row = (record.chart, record.event, record.target)
            taken = self._by_row.get(row)
            if taken is None:
                taken = self._by_row[row] = self._transitions.labels(*row)
            taken.inc()
            self._count(record.chart, record.source, -1)
            self._count(record.chart, record.target, 1)
            if record.chart == "pairing":
                self._time_pairing(record)
        elif record.kind == "refusal":
            self._refusals.labels(record.chart, record.cause).inc(record.count or 1)

    def _move(self, chart: str, actor: str, source: str, target: str | None) -> None:
        """Another engine of the fleet moved an actor. That engine counts the step; here only the states change."""
        self._count(chart, source, -1)
        self._count(chart, target, 1)

    def _count(self, chart: str, state: str | None, change: int) -> None:
        if (chart, state) in self._counts:
            self._counts[chart, state or ""] += change

    def _time_pairing(self, record: Record) -> None:
        if record.target == "claimed":
            self._claimed[record.actor] = record.time
            return
        since = self._claimed.pop(record.actor, None)
        if since is not None and record.target == "approved":
            self._sign_ins.labels("pairing").observe(max(record.time - since, 0))

    def answered(self, method: str, path: str, status: int, seconds: float) -> None:
        """A request was answered, after so many seconds; `path` as the table of endpoints has it."""
        key = (method, path, status)
        series = self._by_endpoint.get(key)
        if series is None:
            series = self._by_endpoint[key] = self._requests.labels(method, path, str(status))
        series.observe(seconds)
        if status == 200 and path == "/api/auth/verify/":
            self._sign_ins.labels("key").observe(seconds)

    def answered_by_worker(self, method: str, path: str, status: int, buckets: Sequence[int], seconds: float) -> None:
        """A worker process has answered so many in each bucket of FINEST and past it, in so many seconds together."""
        self._requests.labels(method, path, str(status)).add(FINEST, buckets, seconds)
        if status == 200 and path == "/api/auth/verify/":
            self._sign_ins.labels("key").add(FINEST, buckets, seconds)

    async def watch_loop(self) -> None:
        """Look at how late the event loop wakes, for ever."""
        while True:
            due = trio.current_time() + LOOK_INTERVAL
            await trio.sleep_until(due)
            self._lag.observe(trio.current_time() - due)

    def text(self) -> bytes:
        """Everything measured, in Prometheus's text format."""
        return generate_latest(self._registry)
