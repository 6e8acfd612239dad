"""Relays requests that a worker does not answer to the engine's app, and the parts of the response back."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import trio

from hatchway.api.http.asgi import REQUEST, Receive, Scope, Send, send_response
from hatchway.api.http.problems import problem_response
from hatchway.api.http.request import LEFT
from hatchway.api.server.unix_sockets import socket_address
from hatchway.api.workers.channel import RECEIVED, Frames, frame
from hatchway.api.workers.messages import BROKEN, Part, RelayedRequest
from hatchway.engine.base.errors import StoreUnavailable

NAME = "doors.sock"
"""Name of the Unix socket, in the engine's folder, on which its app listens for workers.

Worker processes were called doors once. What others may rely on keeps that name: this file, the `doors` of an engine's
status, the event `door_ended` on record.
"""

EXIT_WITHIN = 2.0
"""Seconds in which a worker surely ends after its engine."""

_decode = msgspec.msgpack.Decoder(Part).decode


class Relay:
    """An ASGI app behind an `AsgiApp`, which has read the body.

    Each request has a connection of its own: a client that reads slowly holds up no other, and where a client hangs up
    the connection is closed.
    """

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
    """Pass the app's response on as it comes. Where the app breaks it off, it stays unfinished, and the server closes
    the connection."""
    frames = Frames()
    try:
        await stream.send_all(frame(relayed))
        while data := await stream.receive_some(RECEIVED):
            for message in frames.feed(data):
                part = _decode(message)
                if part.status != BROKEN:
                    await _send_part(send, part)
                if not part.more:
                    return
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    # The engine is gone, and this process ends with it. No error is sent before that: the request may have been done.
    await trio.sleep(EXIT_WITHIN)


async def _send_part(send: Send, part: Part) -> None:
    if part.status:
        await send({"type": "http.response.start", "status": part.status, "headers": list(part.headers)})
    await send({"type": "http.response.body", "body": part.body, "more_body": part.more})


def _relayed(scope: Scope) -> RelayedRequest:
    return RelayedRequest(scope[REQUEST], scope["scheme"], scope["http_version"], scope["raw_path"])
