"""HTTP/1.1 by h11: what h11 lets pass is refused here, an answer is one write, and the connection really ends."""

from __future__ import annotations

import re
from typing import Any

import h11
import trio
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Body, EndBody, Request, Response, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.typing import H11SendableEvent

from hatchway.api.server.context import Context
from hatchway.api.server.streams import LastBody, Owner, Stream

PENDING_BYTES = 16 * 1024
"""Bytes of later requests that are read while one is answered; reading on is how a hang-up is seen."""

PARTS_AT_ONCE = 32
"""Parts of a body that are read in one turn: a client may make chunks of one byte each."""

Headers = list[tuple[bytes, bytes]]
"""Names in lower case, values without the space around them."""


_LENGTH = re.compile(rb"(?i)\r\ncontent-length:([^\r]*)")


def refusal(request: h11.Request, headers: Headers, head: bytes, limit: int) -> int | None:
    """The status that refuses a head which h11 has taken, or None. `head` is what h11 read as this request's."""
    if len(head) > limit:
        return 431
    if request.http_version not in (b"1.1", b"1.0"):
        return 505
    if not request.method.isupper():  # RFC 9110 9.1: `get` is no GET, which Hypercorn would make of it
        return 501
    # RFC 9112 2.2 and 5.2: a bare LF or a folded line is where two parsers may part.
    if head.count(b"\n") != head.count(b"\r\n") or b"\r\n " in head or b"\r\n\t" in head:
        return 400
    lengths = _LENGTH.findall(head)
    if len(lengths) > 1 or b"," in b"".join(lengths):  # h11 takes equal ones for one
        return 400
    names = [name for name, _ in headers]
    if b"transfer-encoding" in names and (b"content-length" in names or request.http_version == b"1.0"):
        return 400
    return None


def origin_form(target: bytes, headers: Headers) -> bytes | None:
    """The target as path and query; None if it is neither in origin form nor the absolute form of its own Host."""
    if target.startswith(b"/"):
        return target
    scheme, separator, rest = target.partition(b"://")
    authority, slash, path = rest.partition(b"/")
    hosts = [value.lower() for name, value in headers if name == b"host"]
    if separator and scheme.lower() in (b"http", b"https") and [authority.lower()] == hosts:
        return slash + path if slash else b"/"
    return None


class H1(H11Protocol):
    """One connection's HTTP/1.1. Upgrades are not offered: an `Upgrade` header is ignored (RFC 9110, 7.8)."""

    context: Context
    connection: h11.Connection
    stream: Stream | None

    def __init__(self, owner: Owner, *args: Any) -> None:
        super().__init__(*args)
        self.owner = owner
        self._held = 0
        self.paused = False
        """Bytes of a next request have come; they wait for the present answer."""
        self._out = b""
        self._fresh = True

    async def handle(self, event: Event) -> None:
        """Bytes from the client, none at its end; or Closed, after which nothing more is read."""
        if isinstance(event, RawData):
            self._fresh = False
            self.connection.receive_data(event.data)
            if self.paused:
                self._hold_unread()
            else:
                await self.resume()
        elif isinstance(event, Closed):
            await self._close_stream()

    @property
    def fresh(self) -> bool:
        """Nothing is being read or answered: the next byte is a request's first."""
        return self._fresh

    @property
    def full(self) -> bool:
        """Whether to stop reading while paused."""
        return len(self.connection.trailing_data[0]) >= PENDING_BYTES

    @property
    def unread(self) -> bool:
        """Whether the client may be sending something that we won't read."""
        return self.connection.their_state in (h11.SEND_BODY, h11.ERROR) or bool(self.connection.trailing_data[0])

    async def resume(self) -> None:
        """Go through what has been received."""
        await self._go_through()
        self._hold_unread()

    def _hold_unread(self) -> None:
        """Have counted what is neither read nor refused yet: half a head, or requests after the present one."""
        before, self._held = self._held, len(self.connection.trailing_data[0])
        self.owner.hold(self._held - before)

    async def _go_through(self) -> None:
        parts = 0
        while True:
            if self.connection.their_state is h11.MUST_CLOSE and self.connection.trailing_data[0]:
                self.paused = True  # said after `Connection: close`: h11 would refuse it in the place of the answer
                return None
            before = self.connection.trailing_data[0] if self.connection.their_state is h11.IDLE else b""
            try:
                event = self.connection.next_event()
            except h11.RemoteProtocolError as error:
                return await self.refuse(error.error_status_hint)
            if isinstance(event, h11.Request):
                await self._begin(event, before[: len(before) - len(self.connection.trailing_data[0])])
            elif event is h11.NEED_DATA:
                return self._wait(before)
            elif event is h11.PAUSED:
                self.paused = True
                return None
            elif self.stream is None:
                return None
            elif isinstance(event, h11.Data):
                await self.stream.handle(Body(STREAM_ID, event.data))
                parts += 1
                if parts % PARTS_AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()
            elif isinstance(event, h11.EndOfMessage):
                await self.stream.handle(EndBody(STREAM_ID))
            else:
                return None

    def _wait(self, head: bytes) -> None:
        """More must come; of what, says which deadline runs."""
        if head:
            self.context.idle.leave(self.owner)
            self.context.head.remain(self.owner)
        elif self.stream is not None and not self.stream.body_done:
            self.stream.wait_for_body()

    async def _begin(self, request: h11.Request, head: bytes) -> None:
        headers = [(name.lower(), value) for name, value in request.headers.raw_items()]
        status = refusal(request, headers, head, self.context.header_bytes)
        target = origin_form(request.target, headers)
        if status is not None or target is None:
            return await self.refuse(status or 400)
        self.context.head.leave(self.owner)
        await self.send(Updated(idle=False))
        self.stream = Stream(
            self.owner,
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            STREAM_ID,
        )
        version, method = request.http_version.decode("ascii"), request.method.decode("ascii")
        await self.stream.handle(Request(STREAM_ID, headers, version, method, target, self.connection_state))
        if self.connection.they_are_waiting_for_100_continue:
            await self._send_h11_event(h11.InformationalResponse(status_code=100, headers=[]))
        return None

    async def stream_send(self, event: StreamEvent) -> None:
        """A part of the answer. The head waits for the first of the body (ASGI HTTP, "Response Start")."""
        if isinstance(event, Response):
            self._out = self._encode(h11.Response(headers=self._headers(event), status_code=event.status_code))
        elif isinstance(event, Body):
            data = self._out + self._encode(h11.Data(data=event.data))
            if isinstance(event, LastBody):
                data += self._encode(h11.EndOfMessage())
            self._out = b""
            if data:
                await self.send(RawData(data))
        elif isinstance(event, StreamClosed):
            await self._maybe_recycle()

    def _headers(self, event: Response) -> Headers:
        headers = [*event.headers, *self.config.response_headers("h11")]
        unread = self.stream is not None and not self.stream.body_done
        if self.context.stopping or unread:
            headers.append((b"connection", b"close"))
        return headers

    def _encode(self, event: H11SendableEvent) -> bytes:
        """The event's bytes; none if the conversation is already lost."""
        lost = self.connection.our_state is h11.ERROR
        try:
            return self.connection.send(event) or b""
        except h11.LocalProtocolError:
            if lost or self.connection.their_state is h11.ERROR:
                return b""
            raise

    async def refuse(self, status: int) -> None:
        """Answer with a bare status, if no answer has begun, and end the connection."""
        if self.connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            await self._send_error_response(status)
        await self.send(Closed())

    async def _send_error_response(self, status_code: int) -> None:
        headers = [(b"content-length", b"0"), (b"connection", b"close"), *self.config.response_headers("h11")]
        response = self._encode(h11.Response(status_code=status_code, headers=headers))
        await self.send(RawData(response + self._encode(h11.EndOfMessage())))

    async def _maybe_recycle(self) -> None:
        """The answer is over: on to the next request, or the end."""
        stream, self.stream = self.stream, None
        states = (self.connection.our_state, self.connection.their_state)
        if states == (h11.DONE, h11.DONE) and not self.context.stopping:
            self.connection.start_next_cycle()
            self.paused = False
            self._fresh = not self.connection.trailing_data[0]
            await self.send(Updated(idle=True))
        else:
            await self.send(Closed())
        # The app is told last. quart-trio answers http.disconnect by cancelling whoever runs this: stock tells it
        # first, and so never comes to end the connection (pgjones/hypercorn#330).
        if stream is not None:
            await stream.handle(StreamClosed(STREAM_ID))
