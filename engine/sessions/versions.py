"""Version counters in memory shared with workers: a cached response is valid while they stand still."""

from __future__ import annotations

import mmap
import os
from math import inf
from typing import NamedTuple
from zlib import crc32

from hatchway.engine.runtime.records import Record

COUNTERS = 65_536
"""Two sessions may share a counter: then a step of one has the worker ask the engine once more about the other."""

_EVERYTHING, _FRESH, _FIRST = 0, 1, 2
SIZE = 8 * (_FIRST + COUNTERS)


class VersionSnapshot(NamedTuple):
    """How the counters that concern one session stood. `counter` is the place of the session's own."""

    counter: int
    steps: int
    everything: int


def create() -> int:
    """The descriptor of new shared memory, all zero. It has no name by which another program could open it."""
    fd = os.memfd_create("hatchway-versions")
    os.ftruncate(fd, SIZE)
    return fd


def readable(fd: int) -> int:
    """Another descriptor of the same memory, through which nothing can be written."""
    return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)


class VersionCounters:
    """Counters of 64 bits, each written in one store. The engine writes them, before it responds; workers only read."""

    def __init__(self, fd: int, *, write: bool = False) -> None:
        access = mmap.ACCESS_WRITE if write else mmap.ACCESS_READ
        memory = memoryview(mmap.mmap(fd, SIZE, access=access))
        self._counts, self._times = memory.cast("Q"), memory.cast("d")

    def observe(self, record: Record) -> None:
        """A sink of records. A session's step is stored, and whoever sent the event has no response yet."""
        if record.chart == "session" and record.kind == "transition":
            self.invalidate(record.actor)

    def observe_move(self, chart: str, actor: str) -> None:
        """A callback of `Runtime.subscribe_moves`: another engine of the same store has moved an actor."""
        if chart == "session":
            self.invalidate(actor)

    def invalidate(self, session: str) -> None:
        """Cached responses about this session are valid no longer."""
        self._counts[_FIRST + _counter(session)] += 1

    def invalidate_all(self) -> None:
        """No cached response about any session is valid any longer."""
        self._counts[_EVERYTHING] += 1

    def extend_validity(self, elapsed: float = inf) -> None:
        """Cached responses are valid until this elapsed time.

        An engine of a fleet moves it on for as long as it knows what the other engines do.
        """
        self._times[_FRESH] = elapsed

    def snapshot(self, session: str) -> VersionSnapshot:
        """How the counters for a session stand now."""
        counter = _counter(session)
        return VersionSnapshot(counter, self._counts[_FIRST + counter], self._counts[_EVERYTHING])

    def is_current(self, snapshot: VersionSnapshot, elapsed: float) -> bool:
        """Whether nothing has happened since the snapshot, as far as can be known at `elapsed` seconds."""
        counts = self._counts
        return (
            counts[_FIRST + snapshot.counter] == snapshot.steps
            and counts[_EVERYTHING] == snapshot.everything
            and elapsed < self._times[_FRESH]
        )


def _counter(session: str) -> int:
    return crc32(session.encode()) % COUNTERS
