"""What all connections of one server share: limits, deadlines, the date header, the lane, and whether it is ending."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from typing import Protocol

import trio
from hypercorn.config import Config
from hypercorn.trio.worker_context import EventWrapper, WorkerContext
from hypercorn.typing import Event

from hatchway.api.server.deadlines import Expiring, Queue, WaitKind
from hatchway.api.server.lane import Lane
from hatchway.api.server.places import Occupant, Places
from hatchway.api.server.starts import Starts
from hatchway.engine.base.clock import Clock
from hatchway.engine.base.ticks import loop_ticks

BODY_GRACE = 0.5
"""Seconds by which an app that keeps the body's time itself is first, with a better answer than our bare 408."""

LEAST_RATE = 256
"""Bytes a second that a client must take of an answer that waits for it, on average over `write_seconds`."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """HTTP manners in figures. They are asked for through a callable, at each use, so that a reload takes effect."""

    header_bytes: int = 16 * 1024
    """A request's head, from its first byte to the blank line, both included."""
    header_seconds: float = 10.0
    body_seconds: float = 15.0
    idle_seconds: float = 60.0
    write_seconds: float = 30.0
    max_connections: int = 4096
    shutdown_seconds: float = 5.0
    """What a held answer has for its last item, once the engine is ending."""
    look_seconds: float = 1.0
    """The longest sleep of the task that keeps the deadlines: a reload's shorter limit is seen then."""


Headers = tuple[tuple[bytes, bytes], ...]


class ServerConfig(Config):
    """Hypercorn's settings. It logs nothing itself, keeps no count of requests, and names no server."""

    accesslog = None
    errorlog = None
    keep_alive_max_requests = 2**62
    h2_max_concurrent_streams = 32  # the console asks for as many files at once; each costs a task while it waits

    def __init__(self, limits: Callable[[], ServerLimits], clock: Clock, always: Headers = ()) -> None:
        """`always` are headers of every answer beside the date."""
        self._limits, self._clock, self._always = limits, clock, always
        self._second, self._headers = -1, [(b"date", b"")]

    @property
    def h11_max_incomplete_size(self) -> int:  # type: ignore[override]
        """h11's limit on a head that isn't whole; a whole one is counted by `api.server.h1`."""
        return self._limits().header_bytes

    def response_headers(self, protocol: str) -> list[tuple[bytes, bytes]]:
        """`date`, made once a second (RFC 9110, 6.6.1), and what every answer has beside it."""
        second = int(self._clock.wall())
        if second != self._second:
            self._second = second
            self._headers = [(b"date", formatdate(second, usegmt=True).encode("ascii")), *self._always]
        return self._headers


class Member(Expiring, Occupant, Protocol):
    """A connection, as those that end it see it."""

    places: Places

    def stop(self) -> None:
        """The engine is ending: close as soon as nothing is being answered."""

    def cancel(self) -> None:
        """Cancel what is still being answered."""

    def cut(self) -> None:
        """Drop the connection, whatever it still has to say."""


class Flag(EventWrapper):
    """Hypercorn's event, made of trio's only when somebody waits: each connection has one that nobody waits for."""

    def __init__(self) -> None:
        self._set = False
        self._waited: trio.Event | None = None

    async def clear(self) -> None:
        """Not any more."""
        self._set = False

    async def wait(self) -> None:
        """Until it is set; not at all, if it is."""
        if not self._set:
            if self._waited is None:
                self._waited = trio.Event()
            await self._waited.wait()

    async def set(self) -> None:
        """Now, until cleared."""
        self._set = True
        if self._waited is not None:
            self._waited.set()
            self._waited = None

    def is_set(self) -> bool:
        """Whether it was set, and not cleared since."""
        return self._set


class Context(WorkerContext):
    """Handed to every connection in the place of Hypercorn's own."""

    event_class: type[Event] = Flag

    def __init__(self, limits: Callable[[], ServerLimits], lane: Lane | None) -> None:
        super().__init__(max_requests=None)
        self.limits, self.lane = limits, lane
        self.header_bytes = limits().header_bytes
        self.idle = Queue(WaitKind.IDLE, lambda: limits().idle_seconds)
        self.head = Queue(WaitKind.HEAD, lambda: limits().header_seconds)
        self.body = Queue(WaitKind.BODY, lambda: limits().body_seconds + BODY_GRACE)
        self.write = Queue(WaitKind.WRITE, lambda: limits().write_seconds)
        self.ticks, self.token = loop_ticks(), trio.lowlevel.current_trio_token()
        self.starts = Starts()
        # Local sockets have places of their own: whoever fills the others can't keep this host out.
        self._places, self._local_places = Places((self.idle, self.head)), Places((self.idle, self.head))
        self.stopping = False
        self.connections: set[Member] = set()
        self._emptied = trio.Event()

    def refresh(self) -> None:
        """Ask anew for what is needed at every request; the sweeper does so each second."""
        self.header_bytes = self.limits().header_bytes

    @property
    def least_taken(self) -> int:
        """Bytes of an answer that a client must take in `write_seconds`: less is no progress."""
        return int(LEAST_RATE * self.write.seconds())

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
        """A connection is over: nothing waits for it, and it counts no more."""
        self.connections.discard(connection)
        connection.places.leave(connection)
        for queue in self.queues:
            queue.leave(connection)
        if not self.connections:
            self._emptied.set()
            self._emptied = trio.Event()

    async def stop(self) -> None:
        """The engine is ending: idle connections go at once, busy ones with their answer."""
        self.stopping = True
        await self.terminated.set()
        for connection in list(self.connections):
            connection.stop()

    async def wait_empty(self) -> None:
        """Until no connection is left."""
        while self.connections:
            await self._emptied.wait()
