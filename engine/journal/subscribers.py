"""Those who follow the journal: told of news together, in turns so short that nobody else waits for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Protocol

import trio

from hatchway.engine.journal.files import RecordLine

GATHERED = 0.02
"""Seconds between the first news and the telling: the records of one sign-in are told together, once it is answered."""

TOLD_AT_ONCE = 4
"""Followers woken in one turn of the event loop. Two thousand at once would hold a sign-in up until all are served."""

LOOKED = 1.0
"""Seconds between two questions to each follower whether it has something to do although there is no news."""

ASKED_AT_ONCE = 32


class SubscriberDropped(Exception):
    """The follower read more slowly than records came. It may come back and go on from the last it saw."""


class RecordSource(Protocol):
    """The journal, as followers see it."""

    last_seq: int

    def remembers(self, after: int) -> bool:
        """Whether every record after number `after` is still in memory."""

    def recent(self, after: int) -> list[RecordLine]:
        """The records after number `after` that are in memory."""

    def older(self, after: int) -> Iterator[list[RecordLine]]:
        """The records after number `after` that are in the files, a piece at a time."""


class Subscribers:
    """Everybody's place in one journal. Without `run` nobody is woken."""

    def __init__(self, log: RecordSource) -> None:
        self._log = log
        self._all: dict[Subscriber, None] = {}
        self._waiting: dict[Subscriber, trio.lowlevel.Task] = {}
        self._news, self._joined = trio.Event(), trio.Event()

    def __len__(self) -> int:
        return len(self._all)

    def news(self) -> None:
        """There is a new record."""
        self._news.set()

    async def run(self) -> None:
        """Wake those who wait, for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell)
            nursery.start_soon(self._look)

    async def _tell(self) -> None:
        while True:
            await self._news.wait()
            await trio.sleep(GATHERED)
            self._news = trio.Event()
            behind = iter([one for one in self._waiting if one.after < self._log.last_seq])
            while some := list(islice(behind, TOLD_AT_ONCE)):
                for follower in some:
                    self._wake(follower)
                await trio.lowlevel.checkpoint()

    async def _look(self) -> None:
        while True:
            await self._joined.wait()  # nobody is asked while nobody follows
            await trio.sleep(LOOKED)
            everybody = iter(list(self._all))
            while some := list(islice(everybody, ASKED_AT_ONCE)):
                for follower in some:
                    if follower.look is not None and follower.look():
                        self._wake(follower)
                await trio.lowlevel.checkpoint()
            if not self._all:
                self._joined = trio.Event()

    def _wake(self, follower: Subscriber) -> None:
        task = self._waiting.pop(follower, None)
        if task is not None:
            trio.lowlevel.reschedule(task)

    def join(self, follower: Subscriber) -> None:
        """From now on its `look` is asked whether there is news for it."""
        self._all[follower] = None
        self._joined.set()

    def leave(self, follower: Subscriber) -> None:
        """Raises KeyError for one that has not joined."""
        del self._all[follower]

    async def wait(self, follower: Subscriber) -> None:
        """Until there is news, or the follower's `look` has said yes."""

        def abort(_: object) -> trio.lowlevel.Abort:
            del self._waiting[follower]
            return trio.lowlevel.Abort.SUCCEEDED

        self._waiting[follower] = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(abort)


class Subscriber:
    """Somebody's place in the journal: first what the files hold, then what comes. Use as a context manager.

    `look` is asked once a second, and must be quick: whether `read` should return although there may be no news.
    """

    __slots__ = ("_followers", "_live", "_log", "_older", "after", "look")

    def __init__(self, log: RecordSource, followers: Subscribers, after: int, look: Callable[[], bool] | None) -> None:
        self._log, self._followers, self.after, self.look = log, followers, after, look
        self._older: Iterator[list[RecordLine]] | None = None
        self._live = False

    def __enter__(self) -> Subscriber:
        self._followers.join(self)
        return self

    def __exit__(self, *error: object) -> None:
        self._followers.leave(self)

    async def read(self) -> list[RecordLine]:
        """The next records; none where `look` ended the wait. Where the log no longer reaches, the oldest there are.

        Raises SubscriberDropped, once the files were read and memory has moved on.
        """
        lines = self._next()
        if not lines:
            await self._followers.wait(self)
            lines = self._next()
        if lines:
            self.after = lines[-1].seq
        return lines

    def _next(self) -> list[RecordLine]:
        if not self._log.remembers(self.after):
            if self._live:
                raise SubscriberDropped
            for _ in range(2):  # what was written while we read, or never written, is not in the first
                self._older = self._older or self._log.older(self.after)
                if lines := next(self._older, None):
                    return lines
                self._older = None
        self._live, self._older = True, None
        return self._log.recent(self.after)
