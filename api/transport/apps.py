"""One task a request, and the messages the app receives: a deque that makes the app wait only when it is empty."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio.task_group import TaskGroup

from api.transport.deadlines import LOG

INBOX_BYTES = 64 * 1024
"""Body bytes that may wait for an app; past them its client is not read on."""

Message = Any
"""An ASGI message; Hypercorn's types for them are unions of twenty."""


class ClientGone(OSError):
    """Raised to an app that sends to a client who has left (ASGI HTTP 2.4); harmless if it gets out of the app."""


class Inbox:
    """What one request's app receives. Closed by `http.disconnect`, which every later receive gets again."""

    __slots__ = ("_arrived", "_closed", "_messages", "_room", "_size")

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self._size = 0
        self._closed = False
        self._arrived: trio.Event | None = None
        self._room: trio.Event | None = None

    async def put(self, message: Message) -> None:
        """Add a message; wait while too much of the body waits for the app."""
        if self._closed:
            return
        self._messages.append(message)
        self._size += len(message.get("body", b""))
        self._closed = message["type"] == "http.disconnect"
        if self._closed and self._room is not None:
            self._room.set()
        if self._arrived is not None:
            self._arrived.set()
        while self._size > INBOX_BYTES and not self._closed:
            self._room = trio.Event()
            await self._room.wait()

    async def receive(self) -> Message:
        """The next message; waits only if there is none."""
        while not self._messages:
            if self._closed:
                await trio.lowlevel.checkpoint()
                return {"type": "http.disconnect"}
            if self._arrived is None:
                self._arrived = trio.Event()
            await self._arrived.wait()
            self._arrived = None
        message = self._messages.popleft()
        self._size -= len(message.get("body", b""))
        if self._room is not None and self._size <= INBOX_BYTES:
            self._room.set()
        return message


async def _run(app: Any, scope: Any, receive: Any, send: Callable[[Message | None], Awaitable[None]]) -> None:
    try:
        await app(scope, receive, send)
    except* ClientGone:
        pass
    except* Exception:
        LOG.exception("the app raised at %s %s", scope["method"], scope["raw_path"].decode("ascii"))
    finally:
        await send(None)


class Apps(TaskGroup):
    """The tasks of one connection. An app's error ends its request, never the server."""

    async def spawn_app(self, app: Any, config: Config, scope: Any, send: Any) -> Callable[[Message], Awaitable[None]]:
        """Run a plain ASGI app on the request; gives what puts messages into its inbox."""
        inbox = Inbox()
        self.spawn(_run, app, scope, inbox.receive, send)
        return inbox.put
