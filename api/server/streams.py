"""One request and its answer, on either protocol. The end of an answer is one event, so that it can be one write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import trio
from hypercorn.protocol.events import Body, EndBody, Response, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream
from hypercorn.utils import suppress_body

from hatchway.api.server.apps import ClientGone
from hatchway.api.server.deadlines import Expiring, WaitKind
from hatchway.api.server.places import WAITING_COST


@dataclass(frozen=True)
class LastBody(Body):
    """The rest of the body, and its end."""


class Owner(Expiring, Protocol):
    """The connection of a stream."""

    held: int

    def hold(self, change: int) -> None:
        """So many more bytes wait here for the client, or fewer."""

    async def turn(self) -> None:
        """Until something of this client may begin in this tick of the event loop."""


class Stream(HTTPStream):
    """Hypercorn's stream; `body_done` tells whether the whole request has come."""

    def __init__(self, owner: Owner, *args: Any) -> None:
        super().__init__(*args)
        self.owner = owner
        self.body_done = False  # here, and not on the class: what is set later makes an instance 800 bytes larger
        self.taken = 0
        """Bytes of the answer that the client took since its deadline began (HTTP/2 alone)."""
        self._chunks = 0
        self._held = 0

    async def handle(self, event: StreamEvent) -> None:
        """Something of the request came, or its client left."""
        if isinstance(event, Body) and not self.closed:
            self._hold(len(event.data))
        elif isinstance(event, EndBody):
            self.body_done = True
            self.context.body.leave(self)  # type: ignore[attr-defined]
        elif isinstance(event, StreamClosed):
            self.context.body.leave(self)  # type: ignore[attr-defined]
            self._hold(-self._held)
        await super().handle(event)

    def wait_for_body(self) -> None:
        """The rest of the body has its time from now on, unless that has begun."""
        self._hold(WAITING_COST if self._held < WAITING_COST else 0)
        self.context.body.remain(self)  # type: ignore[attr-defined]

    def _hold(self, change: int) -> None:
        self._held += change
        self.owner.hold(change)

    async def app_send(self, message: Any | None) -> None:
        """The app's next message, or None at its end. Raises ClientGone, which stock leaves the app to guess."""
        if message is None:
            await self._finish()
        elif self.closed or self.state is ASGIHTTPState.CLOSED:
            raise ClientGone("nobody waits for more of this answer")
        elif (
            message["type"] == "http.response.body"
            and self.state is ASGIHTTPState.RESPONSE
            and not self.response.get("trailers", False)
        ):
            await self._send_body(message)
        else:
            await super().app_send(message)

    async def _send_body(self, message: Any) -> None:
        hidden = suppress_body(self.scope["method"], int(self.response["status"]))
        body = b"" if hidden else bytes(message.get("body", b""))
        if message.get("more_body", False):
            await self.send(Body(self.stream_id, body))
            self._chunks += 1
            if self._chunks > 1:  # an app that never waits, before a client that takes all, must not keep the rest out
                await trio.lowlevel.checkpoint()
        else:
            self.state = ASGIHTTPState.CLOSED
            await self.send(LastBody(self.stream_id, body))
            await self.send(StreamClosed(self.stream_id))

    async def _finish(self) -> None:
        """The app has returned or raised; what it left unsaid is said for it."""
        if self.closed:
            return
        if self.state is ASGIHTTPState.REQUEST:
            await self._send_error_response(503 if self.context.terminated.is_set() else 500)
        await self.send(StreamClosed(self.stream_id))

    async def _send_error_response(self, status_code: int) -> None:
        """An answer of the server's own, without a body. (Stock's has a header that HTTP/2 forbids, and is lost.)"""
        self.state = ASGIHTTPState.CLOSED
        close = [] if self.scope["http_version"] == "2" else [(b"connection", b"close")]
        headers = [(b"content-length", b"0"), *close]
        await self.send(Response(self.stream_id, headers, status_code))
        await self.send(LastBody(self.stream_id, b""))

    def expire(self, kind: WaitKind) -> None:
        """The rest of the body did not come in time, or the client takes nothing of the answer (HTTP/2 alone)."""
        self.task_group.spawn(self._give_up, kind)

    async def _give_up(self, kind: WaitKind) -> None:
        if self.closed:
            return
        if kind is WaitKind.BODY and self.state is ASGIHTTPState.REQUEST:
            await self._send_error_response(408)
        await self.send(StreamClosed(self.stream_id))
