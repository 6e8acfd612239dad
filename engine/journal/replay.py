"""Replays the records through the charts: whether each step was a row of its chart, and each guard decided rightly.

Nothing here reads files or clocks. `engine.journal.check` reads the lines and looks at their hashes.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from hashlib import sha256
from math import inf
from typing import NamedTuple

from msgspec import UNSET

from hatchway.engine.base.permissions import allows
from hatchway.engine.runtime.records import Record, Saw
from hatchway.statecharts.catalogue import CHARTS
from hatchway.statecharts.chart import NONE, Chart, Data, Transition, reachable
from hatchway.statecharts.decide import NO_ROW, Decider
from hatchway.statecharts.instance import FETCHED_START_WINDOW, LOCAL_START_WINDOW
from hatchway.statecharts.session import LONGEST_LIFETIME

RULES = {"session_lifetime": (0.0, float(LONGEST_LIFETIME)), "start_window": (LOCAL_START_WINDOW, FETCHED_START_WINDOW)}
"""Named delays: the least and the most seconds."""

SLACK = 5.0
"""Seconds that a busy host may take between an event's time and the arming of the delay that counts from it."""

STARTS, STOPS = ("engine", "start"), ("engine", "stop")


class NotSo(Exception):
    """A record that can't be true, and why."""


class Standing(NamedTuple):
    """What is known of a live actor: its state, and when it came into it, on its delay's clock, where that is known."""

    state: str
    since: float | None


@cache
def charts_digest() -> str:
    """Names the tables and delays that this engine runs: steps by others are another version's to judge."""
    rows = [
        (chart.name, row.state, row.event, row.guard.__name__, row.target, row.effects)
        for chart in CHARTS.values()
        for row in chart.rows
    ]
    delays = [
        (chart.name, state, delay.event, delay.seconds, delay.clock)
        for chart in CHARTS.values()
        for state, delay in sorted(chart.delays.items())
    ]
    return sha256(repr((rows, delays, sorted(RULES.items()))).encode()).hexdigest()[:12]


class ChartReplay:
    """All actors of one chart, as their records say."""

    def __init__(self, chart: Chart) -> None:
        self.chart, self._decider = chart, Decider(chart)
        self.standing: dict[str, Standing] = {}
        self.doubted: dict[str, str] = {}
        """Actors whose engine was killed, with the last state that is known of each. Each may have made one step that
        has no record."""
        self.unknown = 0
        """Actors whose beginning has no record here."""
        self.steps, self.actors = 0, 0
        self._after = {state: reachable(chart, state) for state in chart.states}
        self._wall = {state for state, delay in chart.delays.items() if delay.clock == "wall"}

    def doubt(self) -> None:
        """The engine was killed: each live actor may have taken one step that has no record."""
        self.doubted.update({actor: known.state for actor, known in self.standing.items()})
        self.standing.clear()

    def forget_times(self) -> None:
        """The engine was started: delays that count elapsed time were armed anew, at a time that no record tells."""
        if any(delay.clock == "elapsed" for delay in self.chart.delays.values()):
            self.standing = {actor: Standing(known.state, None) for actor, known in self.standing.items()}

    def transition(self, record: Record, *, complete: bool, shared: bool) -> None:
        """Raises NotSo."""
        source, target, actor = record.source, record.target, record.actor
        known = self.standing.get(actor)
        if source is None or target is None or (known.state if known else NONE) != source:
            self._explain(record, known, complete=complete, shared=shared)
            known = None
        row = self._row(record)
        if row.target != target or row.effects != record.effects:
            raise NotSo(f"'{record.event}' leads from '{source}' to '{row.target}' with {_listed(row.effects)}")
        if record.saw is not UNSET:
            self._windows(record, record.saw, None if shared else known)
            _permitted(record.saw)
        self.steps += 1
        self.actors += source == NONE
        if target in self.chart.final:
            self.standing.pop(actor, None)
        else:
            self.standing[actor] = Standing(target or NONE, self._since(record))

    def _since(self, record: Record) -> float | None:
        if record.target in self._wall:
            return record.time
        now = record.saw.now if record.saw is not UNSET else UNSET  # form 2
        return None if now is UNSET else now

    def _explain(self, record: Record, known: Standing | None, *, complete: bool, shared: bool) -> None:
        """Why an actor may be in another state than the records before say. Raises NotSo."""
        source = record.source or NONE
        if record.target is None or source not in self._after:
            raise NotSo(f"the chart {self.chart.name} has no step from '{record.source}' to '{record.target}'")
        before = known.state if known is not None else self.doubted.pop(record.actor, None)
        if before is None:
            if source != NONE and complete and not shared:
                raise NotSo(f"{record.actor} steps from '{source}' and has no beginning in this journal")
            self.unknown += source != NONE
        elif known is not None and not shared:
            raise NotSo(f"{record.actor} was in '{before}' and steps from '{source}'")
        elif source not in self._after[before] and source != NONE:
            raise NotSo(f"{record.actor} was in '{before}', from which '{source}' is not reached")

    def _row(self, record: Record) -> Transition:
        source, event = record.source or NONE, record.event
        if record.saw is UNSET:
            return self._unguarded(record)
        try:
            decided = self._decider.decide(source, event, _inputs(record, record.saw))
        except KeyError as lacking:
            raise NotSo(f"it lacks {lacking}, on which '{event}' was decided") from None
        if isinstance(decided, str):
            raise NotSo(f"'{event}' must be refused in '{source}' ({decided})")
        return decided

    def _unguarded(self, record: Record) -> Transition:
        """A record of an older form does not say what was decided on: any row will do that leads there."""
        ways = self._decider.ways(record.source or NONE, record.event)
        if not ways:
            raise NotSo(f"'{record.event}' must be refused in '{record.source}' ({NO_ROW})")
        return next((row for row in ways if row.target == record.target), ways[0])

    def _windows(self, record: Record, saw: Saw, known: Standing | None) -> None:
        delay = self.chart.delays.get(record.source or NONE)
        now, deadline = _compared(record, saw)
        if delay is None or deadline is None:
            return
        if record.event == delay.event and now < deadline:
            raise NotSo(f"'{record.event}' came {deadline - now:.3f} s early")
        if record.event != delay.event and now >= deadline:
            raise NotSo(f"'{record.event}' came {now - deadline:.3f} s after the deadline, '{delay.event}' was due")
        by_delay = saw.of is not UNSET
        since = 0.0 if by_delay else known.since if known is not None else None
        if since is not None:
            least, most = RULES[delay.seconds] if isinstance(delay.seconds, str) else (delay.seconds, delay.seconds)
            if delay.clock == "wall":
                least = -inf  # the clock may be set forward between a decision and its record
            slack = 0.0 if by_delay else SLACK
            if not least - slack <= deadline - since <= most + slack:
                raise NotSo(f"its window in '{record.source}' was {deadline - since:.3f} s, and not {most:g} s")

    def refusal(self, record: Record, *, shared: bool) -> None:
        """Raises NotSo."""
        cause, known, event = record.cause or "", self.standing.get(record.actor), record.event
        if cause == "no_actor":
            if known is not None and not shared:
                raise NotSo(f"{record.actor} was in '{known.state}', and was not found")
            return
        if record.source is None:
            return
        if known is not None and known.state != record.source and not shared:
            raise NotSo(f"{record.actor} was in '{known.state}', and not in '{record.source}'")
        if record.saw is UNSET and cause != NO_ROW:
            return
        inputs = {} if record.saw is UNSET else _inputs(record, record.saw)
        decided = self._decider.decide(record.source, event, inputs)
        if decided != cause:
            why = decided if isinstance(decided, str) else f"it leads to '{decided.target}'"
            raise NotSo(f"'{event}' was refused in '{record.source}' for {cause}, wrongly: {why}")


def _compared(record: Record, saw: Saw) -> tuple[float, float | None]:
    """The time and the deadline that a guard compared, on one clock; no deadline where none is told."""
    if saw.at is not UNSET and saw.of is not UNSET:
        return saw.at, saw.of
    return record.time if saw.now is UNSET else saw.now, None if saw.deadline is UNSET else saw.deadline


def _inputs(record: Record, saw: Saw) -> Data:
    now, deadline = _compared(record, saw)
    inputs = {"now": now}
    if deadline is not None:
        inputs["deadline"] = deadline
    if saw.proof is not UNSET:
        return {**inputs, "proof": saw.proof}
    return inputs


def _permitted(saw: Saw) -> None:
    if saw.asked is not UNSET and not allows(saw.held or (), saw.asked):
        raise NotSo(f"it needs {saw.asked}, and {_listed(saw.held or ())} was held")


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"


class Replay:
    """The whole of a journal, record by record. `complete` says that nothing came before the first."""

    def __init__(self, *, complete: bool = False) -> None:
        self.charts = {name: ChartReplay(chart) for name, chart in CHARTS.items()}
        self.complete = complete
        self.shared, self.foreign, self._stopped = False, False, False
        self.refusals = self.notices = 0
        self.skipped: Counter[str] = Counter()
        """Steps by the tables of another version, by those tables' name."""
        self._tables = ""

    def miss(self) -> None:
        """Records are lacking at this point, since they made room: an actor may have begun in one of them."""
        self.complete = False

    def take(self, record: Record) -> None:
        """The next record. Raises NotSo."""
        if record.kind == "notice":
            self._notice(record)
        elif self.foreign:
            self.skipped[self._tables] += 1
        elif record.kind == "transition":
            chart = self.charts.get(record.chart)
            if chart is None:
                raise NotSo(f"there is no chart {record.chart}")
            chart.transition(record, complete=self.complete, shared=self.shared)
        else:
            self._refusal(record)

    def _refusal(self, record: Record) -> None:
        self.refusals += 1
        if record.target is not None or record.effects:
            raise NotSo("a refusal that leads somewhere")
        if not record.cause:
            raise NotSo("a refusal without a cause")
        if record.saw is not UNSET and record.cause == "permission_denied" and record.saw.asked is not UNSET:
            if allows(record.saw.held or (), record.saw.asked):
                raise NotSo(f"{record.saw.asked} was held, and was refused")
        elif record.actor != "-" and record.chart in self.charts:
            self.charts[record.chart].refusal(record, shared=self.shared)

    def _notice(self, record: Record) -> None:
        self.notices += 1
        if record.source is not None or record.target is not None or record.effects:
            raise NotSo("a notice that leads somewhere")
        if (record.chart, record.event) == STOPS:
            self._stopped = True
        elif (record.chart, record.event) == STARTS:
            self._start(record.saw if record.saw is not UNSET else Saw())

    def _start(self, saw: Saw) -> None:
        for chart in self.charts.values():
            if not self._stopped:
                chart.doubt()
            chart.forget_times()
        self.charts["pairing"].standing.clear()  # codes live in memory
        self.charts["pairing"].doubted.clear()
        first_of_all = self.notices == 1 and not any(chart.steps for chart in self.charts.values())
        self.complete = self.complete and (self._stopped or first_of_all)
        self._stopped, self.shared = False, saw.shared is True
        self._tables = saw.charts or ""
        self.foreign = bool(self._tables) and self._tables != charts_digest()
        if self.foreign:
            self.complete = False
            for chart in self.charts.values():
                chart.doubt()
