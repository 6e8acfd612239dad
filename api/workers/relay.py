"""What a worker does not answer goes to the engine's app, whose response comes back part by part."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import trio

from hatchway.api.http.asgi import REQUEST, Receive, Scope, Send, send_response
from hatchway.api.http.problems import problem_response
from hatchway.api.http.request import LEFT
from hatchway.api.server.unix_sockets import socket_address
from hatchway.api.workers.messages import BROKEN, Frames, Part, RelayedRequest, frame
from hatchway.engine.base.errors import StoreUnavailable

NAME = "doors.sock"
"""In the engine's folder: where its app listens for its own workers."""

PASSING = 2.0
"""Seconds after which a worker has long ended, if its engine has."""

_decode = msgspec.msgpack.Decoder(Part).decode


class Relay:
    """An ASGI app behind an `AsgiApp`, which has read the body. Each request has a connection of its own: a client that
    is slow to read holds up nobody else, and its hang-up is the connection's."""

    def __init__(self, home: Path) -> None:
        self._folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._address = socket_address(home / NAME, self._folder)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            stream = await trio.open_unix_socket(self._address)
        except OSError:
            await send_response(send, problem_response(StoreUnavailable("the engine is not there", retry_after=5)))
            return
        async with stream:
            with trio.CancelScope() as talking:
                scope["extensions"][LEFT](talking.cancel)
                await _talk(stream, _relayed(scope), send)


async def _talk(stream: trio.SocketStream, relayed: RelayedRequest, send: Send) -> None:
    """The app's answer as it comes. One that the app breaks off is left unfinished, which is our server's to end."""
    frames = Frames()
    try:
        await stream.send_all(frame(relayed))
        while data := await stream.receive_some(65536):
            for message in frames.feed(data):
                part = _decode(message)
                if part.status != BROKEN:
                    await _send_part(send, part)
                if not part.more:
                    return
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    # The engine is gone, and takes this process along. Until then nothing is said: what was asked for may be done.
    await trio.sleep(PASSING)


async def _send_part(send: Send, part: Part) -> None:
    if part.status:
        await send({"type": "http.response.start", "status": part.status, "headers": list(part.headers)})
    await send({"type": "http.response.body", "body": part.body, "more_body": part.more})


def _relayed(scope: Scope) -> RelayedRequest:
    return RelayedRequest(scope[REQUEST], scope["scheme"], scope["http_version"], scope["raw_path"])
