"""All delays of the runtime: a heap for each of the two clocks, and one task that fires what is due."""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable
from functools import partial
from math import inf
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar

import trio

from hatchway.engine.base.clock import Clock

AWAKE = {"elapsed": -inf, "wall": -inf}
"""When the task wakes next, by clock, while it is awake: no deadline is earlier, so `arm` need not wake it."""

BATCH = 32
"""Timers fired together: enough for one group commit, few enough that a request waits a few milliseconds at most."""

FEW_STALE = 1000
"""Entries of the heaps that will not fire, up to which they are left there: to take them out goes through all."""


class Timed(Protocol):
    """What can be armed. `timer` is the number of its heap entry, 0 for none; entries of other numbers are void."""

    timer: int


T = TypeVar("T", bound=Timed)


class TimersSnapshot(NamedTuple, Generic[T]):
    """Until when the task sleeps, whether it was woken before that, and the heap's entries in their order: deadline,
    item, and whether the item is still to fire by it."""

    asleep_until: float
    woken: bool
    entries: list[tuple[float, T, bool]]


class Timers(Generic[T]):
    """`arm` and `disarm` are immediate; `run` sends each due one to `fire`, at most `BATCH` at once."""

    def __init__(
        self,
        clock: Clock,
        fire: Callable[[T], Awaitable[None]],
        observe_lateness: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """`observe_lateness` takes how many seconds late each timer fires."""
        self._fire, self._observe_lateness = fire, observe_lateness
        self._heaps: dict[str, list[tuple[float, int, T]]] = {"elapsed": [], "wall": []}
        self._now: dict[str, Callable[[], float]] = {"elapsed": clock.elapsed, "wall": clock.wall}
        self._tick = clock.tick
        self._number = 0
        self._armed = self._stale = 0
        """Entries of the heaps that are to fire, and those that are not any more."""
        self._wake = trio.Event()
        self._asleep_until = AWAKE

    def __len__(self) -> int:
        return self._armed

    def arm(self, item: T, deadline: float, clock: Literal["elapsed", "wall"] = "elapsed") -> None:
        """Fire `item` at `deadline` on `clock`; an earlier arming of it is forgotten."""
        if item.timer:
            self._stale += 1
        else:
            self._armed += 1
        self._number = item.timer = self._number + 1
        heapq.heappush(self._heaps[clock], (deadline, item.timer, item))
        if self._stale > FEW_STALE:
            self._tidy_up()
        if deadline < self._asleep_until[clock]:
            self._wake.set()

    def disarm(self, item: T) -> None:
        """`item` does not fire; nothing happens to one that is not armed."""
        if item.timer:
            item.timer = 0
            self._armed -= 1
            self._stale += 1
            if self._stale > FEW_STALE:
                self._tidy_up()

    def look_anew(self) -> None:
        """A clock was set: what is due by it now fires now, and not at the next look."""
        self._wake.set()

    def snapshot(self, clock: Literal["elapsed", "wall"]) -> TimersSnapshot[T]:
        """All that decides what fires next by one clock, for whoever compares states of a run."""
        entries = [(deadline, item, item.timer == number) for deadline, number, item in sorted(self._heaps[clock])]
        return TimersSnapshot(self._asleep_until[clock], self._wake.is_set(), entries)

    def _tidy_up(self) -> None:
        """Take the stale entries out, where they are most of all."""
        if self._stale <= self._armed:
            return
        for clock, heap in self._heaps.items():
            live = [entry for entry in heap if entry[2].timer == entry[1]]
            heapq.heapify(live)
            self._heaps[clock] = live
        self._stale = 0

    def _due(self) -> list[T]:
        due: list[T] = []
        for clock, heap in self._heaps.items():
            now = self._now[clock]()
            while heap and heap[0][0] <= now and len(due) < BATCH:
                deadline, number, item = heapq.heappop(heap)
                if item.timer == number:
                    item.timer = 0
                    self._armed -= 1
                    self._observe_lateness(now - deadline)
                    due.append(item)
                else:
                    self._stale -= 1
        return due

    def _pause(self) -> float:
        waits = [heap[0][0] - self._now[clock]() for clock, heap in self._heaps.items() if heap]
        return min([self._tick, *waits]) if waits else inf

    async def run(self) -> None:
        """Fire what is due, for ever. A failing `fire` ends the task: it must look after its own errors."""
        while True:
            # The event is made before the heaps are read, so that an `arm` between the reading and the sleep wakes it.
            self._wake = trio.Event()
            self._asleep_until = AWAKE
            due = self._due()
            if due:
                await self._fire_all(due)
                continue
            pause = self._pause()
            self._asleep_until = {clock: now() + pause for clock, now in self._now.items()}
            with trio.move_on_after(max(pause, 0)):
                await self._wake.wait()

    async def _fire_all(self, due: list[T]) -> None:
        if len(due) == 1:
            await self._fire(due[0])
        else:
            async with trio.open_nursery() as nursery:
                for item in due:
                    nursery.start_soon(partial(self._fire, item))
        await trio.lowlevel.checkpoint()
