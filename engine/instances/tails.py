"""The ends of the logs that are followed: one look at each log, however many follow it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import trio

from hatchway.engine.instances import output

LOOK = 0.25
"""Seconds between two looks at a log that is followed: it may lie on a file system that tells nobody of a change."""

ASKED = 4
"""Looks between two questions to each follower whether it may go on."""

AT_ONCE = 16
"""Followers that are asked or woken in one turn of the event loop: a thousand at once would hold up everybody."""


class LogFile(NamedTuple):
    """A log by its file, and where in it the instance's own output begins. Positions count from there."""

    path: Path
    begin: int


class Waiting:
    """A follower that has read all there is. `over` is asked now and then, and must be quick, as `may_grow` must."""

    __slots__ = ("may_grow", "over", "position", "task")

    def __init__(self, position: int, may_grow: Callable[[], bool], over: Callable[[], bool]) -> None:
        self.position, self.may_grow, self.over = position, may_grow, over
        self.task = trio.lowlevel.current_task()


class Tail:
    """The end of one log: how much was written at the last look, those who wait there, and the piece read last."""

    __slots__ = ("end", "log", "piece", "waiting")

    def __init__(self, log: LogFile) -> None:
        self.log, self.end = log, 0
        self.waiting: dict[Waiting, None] = {}
        self.piece: tuple[int, int, tuple[bytes, int]] = (-1, 0, (b"", 0))

    def read(self, position: int) -> tuple[bytes, int]:
        """As `output.piece`, read once for all who ask between two looks."""
        if self.piece[:2] != (position, self.end):
            self.piece = (position, self.end, output.piece(*self.log, position, output.CHUNK))
        return self.piece[2]


class Tails:
    """The logs that are followed. Without `run` nobody hears of news."""

    def __init__(self) -> None:
        self._tails: dict[LogFile, Tail] = {}
        self._followed = trio.Event()

    async def run(self) -> None:
        """Look at the followed logs, for ever; at none while none is followed."""
        looks = 0
        while True:
            await self._followed.wait()
            await trio.sleep(LOOK)
            looks += 1
            for tail in list(self._tails.values()):
                await self._look(tail, ask=looks % ASKED == 0)
            if not self._tails:
                self._followed = trio.Event()

    async def _look(self, tail: Tail, *, ask: bool) -> None:
        tail.end = output.end(*tail.log)
        everybody = iter(list(tail.waiting))
        while some := list(islice(everybody, AT_ONCE if ask else 16 * AT_ONCE)):
            woken = 0
            for one in some:
                if one.position == tail.end and one.may_grow() and not (ask and one.over()):
                    continue
                if self._wake(tail, one):
                    woken += 1
                    if woken % AT_ONCE == 0:
                        await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()

    @staticmethod
    def _wake(tail: Tail, one: Waiting) -> bool:
        if one not in tail.waiting:
            return False  # it has left meanwhile
        del tail.waiting[one]
        trio.lowlevel.reschedule(one.task)
        return True

    async def news(
        self, log: LogFile, position: int, may_grow: Callable[[], bool], over: Callable[[], bool]
    ) -> tuple[bytes, int]:
        """As `output.piece`, once there is something behind `position`; nothing once it may not grow, or `over` says
        so."""
        tail = self._tails.setdefault(log, Tail(log))
        one = Waiting(position, may_grow, over)

        def abort(_: object) -> trio.lowlevel.Abort:
            del tail.waiting[one]
            return trio.lowlevel.Abort.SUCCEEDED

        tail.waiting[one] = None
        self._followed.set()
        try:
            await trio.lowlevel.wait_task_rescheduled(abort)
            return (b"", position) if over() else tail.read(position)
        finally:
            if not tail.waiting and self._tails.get(log) is tail:
                del self._tails[log]


async def pieces(
    log: LogFile, may_grow: Callable[[], bool], goes_on: Callable[[], bool] | None, tails: Tails
) -> AsyncGenerator[bytes, None]:
    """The log to where it ends now; with `goes_on`, also what comes while it may grow, and
    nothing once that is no longer true. Where something is left out a line says how much."""

    def over() -> bool:
        return goes_on is not None and not goes_on()

    position, behind = 0, True
    until = output.end(*log) if goes_on is None else None
    while not over():
        last = goes_on is None or not may_grow()  # asked first: nothing is written after an end
        most = output.CHUNK if until is None else min(output.CHUNK, until - position)
        if behind or last:
            chunk, position = output.piece(*log, position, most)
        else:
            chunk, position = await tails.news(log, position, may_grow, over)
        if chunk:
            yield chunk
        elif last:
            return
        behind = len(chunk) == output.CHUNK
