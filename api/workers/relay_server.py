"""Serves the requests that workers relay by the engine's app, as if the clients were connected to the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import structlog
import trio

from hatchway.api.http.asgi import App, Message, Scope
from hatchway.api.http.request import LEFT, BrokenOff
from hatchway.api.server.apps import ClientGone
from hatchway.api.server.unix_sockets import listen_private, may_operate
from hatchway.api.workers.channel import RECEIVED, Frames, frame
from hatchway.api.workers.messages import BROKEN, Part, RelayedRequest
from hatchway.api.workers.relay import NAME
from hatchway.engine.keys.authorized_keys import AuthorizedKeys

log = structlog.get_logger(__name__)

BACKLOG = 4096

_decode = msgspec.msgpack.Decoder(RelayedRequest).decode


class RelayServer:
    """Listens on a Unix socket in the engine's folder. Only the engine's user can connect there, so a relayed request
    is believed about its client."""

    def __init__(self, app: App, home: Path, keys: AuthorizedKeys) -> None:
        self._app, self._path, self._keys = app, home / NAME, keys

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        self._path.unlink(missing_ok=True)
        listener = listen_private(self._path, BACKLOG)
        try:
            with listener:
                task_status.started()
                await trio.serve_listeners(self._visit, [trio.SocketListener(listener)])
        finally:
            self._path.unlink(missing_ok=True)

    async def _visit(self, stream: trio.SocketStream) -> None:
        """Answer one worker. An error in here ends its connection, and never the engine."""
        if not may_operate(stream.socket):
            return
        try:
            await self._talk(stream)
        except* (ClientGone, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        except* Exception:
            log.exception("relayed_request_not_understood")

    async def _talk(self, stream: trio.SocketStream) -> None:
        relayed = await _read(stream)
        if relayed is None:
            return
        self._keys.look_anew()
        try:
            await self._serve(stream, relayed)
        except* (ClientGone, BrokenOff, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        except* Exception:
            log.exception("relayed_request_failed")
        # Where the response is complete, the worker has closed the connection and this is not read.
        await stream.send_all(frame(Part(BROKEN, (), b"", False)))

    async def _serve(self, stream: trio.SocketStream, relayed: RelayedRequest) -> None:
        exchange = _Exchange(stream, relayed.request.body)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(exchange.watch)
            scope = _scope(relayed)
            scope["extensions"][LEFT] = exchange.when_left
            await self._app(scope, exchange.receive, exchange.send)
            nursery.cancel_scope.cancel()


async def _read(stream: trio.SocketStream) -> RelayedRequest | None:
    frames = Frames()
    while data := await stream.receive_some(RECEIVED):
        for message in frames.feed(data):
            return _decode(message)
    return None


class _Exchange:
    """ASGI's `receive` and `send` for one relayed request, and our extension `LEFT`."""

    def __init__(self, stream: trio.SocketStream, body: bytes) -> None:
        self._stream, self._left = stream, trio.Event()
        self._messages: Iterator[Message] = iter([{"type": "http.request", "body": body, "more_body": False}])
        self._start: Message | None = None
        self._leaving: Callable[[], None] | None = None

    async def watch(self) -> None:
        """Wait until the worker closes the connection, which says that the client has left: it sends nothing else."""
        try:
            while await self._stream.receive_some():
                pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        self._left.set()
        if self._leaving is not None:
            self._leaving()

    def when_left(self, call: Callable[[], None]) -> None:
        """Have `call` called when the client leaves; at once, if it has left."""
        self._leaving = call
        if self._left.is_set():
            call()

    async def receive(self) -> Message:
        for message in self._messages:
            return message
        await self._left.wait()
        await trio.lowlevel.checkpoint()  # an app that calls this all the time must not hold up other tasks
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Send a part. The head waits for the first part of the body (ASGI HTTP, "Response Start"). Raises
        ClientGone."""
        if message["type"] == "http.response.start":
            self._start = message
            return
        start, self._start = self._start, None
        status, headers = (start["status"], tuple(start["headers"])) if start else (0, ())
        part = Part(status, headers, bytes(message.get("body", b"")), message.get("more_body", False))
        try:
            await self._stream.send_all(frame(part))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise ClientGone("nobody waits for more of this answer") from None


def _scope(relayed: RelayedRequest) -> Scope:
    request = relayed.request
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": relayed.http_version,
        "method": request.method,
        "scheme": relayed.scheme,
        "path": request.path,
        "raw_path": relayed.raw_path,
        "query_string": request.query,
        "root_path": "",
        "headers": list(request.headers),
        "client": request.client,
        "server": request.server,
        "extensions": {},
    }
    return scope
