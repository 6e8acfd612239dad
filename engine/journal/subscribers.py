"""Who reads the journal as it grows. Subscribers are woken few at a time, so that nothing else waits for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Protocol

import trio

from hatchway.engine.journal.files import RecordLine

GATHER_PAUSE = 0.02
"""Seconds from a record to the waking of subscribers: the records of one sign-in gather, and go out after its
response."""

TOLD_AT_ONCE = 4
"""Subscribers woken in one event-loop tick. Two thousand at once would hold a sign-in up until all are served."""

LOOK_INTERVAL = 0.5
"""Seconds between two calls of each subscriber's `look`."""

ASKED_AT_ONCE = 32


class SubscriberDropped(Exception):
    """The subscriber read more slowly than records came. It may subscribe anew behind the last record it has."""


class RecordSource(Protocol):
    """The journal, as subscribers see it."""

    last_seq: int

    def remembers(self, after: int) -> bool:
        """Whether every record after number `after` is still in memory."""

    def recent(self, after: int) -> list[RecordLine]:
        """The records after number `after` that are in memory."""

    def older(self, after: int) -> Iterator[list[RecordLine]]:
        """The records after number `after` that are in the files, a piece at a time."""


class Subscribers:
    """All subscribers of one journal. Without `run` none is woken."""

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
            await trio.sleep(GATHER_PAUSE)
            self._news = trio.Event()
            behind = iter([one for one in self._waiting if one.after < self._log.last_seq])
            while some := list(islice(behind, TOLD_AT_ONCE)):
                for subscriber in some:
                    self._wake(subscriber)
                await trio.lowlevel.checkpoint()

    async def _look(self) -> None:
        while True:
            await self._joined.wait()  # nobody is asked while nobody follows
            await trio.sleep(LOOK_INTERVAL)
            everybody = iter(list(self._all))
            while some := list(islice(everybody, ASKED_AT_ONCE)):
                for subscriber in some:
                    if subscriber.look is not None and subscriber.look():
                        self._wake(subscriber)
                await trio.lowlevel.checkpoint()
            if not self._all:
                self._joined = trio.Event()

    def _wake(self, subscriber: Subscriber) -> None:
        task = self._waiting.pop(subscriber, None)
        if task is not None:
            trio.lowlevel.reschedule(task)

    def join(self, subscriber: Subscriber) -> None:
        """Have the subscriber's `look` called from now on."""
        self._all[subscriber] = None
        self._joined.set()

    def leave(self, subscriber: Subscriber) -> None:
        """The reverse of `join`. Raises KeyError for one that has not joined."""
        del self._all[subscriber]

    async def wait(self, subscriber: Subscriber) -> None:
        """Wait until there is a new record, or the subscriber's `look` has returned True."""

        def abort(_: object) -> trio.lowlevel.Abort:
            del self._waiting[subscriber]
            return trio.lowlevel.Abort.SUCCEEDED

        self._waiting[subscriber] = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(abort)


class Subscriber:
    """Reads the journal from a record number on: first the files, then what comes. Use as a context manager.

    `look` is called twice a second and must be quick: it says whether `read` is to return though there may be no
    record.
    """

    __slots__ = ("_live", "_log", "_older", "_subscribers", "after", "look")

    def __init__(
        self, log: RecordSource, subscribers: Subscribers, after: int, look: Callable[[], bool] | None
    ) -> None:
        self._log, self._subscribers, self.after, self.look = log, subscribers, after, look
        self._older: Iterator[list[RecordLine]] | None = None
        self._live = False

    def __enter__(self) -> Subscriber:
        self._subscribers.join(self)
        return self

    def __exit__(self, *error: object) -> None:
        self._subscribers.leave(self)

    async def read(self) -> list[RecordLine]:
        """The next records; none where `look` ended the wait. Records that the journal no longer has are left out.

        Raises SubscriberDropped, once the files were read and memory has moved on.
        """
        lines = self._next()
        if not lines:
            await self._subscribers.wait(self)
            lines = self._next()
        if lines:
            self.after = lines[-1].seq
        return lines

    def _next(self) -> list[RecordLine]:
        if not self._log.remembers(self.after):
            if self._live:
                raise SubscriberDropped
            for _ in range(2):  # a first reading of the files may lack records that were written meanwhile
                self._older = self._older or self._log.older(self.after)
                if lines := next(self._older, None):
                    return lines
                self._older = None
        self._live, self._older = True, None
        return self._log.recent(self.after)
