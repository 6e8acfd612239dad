"""Logs that are followed: each is looked at once, however many clients follow it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import trio

from hatchway.engine.instances import output

LOOK_INTERVAL = 0.25
"""Seconds between two looks at a followed log. (It may lie on a file system without notifications.)"""

ASKED = 2
"""Looks between two calls of each reader's `over`."""

AT_ONCE = 16
"""Readers that are asked or woken in one event-loop tick. A thousand at once would hold up everything else."""


class LogFile(NamedTuple):
    """A log's file, and the offset in it at which the instance's own output begins. Positions count from there."""

    path: Path
    begin: int


class Waiting:
    """A reader that has read all there is. `over` and `may_grow` are called now and then, and must be quick."""

    __slots__ = ("may_grow", "over", "position", "task")

    def __init__(self, position: int, may_grow: Callable[[], bool], over: Callable[[], bool]) -> None:
        self.position, self.may_grow, self.over = position, may_grow, over
        self.task = trio.lowlevel.current_task()


class Tail:
    """The end of one log: how much was written at the last look, the readers that wait there, the piece read last."""

    __slots__ = ("end", "log", "piece", "waiting")

    def __init__(self, log: LogFile) -> None:
        self.log, self.end = log, 0
        self.waiting: dict[Waiting, None] = {}
        self.piece: tuple[int, int, tuple[bytes, int]] = (-1, 0, (b"", 0))

    def read(self, position: int) -> tuple[bytes, int]:
        """As `output.piece`, read once for all readers that ask between two looks."""
        if self.piece[:2] != (position, self.end):
            self.piece = (position, self.end, output.piece(*self.log, position, output.CHUNK))
        return self.piece[2]


class Tails:
    """All followed logs. Without `run` no reader is woken."""

    def __init__(self) -> None:
        self._tails: dict[LogFile, Tail] = {}
        self._followed = trio.Event()

    async def run(self) -> None:
        """Look at the followed logs, for ever."""
        looks = 0
        while True:
            await self._followed.wait()
            await trio.sleep(LOOK_INTERVAL)
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
            return False  # the reader has left meanwhile
        del tail.waiting[one]
        trio.lowlevel.reschedule(one.task)
        return True

    async def news(
        self, log: LogFile, position: int, may_grow: Callable[[], bool], over: Callable[[], bool]
    ) -> tuple[bytes, int]:
        """As `output.piece`, once something is written behind `position`. Returns nothing once `may_grow()` is false or
        `over()` true."""
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
    """The log up to its present end. With `goes_on` also what is written while `may_grow()` is true, until `goes_on()`
    is false. Where something was not kept, a line says how much."""

    def over() -> bool:
        return goes_on is not None and not goes_on()

    position, behind = 0, True
    until = output.end(*log) if goes_on is None else None
    while not over():
        last = goes_on is None or not may_grow()  # asked before the reading: after an end nothing is written
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
