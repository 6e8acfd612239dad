"""What all connections of a server share: limits, deadlines, the Date header, the gateway, and whether it is ending."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from typing import Protocol

import trio

from hatchway.api.server.deadlines import Expiring, Queue, WaitKind
from hatchway.api.server.places import Occupant, Places
from hatchway.api.server.plain_requests import FastPath
from hatchway.api.server.starts import Starts
from hatchway.engine.base.clock import Clock
from hatchway.engine.base.ticks import loop_ticks

BODY_GRACE = 0.5
"""Seconds that are added to the body's deadline: an app that keeps the same deadline is first, with a better response
than the server's bare 408."""

LEAST_RATE = 256
"""Bytes a second that a client must read of a response that waits for it, on average over `write_seconds`."""


ANSWERED_FOR_EACH = 4
"""Connections answered in one tick for each that may begin in the next."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The limits of a server. It asks for them at each use, by a callable, so that a reload takes effect."""

    header_bytes: int = 16 * 1024
    """A request's head, from its first byte to the blank line, both included."""
    header_seconds: float = 10.0
    body_seconds: float = 15.0
    idle_seconds: float = 60.0
    write_seconds: float = 30.0
    max_connections: int = 4096
    shutdown_seconds: float = 5.0
    """The time that responses have to end, once the engine is ending."""


Headers = tuple[tuple[bytes, bytes], ...]


class Member(Expiring, Occupant, Protocol):
    """A connection, as those see it that may end it."""

    places: Places

    def stop(self) -> None:
        """The engine is ending: close as soon as no response is under way."""

    def cancel(self) -> None:
        """Cancel what is still being answered."""

    def cut(self) -> None:
        """Drop the connection, whatever it still has to say."""


class Context:
    """What all connections of one server share."""

    def __init__(
        self, limits: Callable[[], ServerLimits], fast_path: FastPath | None, clock: Clock, headers: Headers = ()
    ) -> None:
        """`headers` are those of every response of the app, or of the server itself, beside the date."""
        self.limits, self.fast_path = limits, fast_path
        self.idle = Queue(WaitKind.IDLE, lambda: limits().idle_seconds)
        self.head = Queue(WaitKind.HEAD, lambda: limits().header_seconds)
        self.body = Queue(WaitKind.BODY, lambda: limits().body_seconds + BODY_GRACE)
        self.write = Queue(WaitKind.WRITE, lambda: limits().write_seconds)
        self.ticks, self.trio_token = loop_ticks(), trio.lowlevel.current_trio_token()
        """What puts writes off to the end of a tick, and what wakes tasks from there."""
        self.starts = Starts(self.ticks)
        # Unix sockets are counted by themselves, so that no flood over the network keeps this host's own clients out.
        self._places, self._local_places = Places((self.idle, self.head)), Places((self.idle, self.head))
        self.stopping = False
        self.connections: set[Member] = set()
        self._emptied = trio.Event()
        self._clock, self._headers = clock, headers
        self.refresh()

    def refresh(self) -> None:
        """Renew limits and date; the sweeper calls this each second."""
        self.header_bytes = self.limits().header_bytes
        self.date = b"date", formatdate(self._clock.wall(), usegmt=True).encode("ascii")
        """The Date header of responses (RFC 9110, 6.6.1)."""
        self.headers: Headers = (self.date, *self._headers)

    @property
    def least_taken(self) -> int:
        """Bytes of a response that a client must read in `write_seconds`."""
        return int(LEAST_RATE * self.write.seconds())

    def may_begin(self, least: int) -> int:
        """How many connections may be taken in this tick: `least`, or more where the tick before was a long one.

        A tick that answers a thousand clients takes 25 ms. At four new ones in each, the last of a thousand that come
        at once would wait for seconds. A quarter of those that were answered makes a tick twice as long at most.
        """
        return max(least, self.ticks.left // ANSWERED_FOR_EACH)

    def places(self, family: int) -> Places:
        """Where connections of a socket of this family are counted."""
        return self._local_places if family == socket.AF_UNIX else self._places

    @property
    def queues(self) -> tuple[Queue, ...]:
        """All of them, for the sweeper."""
        return (self.idle, self.head, self.body, self.write)

    def join(self, connection: Member) -> None:
        """A connection begins."""
        self.connections.add(connection)
        connection.places.join(connection)

    def leave(self, connection: Member) -> None:
        """A connection is over: it has no deadline any more, and does not count."""
        self.connections.discard(connection)
        connection.places.leave(connection)
        for queue in self.queues:
            queue.leave(connection)
        if not self.connections:
            self._emptied.set()
            self._emptied = trio.Event()

    def stop(self) -> None:
        """The engine is ending: end idle connections at once, the others with their response."""
        self.stopping = True
        for connection in list(self.connections):
            connection.stop()

    async def wait_empty(self) -> None:
        """Wait until no connection is left."""
        while self.connections:
            await self._emptied.wait()
