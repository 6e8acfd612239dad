"""Runs an ASGI app on a request, with an inbox for the messages that it receives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from hatchway.api.http.request import BrokenOff
from hatchway.api.server.deadlines import LOG

INBOX_BYTES = 64 * 1024
"""Bytes of a body that may wait for an app; past them no more is read of its client."""

Message = Any
"""An ASGI message: a dict whose keys its `type` decides."""

App = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI app: scope, receive, send."""


class ClientGone(OSError):
    """Raised in an app that sends to a client that has left (ASGI HTTP 2.4). An app need not catch it."""


class Inbox:
    """The messages that the app of one request receives: the body as it comes, then `http.disconnect` at each call."""

    __slots__ = ("_arrived", "_body", "_closed", "_leaving", "_left", "_room", "_told", "_whole")

    def __init__(self) -> None:
        self._body: bytes | bytearray = b""
        self._whole = self._told = self._closed = self._left = False
        self._arrived: trio.Event | None = None
        self._room: trio.Event | None = None
        self._leaving: Callable[[], None] | None = None

    def when_left(self, call: Callable[[], None]) -> None:
        """Have `call` called when the client leaves; at once, if it has left."""
        self._leaving = call
        if self._closed:
            call()

    async def put(self, message: Message) -> None:
        """Add a part of the body, or `http.disconnect`. Waits while too much of the body waits for the app."""
        if message["type"] == "http.disconnect":
            self._closed = True
            if self._room is not None:
                self._room.set()
            if self._leaving is not None:
                self._leaving()
        else:
            self._add(message["body"])
            self._whole = not message["more_body"]
        if self._arrived is not None:
            self._arrived.set()
        while len(self._body) > INBOX_BYTES and not self._closed:
            self._room = trio.Event()
            await self._room.wait()

    def _add(self, part: bytes) -> None:
        if not self._body:
            self._body = part
        elif part:
            self._body = bytearray(self._body) if isinstance(self._body, bytes) else self._body
            self._body += part

    async def receive(self) -> Message:
        """The next message; waits only if there is none."""
        while not self._body and (self._told or not self._whole):
            if self._closed:
                if self._left:  # an app that calls this all the time must not hold up other tasks
                    await trio.lowlevel.checkpoint()
                self._left = True
                return {"type": "http.disconnect"}
            if self._arrived is None:
                self._arrived = trio.Event()
            await self._arrived.wait()
            self._arrived = None
        body, self._body, self._told = bytes(self._body), b"", self._whole
        if self._room is not None:
            self._room.set()
        return {"type": "http.request", "body": body, "more_body": not self._whole}


async def run_app(
    turn: Callable[[], Awaitable[None]],
    app: App,
    scope: Any,
    receive: Callable[[], Awaitable[Message]],
    send: Callable[[Message | None], Awaitable[None]],
) -> None:
    """Run the app on one request, once `turn` has returned. At its end `send` is called with None.

    An error of the app's is logged and ends its request, never the server.
    """
    try:
        await turn()
        await app(scope, receive, send)
    except* (ClientGone, BrokenOff):
        pass
    except* Exception:
        LOG.exception("the app raised at %s %s", scope["method"], scope["raw_path"].decode("ascii"))
    finally:
        await send(None)
