"""Time that stands still until a test moves it: the engine's clock and trio's own, together."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hatchway.engine.base.clock import SystemClock, TrioClock


class HeldClock(TrioClock):
    """The clock of an engine under test: the host's time when it was made, and from there on trio's alone."""

    def __init__(self) -> None:
        super().__init__(float(int(SystemClock().wall())), tick=math.inf)

    def set_off(self, seconds: float) -> None:
        """Have the wall clock be wrong by so many seconds from now on."""
        self.skew = seconds


class HeldTime:
    """Moves the time of a run of trio whose clock is a `MockClock`. Everything that waits in that run is moved by it,
    the test's own tasks as well as the engine's."""

    def __init__(self) -> None:
        """Raises TypeError where the run's clock is another."""
        clock = trio.lowlevel.current_clock()
        if not isinstance(clock, MockClock):
            raise TypeError("time can only be held where trio runs with a trio.testing.MockClock as its clock")
        self._clock = clock
        self._turn = trio.Lock()
        self._moved = trio.Event()

    async def advance(self, seconds: float) -> None:
        """Let so many seconds pass, one thing that is due after the other, each at its own time.

        Returns when all that was due has happened. Nothing waits for what other processes do meanwhile.
        """
        async with self._turn:
            before, self._clock.autojump_threshold = self._clock.autojump_threshold, 0
            try:
                await trio.sleep(seconds)
            finally:
                self._clock.autojump_threshold = before
            self.moved()
            await wait_all_tasks_blocked()

    def run(self, speed: float) -> None:
        """Let time go on by itself, `speed` seconds of it in a second of the host's; 0 has it stand again."""
        self._clock.rate = speed
        self.moved()

    def moved(self) -> None:
        """The clock was set: wake the tasks in `sleep_until`."""
        self._moved.set()
        self._moved = trio.Event()

    async def sleep_until(self, deadline: float) -> None:
        """Wait until the clock has moved, or, where it goes on by itself, until `deadline` at the latest. Tasks that
        look at the clock now and then sleep so: to advance by a day would else wake them for each look."""
        with trio.move_on_at(deadline if self._clock.rate else math.inf):
            await self._moved.wait()

    def flee(self) -> None:
        """Let time jump from here on, so that nothing waits at the end of a run."""
        self._clock.autojump_threshold = 0


def run_held(main: Callable[..., Awaitable[Any]], **options: Any) -> Any:
    """`trio.run` under a clock that stands until it is told to go on, unless `options` bring a clock."""
    return trio.run(main, **(options | {"clock": options.get("clock") or MockClock()}))


def run_in_virtual_time(main: Callable[..., Awaitable[Any]], **options: Any) -> Any:
    """`trio.run` under a clock that jumps to the next deadline as soon as everybody waits."""
    return trio.run(main, **(options | {"clock": MockClock(autojump_threshold=0)}))


async def jump(seconds: float) -> None:
    """Set virtual time forward in one step, over all deadlines in between."""
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, MockClock)
    clock.jump(seconds)
    await wait_all_tasks_blocked()
