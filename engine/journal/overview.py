"""The past at a glance: how many actors were in which state before a record, and what happened in each stretch of time.

Full files never change but for what makes room, so that what is counted in one of them is counted once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from hatchway.engine.journal.files import first_of, segments
from hatchway.statecharts.catalogue import CHARTS
from hatchway.statecharts.chart import NONE

UNIT = 10
"""Seconds: the finest stretch that is counted."""

MOST_POINTS = 500
"""Stretches of one plot."""

KEPT = 256
"""Files whose counts are kept in memory: what a journal may have many times over."""

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


class Stretch:
    """What happened in one file, or the part of it up to a record."""

    def __init__(self, records: Iterable[Counted]) -> None:
        self.change: States = Counter()
        """By how much each state's number grew."""
        self.codes: States = Counter()
        """The same of pairings alone, since the last start of the engine: their codes end with it."""
        self.has_start = False
        self.signed_in: Counter[int] = Counter()
        self.refused: Counter[int] = Counter()
        self.sessions: Counter[int] = Counter()
        for record in records:
            self._count(record)

    def _count(self, record: Counted) -> None:
        unit = int(record.time // UNIT)
        if record.kind == "refusal":
            self.refused[unit] += record.count
        elif record.kind == "transition":
            self._move(record, unit)
        elif (record.chart, record.event) == ("engine", "start"):
            self.codes.clear()
            self.has_start = True

    def _move(self, record: Counted, unit: int) -> None:
        moved = self.codes if record.chart == "pairing" else self.change
        moved[record.chart, record.source or ""] -= 1
        moved[record.chart, record.target or ""] += 1
        if record.chart == "session":
            self.signed_in[unit] += record.event == "start"
            self.sessions[unit] += (record.target == "active") - (record.source == "active")


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
    """Of one journal. Its functions read files, and are to be called in a thread, one at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: dict[str, tuple[int, Stretch]] = {}

    def states_before(self, seq: int, now: Mapping[tuple[str, str], int], last_seq: int) -> States:
        """How many actors were in which state before record `seq`; `now` they are so many, after record `last_seq`."""
        states: States = Counter(now)
        paths = segments(self._folder)
        later = [path for path in paths if first_of(path) >= seq]
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
        """Of a full file."""
        size = path.stat().st_size
        kept = self._kept.get(path.name)
        if kept is None or kept[0] != size:
            if len(self._kept) >= KEPT:
                del self._kept[next(iter(self._kept))]
            kept = self._kept[path.name] = size, Stretch(_records(path))
        return kept[1]

    def plot(self, since: float, until: float, points: int, live: int) -> Plot:
        """What happened from `since` to `until`, in at most `points` stretches; `live` sessions are there now."""
        first = int(since // UNIT)
        units = int(until // UNIT) + 1 - first
        step = -(-units // points)
        count = -(-units // step)
        plot = Plot(first * UNIT, step * UNIT, [0] * count, [0] * count, [0] * count)
        after = 0
        changes = [0] * count
        *full, current = segments(self._folder) or [self._folder]
        for stretch in [*map(self._stretch, full), Stretch(_records(current) if current != self._folder else ())]:
            for series, numbers in ((plot.sign_ins, stretch.signed_in), (plot.refusals, stretch.refused)):
                for unit, number in numbers.items():
                    if 0 <= (place := (unit - first) // step) < count:
                        series[place] += number
            for unit, number in stretch.sessions.items():
                place = (unit - first) // step
                if 0 <= place < count:
                    changes[place] += number
                elif place >= count:
                    after += number
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

    Those that began before the first line are counted where a later record tells of them.
    """
    standing: dict[tuple[str, str], str] = {}
    seen: set[tuple[str, str]] = set()
    last = 0
    for path in segments(folder):
        for data in path.read_bytes().split(b"\n"):
            if not (data.startswith(b'{"time":') and data.endswith(b"}")):
                continue
            record = _decode_moved(data)
            if record.time <= moment:
                last = record.seq
                _step(record, standing, seen)
            elif record.kind == "transition" and (key := (record.chart, record.actor)) not in seen:
                seen.add(key)
                if record.source != NONE:
                    standing[key] = record.source or ""
    final = {name: chart.final for name, chart in CHARTS.items()}
    return Counter((chart, state) for (chart, _), state in standing.items() if state not in final.get(chart, ())), last


def _step(record: Moved, standing: dict[tuple[str, str], str], seen: set[tuple[str, str]]) -> None:
    if record.kind == "transition":
        seen.add((record.chart, record.actor))
        standing[record.chart, record.actor] = record.target or ""
    elif (record.chart, record.event) == ("engine", "start"):
        for key in [key for key in standing if key[0] == "pairing"]:
            del standing[key]
