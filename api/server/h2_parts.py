"""What H2Protocol works with, in the place of Hypercorn's own: settings, the server's state, a stream and its buffer.

Each has the few methods that H2Protocol calls.
"""

from __future__ import annotations

import trio
from hypercorn.config import Config
from hypercorn.protocol.events import Body, EndBody, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h2 import BufferCompleteError

from hatchway.api.server.context import Context
from hatchway.api.server.streams import Headers, Stream

MOST_STREAMS = 32
"""Requests at once on one connection: the console asks for as many files. Each costs a task while it waits."""

MOST_UNSENT = 32 * 1024
"""Bytes of an answer past which its app waits, until the client has taken half of them."""


class Unsent:
    """What a stream has to send, in the place of Hypercorn's StreamBuffer: little, since who adds to it waits. (Stock's
    waits no more once its client has taken a byte.)"""

    __slots__ = ("_complete", "_data", "_waiting")

    def __init__(self) -> None:
        self._data = bytearray()
        self._complete = False
        self._waiting = trio.lowlevel.ParkingLot()

    def __len__(self) -> int:
        return len(self._data)

    async def push(self, data: bytes) -> None:
        """Add it; wait while too much is there. Raises BufferCompleteError."""
        if self._complete:
            raise BufferCompleteError
        self._data.extend(data)
        while len(self._data) >= MOST_UNSENT and not self._complete:
            await self._waiting.park()

    async def pop(self, max_length: int) -> bytes:
        """Take at most so much out."""
        data = bytes(self._data[:max_length])
        del self._data[:max_length]
        if len(self._data) < MOST_UNSENT // 2:
            self._waiting.unpark_all()
        return data

    async def drain(self) -> None:
        """Until all is taken, or nobody wants it."""
        while self._data:
            await self._waiting.park()

    def set_complete(self) -> None:
        """Nothing more is added."""
        self._complete = True

    @property
    def complete(self) -> bool:
        """Whether all was added, and taken."""
        return self._complete and not self._data

    async def close(self) -> None:
        """Nobody wants the rest."""
        self._complete = True
        self._data.clear()
        self._waiting.unpark_all()


class Flag:
    """An event as H2Protocol wants it, made of trio's only when somebody waits."""

    __slots__ = ("_set", "_waited")

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


class H2Config(Config):
    """Hypercorn's settings, as far as H2Protocol asks for them."""

    h2_max_concurrent_streams = MOST_STREAMS

    def __init__(self, context: Context) -> None:
        self._context = context

    def response_headers(self, protocol: str) -> Headers:
        """What every response has besides its own headers."""
        return [*self._context.headers]


class H2Context:
    """What H2Protocol asks of the server it runs in: how events are made, and whether it is ending (`terminated`)."""

    __slots__ = ("_context",)

    event_class = Flag

    def __init__(self, context: Context) -> None:
        self._context = context

    @property
    def terminated(self) -> H2Context:
        """An event, of which H2Protocol asks `is_set` alone."""
        return self

    def is_set(self) -> bool:
        """Whether the engine is ending."""
        return self._context.stopping


class H2Stream(Stream):
    """A stream as H2Protocol speaks to it."""

    __slots__ = ()

    idle = False

    async def handle(self, event: StreamEvent) -> None:
        """Something of the request came, or its client left."""
        if isinstance(event, Body):
            await self.receive_body(event.data)
        elif isinstance(event, EndBody):
            await self.receive_end()
        elif isinstance(event, StreamClosed):
            await self.leave()
