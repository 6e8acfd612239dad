"""The only source of time: elapsed seconds for windows, epoch seconds for tokens, both from one place."""

from __future__ import annotations

import time
from functools import partial
from typing import Protocol

import trio


class Clock(Protocol):
    """Seconds of two kinds; `engine.runtime.timers` turns them into trio's sleeps."""

    def elapsed(self) -> float:
        """Seconds that never jump and count suspended time."""

    def wall(self) -> float:
        """Seconds since the epoch; may be set back or forward by an administrator."""


class SystemClock:
    """The host's clocks. `CLOCK_BOOTTIME` goes on while the host sleeps; trio's own clock does not (trio#1586).

    They are read a dozen times a sign-in, so no function of ours stands before the host's.
    """

    elapsed = staticmethod(partial(time.clock_gettime, time.CLOCK_BOOTTIME))
    wall = staticmethod(time.time)


class TrioClock:
    """Trio's own time, so that a mock clock moves windows and tokens together. `skew` moves the wall clock alone."""

    def __init__(self, epoch: float = 1_800_000_000.0) -> None:
        self.epoch = epoch
        self.skew = 0.0

    def elapsed(self) -> float:
        return trio.current_time()

    def wall(self) -> float:
        return self.epoch + trio.current_time() + self.skew
