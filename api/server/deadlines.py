"""Every deadline of every connection, kept by one task: a queue a kind; first in, first due (HTTP manners)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from enum import Enum, auto
from typing import Protocol

import trio

TICK = 1.0
"""Seconds the sweeper sleeps at most; a reload's shorter limit is seen then. A longer one ends on time."""

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
    """Room for an answer: the client takes nothing of it."""


class Expiring(Protocol):
    """Who waits: a connection, or a stream of one."""

    def expire(self, kind: WaitKind) -> None:
        """The wait is over; called once, by the sweeper, which waits for nobody."""


class Queue:
    """Those that wait for one kind of thing. All have the same time, so the order of entry is the order of the ends."""

    def __init__(self, kind: WaitKind, seconds: Callable[[], float]) -> None:
        self.kind, self.seconds = kind, seconds
        self._since: dict[Expiring, float] = {}

    def enter(self, who: Expiring) -> None:
        """The wait begins now, again if it had begun."""
        self._since.pop(who, None)
        self._since[who] = trio.current_time()

    def remain(self, who: Expiring) -> None:
        """The wait begins now, unless it had begun: then it goes on."""
        if who not in self._since:
            self.enter(who)

    def waiting(self) -> Iterator[Expiring]:
        """Those that wait, the longest first."""
        return iter(self._since)

    def renew(self, who: Expiring) -> None:
        """The wait begins anew, if there is one."""
        if who in self._since:
            self.enter(who)

    def leave(self, who: Expiring) -> None:
        """What was waited for has come."""
        self._since.pop(who, None)

    def expire(self, now: float) -> float:
        """End every wait that is over; the time when the next one will be, or infinity."""
        seconds = self.seconds()
        while self._since:
            who, since = next(iter(self._since.items()))
            if since + seconds > now:
                return since + seconds
            del self._since[who]
            try:
                who.expire(self.kind)
            except Exception:
                LOG.exception("a deadline ended in an error of ours")  # the others' deadlines go on
        return float("inf")


async def sweep(
    queues: tuple[Queue, ...],
    refresh: Callable[[], None],
    sleep_until: Callable[[float], Awaitable[None]] = trio.sleep_until,
) -> None:
    """End what is due, for ever. One such task stands beside the connections, instead of a timer in each.

    `sleep_until` is another where time does not go on by itself.
    """
    while True:
        refresh()
        now = trio.current_time()
        due = min(queue.expire(now) for queue in queues)
        await sleep_until(min(due, now + TICK))
