"""The only source of time: elapsed seconds for windows, epoch seconds for tokens, both from one place."""

from __future__ import annotations

import calendar
import time
from functools import partial
from typing import Protocol

import trio

TICK = 2.0
"""Seconds at most between two looks at a clock that may jump untold: a host that slept, or a wall clock that was set,
shows only when it is looked at (trio's own clock stops with the host)."""


class Clock(Protocol):
    """Seconds of two kinds; `engine.runtime.timers` turns them into trio's sleeps. `tick`: `TICK`, or infinity for a
    clock whose jumps are told (`Timers.look_anew`)."""

    tick: float

    def elapsed(self) -> float:
        """Seconds that never jump and count suspended time."""

    def wall(self) -> float:
        """Seconds since the epoch; may be set back or forward by an administrator."""


class SystemClock:
    """The host's clocks. `CLOCK_BOOTTIME` goes on while the host sleeps; trio's own clock does not (trio#1586).

    They are read a dozen times a sign-in, so no function of ours stands before the host's.
    """

    tick = TICK

    elapsed = staticmethod(partial(time.clock_gettime, time.CLOCK_BOOTTIME))
    wall = staticmethod(time.time)

    def pause(self, seconds: float) -> None:
        """Stop this thread for so long: for waits too short to hand a thread's work to another."""
        time.sleep(seconds)


SYSTEM_CLOCK = SystemClock()
"""For what is used outside of trio too, as the files of keys are by commands."""


class BlockingClock(Protocol):
    """The time of files, and a wait for whoever is writing one."""

    def wall(self) -> float:
        """Seconds since the epoch."""

    def pause(self, seconds: float) -> None:
        """Stop this thread for so long."""


def epoch_of(moment: tuple[int, int, int, int, int, int], *, utc: bool) -> int | None:
    """The epoch second of a year, month, day, hour, minute and second: UTC's, or those of this host's zone without
    daylight saving. None where there is no such time."""
    year, month, day, hour, minute, second = moment
    if not (year >= 1970 and 1 <= month <= 12 and 1 <= day <= calendar.monthrange(year, month)[1]):
        return None
    if hour > 23 or minute > 59 or second > 59:
        return None
    if utc:
        return calendar.timegm(moment)
    try:
        return int(time.mktime((*moment, 0, 0, 0)))
    except (OverflowError, ValueError):
        return None


class TrioClock:
    """Trio's own time, so that a mock clock moves windows and tokens together. `skew` moves the wall clock alone."""

    def __init__(self, epoch: float = 1_800_000_000.0, tick: float = TICK) -> None:
        self.epoch, self.tick = epoch, tick
        self.skew = 0.0

    def elapsed(self) -> float:
        return trio.current_time()

    def wall(self) -> float:
        return self.epoch + trio.current_time() + self.skew
