"""One task a request, and an inbox for what its app receives, which makes it wait only when it is empty."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio.task_group import TaskGroup

from hatchway.api.http.request import LEFT, BrokenOff
from hatchway.api.server.deadlines import LOG

INBOX_BYTES = 64 * 1024
"""Body bytes that may wait for an app; past them its client is not read on."""

Message = Any
"""An ASGI message; Hypercorn's types for them are unions of twenty."""


class ClientGone(OSError):
    """Raised to an app that sends to a client who has left (ASGI HTTP 2.4); harmless if it gets out of the app."""


class Inbox:
    """What one request's app receives: its body as it comes, then `http.disconnect`, as often as it asks."""

    __slots__ = ("_arrived", "_body", "_closed", "_leaving", "_left", "_room", "_told", "_whole")

    def __init__(self) -> None:
        self._body: bytes | bytearray = b""
        self._whole = self._told = self._closed = self._left = False
        self._arrived: trio.Event | None = None
        self._room: trio.Event | None = None
        self._leaving: Callable[[], None] | None = None

    def when_left(self, call: Callable[[], None]) -> None:
        """Call this when the client leaves; at once, if it has left."""
        self._leaving = call
        if self._closed:
            call()

    async def put(self, message: Message) -> None:
        """Add a part of the body, or the end of all; wait while too much of the body waits for the app."""
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
                if self._left:  # an app that asks again and again must not keep the others out
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


async def _run(
    turn: Callable[[], Awaitable[None]],
    app: Any,
    scope: Any,
    receive: Any,
    send: Callable[[Message | None], Awaitable[None]],
) -> None:
    try:
        await turn()
        await app(scope, receive, send)
    except* (ClientGone, BrokenOff):
        pass
    except* Exception:
        LOG.exception("the app raised at %s %s", scope["method"], scope["raw_path"].decode("ascii"))
    finally:
        await send(None)


class Apps(TaskGroup):
    """The tasks of one connection. An app's error ends its request, never the server."""

    def __init__(self, turn: Callable[[], Awaitable[None]]) -> None:
        """`turn` returns once a request of this client may begin."""
        super().__init__()
        self._turn = turn

    async def spawn_app(self, app: Any, config: Config, scope: Any, send: Any) -> Callable[[Message], Awaitable[None]]:
        """Run a plain ASGI app on the request; gives what puts messages into its inbox."""
        inbox = Inbox()
        scope["extensions"][LEFT] = inbox.when_left
        self.spawn(_run, self._turn, app, scope, inbox.receive, send)
        return inbox.put

    def cancel(self) -> None:
        """Cancel them all, and whoever serves the connection; nothing, if it has not begun."""
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()
