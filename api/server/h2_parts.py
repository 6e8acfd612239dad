"""Replacements for parts of Hypercorn's that H2Protocol works with: settings, the server's state, stream and buffer.

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
"""Requests at once on one connection: the console asks for as many files. Each takes a task while it waits."""

MOST_UNSENT = 32 * 1024
"""Bytes of a response past which its app waits until the client has read half of them."""


class Unsent:
    """Bytes that a stream has to send, in place of Hypercorn's StreamBuffer. Adding waits while there are too many; in
    Hypercorn's it goes on once the client has read a byte."""

    __slots__ = ("_complete", "_data", "_waiting")

    def __init__(self) -> None:
        self._data = bytearray()
        self._complete = False
        self._waiting = trio.lowlevel.ParkingLot()

    def __len__(self) -> int:
        return len(self._data)

    async def push(self, data: bytes) -> None:
        """Add bytes; wait while there are too many. Raises BufferCompleteError."""
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
        """Wait until all is taken, or the buffer is closed."""
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
        """Drop the rest: the client has left."""
        self._complete = True
        self._data.clear()
        self._waiting.unpark_all()


class Flag:
    """An event as H2Protocol wants it. It makes one of trio's only when a task waits."""

    __slots__ = ("_set", "_waited")

    def __init__(self) -> None:
        self._set = False
        self._waited: trio.Event | None = None

    async def clear(self) -> None:
        """Clear it."""
        self._set = False

    async def wait(self) -> None:
        """Wait until it is set."""
        if not self._set:
            if self._waited is None:
                self._waited = trio.Event()
            await self._waited.wait()

    async def set(self) -> None:
        """Set it, until it is cleared."""
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
        """Handle an event of the request: a part of it has come, or its client has left."""
        if isinstance(event, Body):
            await self.receive_body(event.data)
        elif isinstance(event, EndBody):
            await self.receive_end()
        elif isinstance(event, StreamClosed):
            await self.leave()
            self._writer.made(self)
