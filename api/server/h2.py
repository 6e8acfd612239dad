"""HTTP/2 by h2, over TLS alone: it refuses and ends requests as HTTP/1.1 does; a stream that fails ends alone."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, cast

import h2.errors
import h2.events
import h2.exceptions
import h2.settings
import trio
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Body, EndBody, Response, StreamClosed
from hypercorn.protocol.h2 import H2Protocol

from hatchway.api.server.apps import ClientGone
from hatchway.api.server.h2_parts import H2Config, H2Context, H2Stream, Unsent
from hatchway.api.server.places import CONNECTION_BYTES, WAITING_COST
from hatchway.api.server.streams import Headers, Owner, Stream

IDLE_FRAMES = 200
"""Frames that ask for nothing (PING, SETTINGS, PRIORITY, RST_STREAM and others, DATA of a few bytes) that a client may
send at once; more is a flood, such as the rapid reset attack (CVE-2023-44487), and ends the connection."""

IDLE_FRAMES_A_SECOND = 10
"""How many of them it may send for ever."""

FRAMES_FOR_DATA = 2
"""Frames that a client may send for each DATA frame of ours: it opens the window of the stream and of the
connection."""

FEW_BYTES = 256

READ_AT_ONCE = 1024
"""Bytes that are read before other tasks run: they may be a hundred frames."""

UNFINISHED_BYTES = 128 * 1024
"""Bytes of a frame, or of a header block in CONTINUATION frames, that may come before it must be complete."""

ENCODER_TABLE = 4096
"""Bytes of the table of sent headers that a client may ask for (RFC 7541 section 4.2): the default."""

PIECE = 16 * 1024
"""Bytes of a response that are copied at once for sending."""

MOST_UNTAKEN = 128 * 1024
"""Bytes of responses that a client may have untaken, and in the making (each counts as WAITING_COST until it begins),
before its further requests wait. A client that opens no window would else have 32 made at once, for a few hundred bytes
of its own."""

VISIBLE = frozenset(range(0x21, 0x7F))


def refusal(headers: list[tuple[bytes, bytes]], limit: int) -> int | None:
    """The status that refuses a request's header block, or None. Counted as HTTP/1.1 would write it."""
    if sum(len(name) + len(value) + 4 for name, value in headers) > limit:
        return 431
    fields = dict(headers)
    path, method = fields.get(b":path", b""), fields[b":method"]
    if method == b"CONNECT" or not path.startswith(b"/") or not VISIBLE.issuperset(path + method):
        return 400
    if not method.isupper():  # as on HTTP/1.1: `get` is no GET (RFC 9110 9.1)
        return 501
    return None


def without_pseudo(headers: Headers) -> Headers:
    """The header fields as an HTTP/1.1 request would have them: `:authority` is its Host (RFC 9113 8.3.1)."""
    fields = dict(headers)
    host = fields.get(b":authority", fields.get(b"host", b""))
    return [(b"host", host), *((name, value) for name, value in headers if name[:1] != b":" and name != b"host")]


class H2(H2Protocol):
    """One connection's HTTP/2, without its WebSockets and server push."""

    streams: dict[int, H2Stream]  # type: ignore[assignment]
    stream_buffers: dict[int, Unsent]  # type: ignore[assignment]
    paused = full = fresh = unread = False

    def __init__(self, owner: Owner) -> None:
        unused: Any = None  # app, state and ends are for streams that H2Protocol makes itself; here it makes none
        super().__init__(
            unused,
            H2Config(owner.context),
            cast(Any, H2Context(owner.context)),
            cast(Any, owner),
            unused,
            True,
            None,
            None,
            self._say,
        )
        self.owner = owner
        self._over = False
        self._allowance, self._allowed_at = float(IDLE_FRAMES), trio.current_time()
        self._coming = self._unfinished = self._untaken = 0
        self._making: set[Stream] = set()
        self._waiting = trio.lowlevel.ParkingLot()
        self.connection.local_settings = h2.settings.Settings(
            client=False,
            initial_values={
                h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: self.config.h2_max_concurrent_streams,
                h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE: self.config.h2_max_header_list_size,
            },
        )

    async def _say(self, event: Event) -> None:
        """Handle an event of H2Protocol's: bytes to send, that it is idle or busy, or that it has ended."""
        if isinstance(event, RawData):
            await self.owner.write(event.data)
        elif isinstance(event, Updated):
            self.owner.update(busy=not event.idle)
        elif isinstance(event, Closed):
            self.owner.end()

    async def resume(self) -> None:
        """Does nothing, since HTTP/2 is never paused."""

    async def close(self) -> None:
        """Read and send nothing more, and tell the apps that the client has left."""
        if not self.closed:
            with suppress(h2.exceptions.ProtocolError):
                self.connection.close_connection()
            await self._flush()
        await self.handle(Closed())
        for buffer in self.stream_buffers.values():
            await buffer.close()  # tasks that wait for a window are woken

    def let_go(self) -> None:
        """Break the reference cycles: H2Protocol and h2 keep tables of their own methods."""
        vars(self.connection).clear()
        vars(self).clear()

    async def receive(self, data: bytes) -> None:
        """Bytes from the client, none at its end."""
        for begin in range(0, len(data), READ_AT_ONCE):
            await self.owner.turn()
            part = data[begin : begin + READ_AT_ONCE]
            self._coming = len(part)
            await self.handle(RawData(part))
            if self._over:
                return

    def _end_connection(self) -> None:
        self._over = True
        self.owner.end()

    def _is_flood(self, event: h2.events.Event) -> bool:
        """Count a frame that asks for nothing. Returns whether there were too many."""
        if isinstance(event, h2.events.RequestReceived | h2.events.TrailersReceived | h2.events.StreamEnded):
            return False
        if isinstance(event, h2.events.DataReceived) and (event.stream_ended or len(event.data or b"") >= FEW_BYTES):
            return False
        now = trio.current_time()
        back = (now - self._allowed_at) * IDLE_FRAMES_A_SECOND
        self._allowance, self._allowed_at = min(IDLE_FRAMES, self._allowance + back) - 1, now
        return self._allowance < 0

    def _hold_unfinished(self, *, whole: bool) -> bool:
        """Count the bytes of an incomplete frame. Returns whether they are too many."""
        before, self._unfinished = self._unfinished, 0 if whole else self._unfinished + self._coming
        self.owner.hold(self._unfinished - before)
        return self._unfinished > UNFINISHED_BYTES

    async def _handle_events(self, events: list[h2.events.Event]) -> None:
        if self._hold_unfinished(whole=bool(events)):
            return self._end_connection()
        for event in events:
            if self._is_flood(event):
                return self._end_connection()
            if isinstance(event, h2.events.PriorityUpdated):
                continue  # priorities are deprecated (RFC 9113 5.3.2), and ignored
            if isinstance(event, h2.events.DataReceived) and event.stream_id not in self.streams:
                # The response came before the whole body. What still comes counts for the connection's window.
                self.connection.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
                continue
            await super()._handle_events([event])
            if isinstance(event, h2.events.RemoteSettingsChanged):
                table = self.connection.encoder.header_table_size
                self.connection.encoder.header_table_size = min(table, ENCODER_TABLE)
            if isinstance(event, h2.events.RequestReceived | h2.events.StreamReset):
                self.owner.update(busy=not self.idle)
        return await self._flush()

    async def _create_stream(self, request: h2.events.RequestReceived) -> None:
        headers, stream_id = request.headers or [], request.stream_id or 0
        status = refusal(headers, self.owner.context.header_bytes)
        if status is not None:
            return await self._refuse(stream_id, status)
        if self.owner.held_bytes > CONNECTION_BYTES:  # the client may try again when it has read some of its responses
            return self._reset(stream_id, h2.errors.ErrorCodes.REFUSED_STREAM)
        fields = dict(headers)
        stream = H2Stream(self.owner, self, stream_id, fields[b":method"].decode("ascii"))
        self.streams[stream_id] = stream
        self.stream_buffers[stream_id] = Unsent()
        self.priority.insert_stream(stream_id)
        self.priority.block(stream_id)
        stream.begin("2", fields[b":path"], without_pseudo(headers))
        if request.stream_ended is None:
            stream.wait_for_body()
        return None

    async def _refuse(self, stream_id: int, status: int) -> None:
        headers = [(b":status", b"%d" % status), (b"content-length", b"0"), *self.config.response_headers("h2")]
        self.connection.send_headers(stream_id, headers, end_stream=True)
        self._reset(stream_id, h2.errors.ErrorCodes.NO_ERROR)
        await self._flush()

    def _reset(self, stream_id: int, code: h2.errors.ErrorCodes) -> None:
        """Reset a stream, unless both sides have ended it."""
        with suppress(h2.exceptions.ProtocolError):
            self.connection.reset_stream(stream_id, code)

    async def room(self, stream: Stream) -> None:
        """Wait until the client has taken enough for another request to begin. Raises ClientGone."""
        while self._untaken > MOST_UNTAKEN and not stream.closed:
            await self._waiting.park()
        if stream.closed:
            raise ClientGone("nobody waits for this response")
        self._making.add(stream)
        self._untaken += WAITING_COST

    def made(self, stream: Stream) -> None:
        """The response begins, or nobody waits for it any more: other requests may begin."""
        self._free(WAITING_COST if stream in self._making else 0)
        self._making.discard(stream)

    def _free(self, size: int) -> None:
        self._untaken -= size
        self._waiting.unpark_all()

    async def send_head(self, stream: Stream, status: int, headers: Headers) -> None:
        """Begin a response."""
        self.made(stream)
        if stream.number in self.streams:
            await self.stream_send(Response(stream.number, headers, status))

    async def send_body(self, stream: Stream, data: bytes, *, last: bool) -> None:
        """Send a part of a body. While the client opens no window for it, the stream waits in the queue of writes."""
        if stream.number not in self.streams:
            return
        cost = WAITING_COST + len(data)
        self.owner.hold(cost)
        self._untaken += cost
        self.owner.context.write.enter(stream)
        try:
            await self._send_pieces(stream.number, memoryview(data))
            if last:
                await self.stream_send(EndBody(stream.number))
        finally:
            self.owner.context.write.leave(stream)
            self.owner.hold(-cost)
            self._free(cost)

    async def _send_pieces(self, stream_id: int, data: memoryview) -> None:
        for begin in range(0, len(data), PIECE):
            if stream_id in self.streams:
                await self.stream_send(Body(stream_id, data[begin : begin + PIECE]))  # type: ignore[arg-type]

    async def send_bare(self, stream: Stream, status: int) -> None:
        """A status without a body."""
        await self.send_head(stream, status, [(b"content-length", b"0")])
        await self.send_body(stream, b"", last=True)

    async def end_stream(self, stream: Stream) -> None:
        """The response is over, or its client has left."""
        if stream.number in self.streams:
            await self._end(stream.number)
            await self.stream_send(StreamClosed(stream.number))

    async def _end(self, stream_id: int) -> None:
        """The stream is over for its app: drop what was not sent, and what was not read."""
        buffer = self.stream_buffers.get(stream_id)
        if buffer is None:
            self._reset(stream_id, h2.errors.ErrorCodes.NO_ERROR)
        elif not buffer.complete:
            self._reset(stream_id, h2.errors.ErrorCodes.INTERNAL_ERROR)
            await buffer.close()
        await self._flush()

    async def _send_data(self, stream_id: int) -> None:
        stream, buffer = self.streams.get(stream_id), self.stream_buffers.get(stream_id)
        before = len(buffer) if buffer is not None else 0
        await super()._send_data(stream_id)
        if stream is None or buffer is None or len(buffer) >= before:
            return
        self._allowance += FRAMES_FOR_DATA
        stream.taken += before - len(buffer)
        if stream.taken >= self.owner.context.least_taken:
            stream.taken = 0
            self.owner.context.write.renew(stream)
