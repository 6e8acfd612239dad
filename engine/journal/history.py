"""Finds records in the journal's files: pages of those that fit a question, and where the records of a moment begin."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from hatchway.engine.journal.files import RecordLine, first_of, offset_where, parse, segments, time_of
from hatchway.engine.journal.journal import SET_BACK

SCANNED = 64 * 1024 * 1024
"""Bytes that are looked through for one page at most. A page that is not full by then is given as it is, and tells
after which number the next one goes on."""

LOOKED_THROUGH = 256 * 1024
"""Bytes that are read at once."""

MOST = 1000
"""Records of one page."""


class Question(msgspec.Struct, frozen=True, omit_defaults=True):
    """What records a reader wants: those that fit all that is given. Times in epoch seconds."""

    actor: str | None = None
    identity: str | None = None
    address: str | None = None
    kind: str | None = None
    chart: str | None = None
    event: str | None = None
    since: float | None = None
    until: float | None = None

    def needles(self) -> tuple[bytes, ...]:
        """The bytes that stand in each line that fits, such as `"kind":"refusal"`. No value can hold them: a quote in a
        value is escaped."""
        fields = ("actor", "identity", "address", "kind", "chart", "event")
        given = {name: getattr(self, name) for name in fields if getattr(self, name) is not None}
        return tuple(msgspec.json.encode({name: value})[1:-1] for name, value in given.items())


class HistoryPage(msgspec.Struct, frozen=True):
    """Records, oldest first, and the number after which the next page goes on; None at the end."""

    lines: list[RecordLine]
    next: int | None


def page(folder: Path, question: Question, after: int | None, limit: int) -> HistoryPage:
    """At most `limit` records after number `after`; None begins at the question's `since`, or at the oldest."""
    paths = segments(folder)
    if after is None:
        paths = _since(paths, question.since) if question.since is not None else paths
    else:
        paths = _after(paths, after)
    since, until = question.since or 0.0, math.inf if question.until is None else question.until
    found: list[RecordLine] = []
    scanned, last = 0, after or 0
    for data in _contents(_until(paths, until), question.since if after is None else None, until):
        scanned += len(data)
        for line in _fitting(data, question):
            if line.seq <= (after or 0) or not since <= time_of(line.data) <= until:
                continue
            found.append(line)
            if len(found) == limit:
                return HistoryPage(found, line.seq)
        last = _last_seq(data) or last
        if scanned >= SCANNED and last:
            return HistoryPage(found, last)
    return HistoryPage(found, None)


def _fitting(data: bytes, question: Question) -> Iterator[RecordLine]:
    needles = question.needles()
    if any(needle not in data for needle in needles):
        return
    for text in data.split(b"\n"):
        if all(needle in text for needle in needles) and (line := parse(text)) is not None:
            yield line


def _contents(paths: list[Path], since: float | None, until: float) -> Iterator[bytes]:
    """The files' lines, some hundreds at once: a page seldom needs a whole file. Of each file as many as can hold
    records up to `until`."""
    for number, path in enumerate(paths):
        try:
            with path.open("rb") as file:
                if since is not None and number == 0:
                    file.seek(offset_of(path, since))
                for data in _pieces(file):
                    yield data
                    if _last_time(data) > until + SET_BACK:
                        break  # no later one of this file is earlier than `until`
        except FileNotFoundError:
            continue  # grown too old meanwhile


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    rest = b""
    while piece := file.read(LOOKED_THROUGH):
        data = rest + piece
        end = data.rfind(b"\n") + 1
        rest = data[end:]
        yield data[:end]
    if rest:
        yield rest


def _last_time(data: bytes) -> float:
    return time_of(data[data.rfind(b"\n", 0, len(data) - 1) + 1 :])


def _last_seq(data: bytes) -> int | None:
    end = len(data)
    while end > 0:
        begin = data.rfind(b"\n", 0, end - 1) + 1
        line = parse(data[begin:end].rstrip(b"\n"))
        if line is not None:
            return line.seq
        end = begin
    return None


def segments_since(folder: Path, moment: float) -> list[Path]:
    """The files from the one on that holds the first record at or after `moment`."""
    return _since(segments(folder), moment)


def _since(paths: list[Path], moment: float) -> list[Path]:
    low, high = 0, len(paths)
    while high - low > 1:
        middle = (low + high) // 2
        if _first_time(paths[middle]) < moment:
            low = middle
        else:
            high = middle
    return paths[low:]


def _until(paths: list[Path], moment: float) -> list[Path]:
    """Without the last files, all whose records are later than `moment`, also where the clock was set back."""
    while paths and moment < math.inf and _first_time(paths[-1]) > moment + SET_BACK:
        paths = paths[:-1]
    return paths


def _after(paths: list[Path], seq: int) -> list[Path]:
    low, high = 0, len(paths)
    while high - low > 1:
        middle = (low + high) // 2
        if (first_of(paths[middle]) or seq + 2) <= seq + 1:
            low = middle
        else:
            high = middle
    return paths[low:]


def _first_time(path: Path) -> float:
    try:
        with path.open("rb") as file:
            for data in file:
                if parse(data.rstrip(b"\n")) is not None:
                    return time_of(data)
    except FileNotFoundError:
        pass
    return float("inf")


def offset_of(path: Path, moment: float) -> int:
    """Where in a file the first record at or after `moment` may begin."""
    return offset_where(path, lambda line: time_of(line.data) >= moment)
