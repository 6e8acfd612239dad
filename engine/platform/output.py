"""What an instance wrote: its log's file, a piece at a time, and one look at it however many follow it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from itertools import islice
from pathlib import Path

import trio

LOOK = 0.25
"""Seconds between two looks at a log that is followed: it may lie on a file system that tells nobody of a change."""

ASKED = 4
"""Looks between two questions to each follower whether it may go on."""

AT_ONCE = 16
"""Followers that are asked or woken in one turn of the event loop: a thousand at once would hold up everybody."""

CHUNK = 65536


class Waiting:
    """A follower that has read all there is. `over` is asked now and then, and must be quick, as `may_grow` must."""

    __slots__ = ("may_grow", "over", "position", "task")

    def __init__(self, position: int, may_grow: Callable[[], bool], over: Callable[[], bool]) -> None:
        self.position, self.may_grow, self.over = position, may_grow, over
        self.task = trio.lowlevel.current_task()


class Tail:
    """The end of one log: its size at the last look, those who wait there, and the piece that was read last."""

    __slots__ = ("path", "piece", "size", "waiting")

    def __init__(self, path: Path) -> None:
        self.path, self.size = path, 0
        self.waiting: dict[Waiting, None] = {}
        self.piece: tuple[int, int, bytes] = (0, 0, b"")

    def read(self, position: int) -> bytes:
        """What is behind `position`, read once for all who ask between two looks."""
        if self.piece[:2] != (position, self.size):
            self.piece = (position, self.size, read(self.path, position))
        return self.piece[2]


class Tails:
    """The logs that are followed. Without `run` nobody hears of news."""

    def __init__(self) -> None:
        self._tails: dict[Path, Tail] = {}
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
        tail.size = size(tail.path)
        everybody = iter(list(tail.waiting))
        while some := list(islice(everybody, AT_ONCE if ask else 16 * AT_ONCE)):
            woken = 0
            for one in some:
                if one.position == tail.size and one.may_grow() and not (ask and one.over()):
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

    async def news(self, path: Path, position: int, may_grow: Callable[[], bool], over: Callable[[], bool]) -> bytes:
        """What the log has behind `position`, once there is something; none once it may not grow, or `over` says so."""
        tail = self._tails.setdefault(path, Tail(path))
        one = Waiting(position, may_grow, over)

        def abort(_: object) -> trio.lowlevel.Abort:
            del tail.waiting[one]
            return trio.lowlevel.Abort.SUCCEEDED

        tail.waiting[one] = None
        self._followed.set()
        try:
            await trio.lowlevel.wait_task_rescheduled(abort)
            return b"" if over() else tail.read(position)
        finally:
            if not tail.waiting and self._tails.get(path) is tail:
                del self._tails[path]


async def pieces(
    path: Path, position: int, may_grow: Callable[[], bool], goes_on: Callable[[], bool] | None, tails: Tails
) -> AsyncGenerator[bytes, None]:
    """The log from `position` to where it ends now; with `goes_on`, also what comes while it may grow, and nothing once
    that is no longer true."""
    if goes_on is None:
        for piece in _until(path, position, size(path)):
            yield piece
        return
    behind = True
    while goes_on():
        last = not may_grow()  # asked first: nothing is written after an end
        if behind or last:
            piece = read(path, position)
        else:
            piece = await tails.news(path, position, may_grow, lambda: not goes_on())
        if piece:
            position += len(piece)
            yield piece
        elif last:
            return
        behind = len(piece) == CHUNK


def _until(path: Path, position: int, end: int) -> Iterator[bytes]:
    while piece := read(path, position, min(CHUNK, end - position)):
        position += len(piece)
        yield piece


def read(path: Path, position: int, most: int = CHUNK) -> bytes:
    """What is there; nothing where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(position)
            return file.read(max(most, 0))
    except OSError:
        return b""


def size(path: Path) -> int:
    """Its bytes now."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
