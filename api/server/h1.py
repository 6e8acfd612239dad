"""HTTP/1.1 by h11: refuses what h11 accepts and no app should see, and writes short responses at once."""

from __future__ import annotations

import re

import h11
import trio

from hatchway.api.server.streams import Headers, Owner, Stream

PENDING_BYTES = 16 * 1024
"""Bytes of later requests that are read while one is answered. Reading goes on so that a client's leaving is
noticed."""

PARTS_AT_ONCE = 32
"""Parts of a body that are read before other tasks run: a client may send chunks of one byte each."""

_LENGTH = re.compile(rb"(?i)\r\ncontent-length:([^\r]*)")


def refusal(request: h11.Request, headers: Headers, head: bytes, limit: int) -> int | None:
    """The status that refuses a head which h11 has taken, or None. `head` is what h11 read as this request's."""
    if len(head) > limit:
        return 431
    if request.http_version not in (b"1.1", b"1.0"):
        return 505
    if not request.method.isupper():  # RFC 9110 9.1: `get` is no GET, which Hypercorn would make of it
        return 501
    # RFC 9112 2.2 and 5.2: parsers differ on a bare LF and on folded lines, which makes request smuggling possible.
    if head.count(b"\n") != head.count(b"\r\n") or b"\r\n " in head or b"\r\n\t" in head:
        return 400
    lengths = _LENGTH.findall(head)
    if len(lengths) > 1 or b"," in b"".join(lengths):  # h11 accepts a repeated length if all are equal
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


class H1:
    """One connection's HTTP/1.1, on h11's `Connection`. Upgrades are not offered: an `Upgrade` header is ignored
    (RFC 9110, 7.8)."""

    __slots__ = ("_held", "_out", "connection", "context", "fresh", "owner", "paused", "stream")

    def __init__(self, owner: Owner) -> None:
        self.owner, self.context = owner, owner.context
        self.connection = h11.Connection(h11.SERVER, max_incomplete_event_size=self.context.limits().header_bytes)
        self.stream: Stream | None = None
        self.paused = False
        """Whether bytes of a next request have come, which wait for the present response."""
        self._held = 0
        self._out = b""
        self.fresh = True
        """Whether nothing is being read or answered, so that the next byte is a request's first."""

    async def receive(self, data: bytes) -> None:
        """Bytes from the client, none at its end."""
        self.fresh = False
        self.connection.receive_data(data)
        if self.paused:
            self._hold_unread()
        else:
            await self.resume()

    async def close(self) -> None:
        """Read nothing more, and tell the app that the client has left."""
        if self.stream is not None:
            await self.stream.leave()
            self.stream = None

    def let_go(self) -> None:
        """The connection is over. There is no reference cycle here to break."""

    @property
    def full(self) -> bool:
        """Whether to stop reading while paused."""
        return len(self.connection.trailing_data[0]) >= PENDING_BYTES

    @property
    def unread(self) -> bool:
        """Whether the client may be sending something that is not read any more."""
        return self.connection.their_state in (h11.SEND_BODY, h11.ERROR) or bool(self.connection.trailing_data[0])

    async def resume(self) -> None:
        """Handle what has been received."""
        await self._go_through()
        self._hold_unread()

    def _hold_unread(self) -> None:
        """Count the bytes that wait here: half a head, or requests behind the present one."""
        before, self._held = self._held, len(self.connection.trailing_data[0])
        self.owner.hold(self._held - before)

    async def _go_through(self) -> None:
        parts = 0
        while True:
            if self.connection.their_state is h11.MUST_CLOSE and self.connection.trailing_data[0]:
                self.paused = True  # sent after `Connection: close`: h11 would refuse it in place of the response
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
                await self.stream.receive_body(event.data)
                parts += 1
                if parts % PARTS_AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()
            elif isinstance(event, h11.EndOfMessage):
                await self.stream.receive_end()
            else:
                return None

    def _wait(self, head: bytes) -> None:
        """Wait for more: start the deadline of the head, or of the body."""
        if head:
            self.context.idle.leave(self.owner)
            self.context.head.remain(self.owner)
        elif self.stream is not None and not self.stream.body_done:
            self.stream.wait_for_body()

    async def _begin(self, request: h11.Request, head: bytes) -> None:
        headers = list(request.headers)
        status = refusal(request, headers, head, self.context.header_bytes)
        target = origin_form(request.target, headers)
        if status is not None or target is None:
            return await self.refuse(status or 400)
        self.context.head.leave(self.owner)
        self.owner.update(busy=True)
        self.stream = Stream(self.owner, self, 1, request.method.decode("ascii"))
        self.stream.begin(request.http_version.decode("ascii"), target, headers)
        if self.connection.they_are_waiting_for_100_continue:
            await self._write(self._encode(h11.InformationalResponse(status_code=100, headers=[])))
        return None

    async def room(self, stream: Stream) -> None:
        """Returns at once: one request is answered after the other, so there is room for its response."""

    def made(self, stream: Stream) -> None:
        """Does nothing: no request waits for another's response to begin."""

    async def send_head(self, stream: Stream, status: int, headers: Headers) -> None:
        """The head waits for the first of the body (ASGI HTTP, "Response Start"), so that both are one write."""
        close = [] if stream.body_done and not self.context.stopping else [(b"connection", b"close")]
        self._out = self._encode(h11.Response(headers=[*headers, *self.context.headers, *close], status_code=status))

    async def send_body(self, stream: Stream, data: bytes, *, last: bool) -> None:
        """A part of the body, behind the head if that is still here."""
        data = self._out + self._encode(h11.Data(data=data))
        if last:
            data += self._encode(h11.EndOfMessage())
        self._out = b""
        await self._write(data)

    async def send_bare(self, stream: Stream, status: int) -> None:
        """A status without a body; the connection ends with it."""
        await self._send_status(status)

    async def _send_status(self, status: int) -> None:
        headers = [(b"content-length", b"0"), (b"connection", b"close"), *self.context.headers]
        response = self._encode(h11.Response(status_code=status, headers=headers))
        await self._write(response + self._encode(h11.EndOfMessage()))

    async def _write(self, data: bytes) -> None:
        if data:
            await self.owner.write(data)

    def _encode(self, event: h11.Event) -> bytes:
        """The event's bytes; none where the connection has failed already."""
        lost = self.connection.our_state is h11.ERROR
        try:
            return self.connection.send(event) or b""
        except h11.LocalProtocolError:
            if lost or self.connection.their_state is h11.ERROR:
                return b""
            raise

    async def refuse(self, status: int) -> None:
        """Respond with a bare status, if no response has begun, and end the connection."""
        if self.connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            await self._send_status(status)
        self.owner.end()

    async def end_stream(self, stream: Stream) -> None:
        """The response is over: on to the next request, or the end."""
        self.stream = None
        states = (self.connection.our_state, self.connection.their_state)
        if states == (h11.DONE, h11.DONE) and not self.context.stopping:
            self.connection.start_next_cycle()
            self.paused = False
            self.fresh = not self.connection.trailing_data[0]
            self.owner.update(busy=False)
        else:
            self.owner.end()
        # The app is told last: at http.disconnect quart-trio cancels the task that runs this, and the connection would
        # not be brought to its end (pgjones/hypercorn#330).
        await stream.leave()
