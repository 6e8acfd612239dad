"""Counts over the journal: how many actors were in which state before a record, and what happened over time.

A full file changes only where refusals and renewals are taken out of it to make room. So the counts of each full file
are kept in memory, and made anew when its size has changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from hatchway.engine.journal.files import first_of, named_by, segments
from hatchway.statecharts.catalogue import CHARTS
from hatchway.statecharts.chart import NONE

UNIT, HOUR = 10, 3600
"""Seconds of the stretches that are counted: the short ones for a plot of a few days at most."""

MOST_POINTS = 500
"""Stretches of one plot."""

KEPT = 1000
"""Files whose counts are kept in memory, by the hour: as many as a journal may have."""

KEPT_UNITS = 50_000
"""Short stretches whose counts are kept in memory, of all files together: some 10 MiB."""

States = Counter[tuple[str, str]]
"""How many actors, by chart and state."""


class Counted(msgspec.Struct, gc=False):
    """A record, as far as it is counted."""

    time: float
    seq: int
    kind: Literal["transition", "refusal", "notice"]
    chart: str
    event: str
    source: str | None = None
    target: str | None = None
    count: int = 1


class Happened:
    """Sign-ins, refusals, and by how much the number of live sessions grew, each by the number of its stretch of time:
    epoch seconds over `unit`."""

    def __init__(self, unit: int, records: Iterable[Counted] = ()) -> None:
        self.unit = unit
        self.signed_in: Counter[int] = Counter()
        self.refused: Counter[int] = Counter()
        self.sessions: Counter[int] = Counter()
        for record in records:
            self.count(record)

    def count(self, record: Counted) -> None:
        """One record more."""
        place = int(record.time // self.unit)
        if record.kind == "refusal":
            self.refused[place] += record.count
        elif record.kind == "transition" and record.chart == "session":
            self.signed_in[place] += record.event == "start"
            self.sessions[place] += (record.target == "active") - (record.source == "active")

    def __len__(self) -> int:
        return len(self.sessions) + len(self.refused)


class Stretch:
    """What happened in one file, or the part of it up to a record."""

    def __init__(self, records: Iterable[Counted]) -> None:
        self.change: States = Counter()
        """By how much each state's number grew."""
        self.codes: States = Counter()
        """The same of pairings alone, since the last start of the engine: their codes end with it."""
        self.has_start = False
        self.by_hour = Happened(HOUR)
        for record in records:
            self._count(record)

    def _count(self, record: Counted) -> None:
        self.by_hour.count(record)
        if record.kind == "transition":
            moved = self.codes if record.chart == "pairing" else self.change
            moved[record.chart, record.source or ""] -= 1
            moved[record.chart, record.target or ""] += 1
        elif (record.chart, record.event) == ("engine", "start"):
            self.codes.clear()
            self.has_start = True

    def is_within(self, since: float, until: float) -> bool:
        """Whether something of it happened in an hour that this time touches."""
        hours = range(int(since // HOUR), int(until // HOUR) + 1)
        return any(hour in hours for counts in (self.by_hour.sessions, self.by_hour.refused) for hour in counts)


_decode = msgspec.json.Decoder(Counted).decode


def _records(path: Path) -> list[Counted]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    return [_decode(line) for line in data.split(b"\n") if line.startswith(b'{"time":') and line.endswith(b"}")]


class Plot(msgspec.Struct, frozen=True):
    """Numbers of each stretch of `step` seconds from `since` on; `sessions` are those alive at its end."""

    since: float
    step: int
    sign_ins: list[int]
    refusals: list[int]
    sessions: list[int]


class Overview:
    """The overview of one journal. Its functions read files, and are to be called in a thread, one at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: dict[str, tuple[int, Stretch]] = {}
        self._closely: dict[str, tuple[int, Happened]] = {}

    def states_before(self, seq: int, now: Mapping[tuple[str, str], int], last_seq: int) -> States:
        """How many actors were in which state before record `seq`; `now` they are so many, after record `last_seq`."""
        states: States = Counter(now)
        paths = segments(self._folder)
        later = [path for path in paths if (named_by(path) or first_of(path)) >= seq]
        earlier = paths[: len(paths) - len(later)]
        for path in later[:-1]:
            states.subtract(self._stretch(path).change)
        split = [*earlier[-1:], *later[-1:]]
        records = [record for path in split for record in _records(path)]
        states.subtract(Stretch(record for record in records if seq <= record.seq <= last_seq).change)
        for key in [key for key in states if key[0] == "pairing"]:
            del states[key]
        states.update(self._codes(earlier[:-1], Stretch(record for record in records if record.seq < seq)))
        return Counter({key: max(0, count) for key, count in states.items()})

    def _codes(self, earlier: list[Path], last: Stretch) -> States:
        codes = Counter(last.codes)
        while not last.has_start and earlier:
            last = self._stretch(earlier.pop())
            codes.update(last.codes)
        return codes

    def _stretch(self, path: Path) -> Stretch:
        """The stretch of a file that is full, and so will not change."""
        size = path.stat().st_size
        kept = self._kept.get(path.name)
        if kept is None or kept[0] != size:
            if len(self._kept) >= KEPT:
                del self._kept[next(iter(self._kept))]
            kept = self._kept[path.name] = size, Stretch(_records(path))
        return kept[1]

    def _happened(self, since: float, until: float, unit: int) -> Iterator[Happened]:
        """What there is, file by file; by the hour alone where nothing in a file touches that time."""
        *full, current = segments(self._folder) or [self._folder]
        for path in full:
            stretch = self._stretch(path)
            near = unit < HOUR and stretch.is_within(since, until)
            yield self._look_closely(path, unit) if near else stretch.by_hour
        yield Happened(unit, _records(current) if current != self._folder else ())

    def _look_closely(self, path: Path, unit: int) -> Happened:
        size = path.stat().st_size
        kept = self._closely.pop(path.name, None)
        if kept is None or kept[0] != size:
            kept = size, Happened(unit, _records(path))
        self._closely[path.name] = kept
        while len(self._closely) > 1 and sum(len(one) for _, one in self._closely.values()) > KEPT_UNITS:
            del self._closely[next(iter(self._closely))]
        return kept[1]

    def plot(self, since: float, until: float, points: int, live: int) -> Plot:
        """What happened from `since` to `until`, in at most `points` stretches; `live` sessions are there now."""
        unit = HOUR if until - since > points * HOUR else UNIT
        first = int(since // unit)
        units = int(until // unit) + 1 - first
        step = -(-units // points)
        count = -(-units // step)
        plot = Plot(first * unit, step * unit, [0] * count, [0] * count, [0] * count)
        after = 0
        changes = [0] * count
        for happened in self._happened(plot.since, plot.since + plot.step * count, unit):
            for series, numbers in ((plot.sign_ins, happened.signed_in), (plot.refusals, happened.refused)):
                for number, grown in numbers.items():
                    if 0 <= (place := (number * happened.unit // unit - first) // step) < count:
                        series[place] += grown
            for number, grown in happened.sessions.items():
                place = (number * happened.unit // unit - first) // step
                if 0 <= place < count:
                    changes[place] += grown
                elif place >= count:
                    after += grown
        alive = live - after
        for place in reversed(range(count)):
            plot.sessions[place] = max(0, alive)
            alive -= changes[place]
        return plot


class Moved(Counted, gc=False):
    """A record with its actor."""

    actor: str = ""


_decode_moved = msgspec.json.Decoder(Moved).decode


def standing_at(folder: Path, moment: float) -> tuple[States, int]:
    """How many actors were in which state that is not final, and the number of the last record up to then.

    Those that began before the first line are counted where a later record tells of them. Only actors that live at some
    moment are held, however many records there are.
    """
    final = {(name, state) for name, chart in CHARTS.items() for state in chart.final}
    standing: dict[tuple[str, str], str] = {}
    later: set[tuple[str, str]] = set()
    last = 0
    for path in segments(folder):
        for record in _moved(path):
            if record.time <= moment:
                last = record.seq
                _step(record, standing, final)
            elif record.kind == "transition":
                _step_later(record, standing, later, final)
    return Counter((chart, state) for (chart, _), state in standing.items()), last


def _moved(path: Path) -> Iterator[Moved]:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        for data in file:
            if data.startswith(b'{"time":') and data.endswith(b"}\n"):
                yield _decode_moved(data)


def _step(record: Moved, standing: dict[tuple[str, str], str], final: set[tuple[str, str]]) -> None:
    if record.kind == "transition":
        if (record.chart, record.target or "") in final:
            standing.pop((record.chart, record.actor), None)
        else:
            standing[record.chart, record.actor] = record.target or ""
    elif (record.chart, record.event) == ("engine", "start"):
        for key in [key for key in standing if key[0] == "pairing"]:
            del standing[key]


def _step_later(
    record: Moved, standing: dict[tuple[str, str], str], later: set[tuple[str, str]], final: set[tuple[str, str]]
) -> None:
    """A step after the moment: its source tells how an actor stood that has no record before. `later` are those of
    which a step after the moment was seen, until they end."""
    key = record.chart, record.actor
    if key not in later and key not in standing and record.source != NONE:
        standing[key] = record.source or ""
    if (record.chart, record.target or "") in final:
        later.discard(key)
    else:
        later.add(key)
