"""What Prometheus is shown of the moment: read from the engine's parts when the text is asked for, never fed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from hatchway.engine.base.version import installed_version
from hatchway.engine.journal import shipments
from hatchway.engine.journal.journal import FileJournal
from hatchway.engine.runtime import Runtime
from hatchway.engine.store.protocol import Store


class Gauges:
    """A collector of what is so at the moment. A state without actors is shown too, at zero."""

    def __init__(
        self,
        runtime: Runtime,
        store: Store,
        journal: FileJournal,
        started_at: float,
        counts: Mapping[tuple[str, str], int],
    ) -> None:
        self._runtime, self._store, self._journal, self._started_at = runtime, store, journal, started_at
        self._counts = counts

    def collect(self) -> Iterable[Metric]:
        """The metrics as the Prometheus client wants them."""
        actors = GaugeMetricFamily("hatchway_actors", "Actors that are in a state.", labels=("chart", "state"))
        for (chart, state), count in self._counts.items():
            actors.add_metric((chart, state), count)
        yield actors
        about = "Always 1, of the token's issuer, which a whole fleet shares, and the engine's version."
        info = GaugeMetricFamily("hatchway_engine_info", about, labels=("issuer", "version"))
        info.add_metric((self._journal.issuer, installed_version()), 1)
        yield info
        for name, about, value in (
            ("timers_armed", "Delays that run.", len(self._runtime.timers)),
            ("store_bytes", "Size of the store.", self._store.size()),
            ("start_time_seconds", "When the engine started, epoch seconds.", self._started_at),
            ("event_readers", "Followers of the journal.", len(self._journal.subscribers)),
            ("journal_lost", "Records that the log file lacks since it last could be written.", self._journal.lost),
        ):
            yield GaugeMetricFamily(f"hatchway_{name}", about, value)
        yield from self._shipments()
        yield CounterMetricFamily(
            "hatchway_records", "Records, over every start of this engine.", self._journal.last_seq
        )

    def _shipments(self) -> Iterable[Metric]:
        """How far records have been handed on, by target; nothing where none is."""
        found = list(shipments.all_of(self._journal.folder.parent))
        last, now = self._journal.last_seq, self._runtime.clock.wall()
        for name, about, value in (
            ("backlog", "Records that the target lacks yet.", lambda one: max(0, last - one.seq)),
            (
                "lag_seconds",
                "Age of the last record that the target has; 0 without a backlog.",
                lambda one: now - (one.time or self._started_at) if one.seq < last else 0,
            ),
            ("missed", "Records that had left the journal before they were handed on.", lambda one: one.missed),
            ("failures", "Tries that failed.", lambda one: one.failures),
        ):
            family = GaugeMetricFamily(f"hatchway_ship_{name}", about, labels=("target",))
            for one in found:
                family.add_metric((one.target,), max(0.0, value(one)))
            if found:
                yield family
        errors = GaugeMetricFamily(
            "hatchway_ship_last_error_seconds", "When the last try failed, epoch seconds.", labels=("target", "error")
        )
        for one in found:
            if one.error:
                errors.add_metric((one.target, one.error), one.error_at or 0)
        if errors.samples:
            yield errors
