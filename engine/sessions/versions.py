"""Words of memory that an engine shares with its doors: an answer that a door keeps holds while they stand still."""

from __future__ import annotations

import mmap
import os
from math import inf
from typing import NamedTuple
from zlib import crc32

from hatchway.engine.runtime.records import Record

COUNTERS = 65_536
"""Two sessions may share a counter: then a step of one has the door ask once more about the other."""

_EVERYTHING, _FRESH, _FIRST = 0, 1, 2
SIZE = 8 * (_FIRST + COUNTERS)


class VersionMark(NamedTuple):
    """How the words of one session stood. `counter` says which they are."""

    counter: int
    steps: int
    everything: int


def create() -> int:
    """The descriptor of such memory, all at zero. It has no name that another program could open."""
    fd = os.memfd_create("hatchway-validity")
    os.ftruncate(fd, SIZE)
    return fd


def readable(fd: int) -> int:
    """A further descriptor of it, through which nothing can be written."""
    return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)


class VersionCounters:
    """The words, of 64 bits and written whole: by one process, before it answers; the others only look."""

    def __init__(self, fd: int, *, write: bool = False) -> None:
        access = mmap.ACCESS_WRITE if write else mmap.ACCESS_READ
        memory = memoryview(mmap.mmap(fd, SIZE, access=access))
        self._words, self._times = memory.cast("Q"), memory.cast("d")

    def take(self, record: Record) -> None:
        """A sink of records: a session's step is settled, and not answered yet."""
        if record.chart == "session" and record.kind == "transition":
            self.moved(record.actor)

    def take_moved(self, chart: str, actor: str) -> None:
        """Another engine of the same store has moved an actor."""
        if chart == "session":
            self.moved(actor)

    def moved(self, session: str) -> None:
        """What was answered about this session holds no longer."""
        self._words[_FIRST + _counter(session)] += 1

    def moved_all(self) -> None:
        """What was answered about any session holds no longer."""
        self._words[_EVERYTHING] += 1

    def hold_until(self, elapsed: float = inf) -> None:
        """No answer may be kept past that time, in elapsed seconds.

        An engine whose store others write to as well renews it as long as it hears of what they do.
        """
        self._times[_FRESH] = elapsed

    def mark(self, session: str) -> VersionMark:
        """How things stand for a session now."""
        counter = _counter(session)
        return VersionMark(counter, self._words[_FIRST + counter], self._words[_EVERYTHING])

    def holds(self, mark: VersionMark, elapsed: float) -> bool:
        """Whether nothing has happened since the mark, as far as can be known at `elapsed` seconds."""
        words = self._words
        return (
            words[_FIRST + mark.counter] == mark.steps
            and words[_EVERYTHING] == mark.everything
            and elapsed < self._times[_FRESH]
        )


def _counter(session: str) -> int:
    return crc32(session.encode()) % COUNTERS
