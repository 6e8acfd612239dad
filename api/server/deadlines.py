"""All deadlines of all connections, kept by one task: a queue for each kind, in which who is first in is first due."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from enum import Enum, auto
from typing import Protocol

import trio

LONGEST_SLEEP = 1.0
"""Seconds that the sweeper sleeps at most, so that it sees a limit that a reload has shortened. Deadlines are exact."""

LOG = logging.getLogger("hatchway.server")


class WaitKind(Enum):
    """What is waited for."""

    IDLE = auto()
    """The next request's first byte."""
    HEAD = auto()
    """The rest of a request's head."""
    BODY = auto()
    """The rest of a request's body."""
    WRITE = auto()
    """Room for a response: the client reads nothing."""


class Expiring(Protocol):
    """What has a deadline: a connection, or a stream of one."""

    def expire(self, kind: WaitKind) -> None:
        """The deadline is over. The sweeper calls this once for each wait; it must not wait."""


class Queue:
    """Deadlines of one kind. All have the same time, so they end in the order in which they began."""

    def __init__(self, kind: WaitKind, seconds: Callable[[], float]) -> None:
        self.kind, self.seconds = kind, seconds
        self._since: dict[Expiring, float] = {}

    def enter(self, who: Expiring) -> None:
        """Begin the wait, or begin it anew."""
        self._since.pop(who, None)
        self._since[who] = trio.current_time()

    def remain(self, who: Expiring) -> None:
        """Begin the wait, unless it has begun."""
        if who not in self._since:
            self.enter(who)

    def waiting(self) -> Iterator[Expiring]:
        """Those that wait, the longest first."""
        return iter(self._since)

    def renew(self, who: Expiring) -> None:
        """Begin the wait anew, where there is one."""
        if who in self._since:
            self.enter(who)

    def leave(self, who: Expiring) -> None:
        """End the wait, since what was waited for has come."""
        self._since.pop(who, None)

    def expire(self, now: float) -> float:
        """Expire every wait that is over. Returns the time at which the next one will be, or infinity."""
        seconds = self.seconds()
        while self._since:
            who, since = next(iter(self._since.items()))
            if since + seconds > now:
                return since + seconds
            del self._since[who]
            try:
                who.expire(self.kind)
            except Exception:
                LOG.exception("a deadline ended in an error of ours")  # all other deadlines go on
        return float("inf")


async def sweep(
    queues: tuple[Queue, ...],
    refresh: Callable[[], None],
    sleep_until: Callable[[float], Awaitable[None]] = trio.sleep_until,
) -> None:
    """Expire what is due, for ever. One such task serves all connections, in place of a timer in each.

    `sleep_until` is another function where time does not go on by itself.
    """
    while True:
        refresh()
        now = trio.current_time()
        due = min(queue.expire(now) for queue in queues)
        await sleep_until(min(due, now + LONGEST_SLEEP))
