"""HTTP/2 by h2, over TLS alone: the same refusals and ends as HTTP/1.1; a stream's end never hurts its neighbours."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import h2.errors
import h2.events
import h2.exceptions
import h2.settings
from hypercorn.events import Closed, Event, Updated
from hypercorn.protocol.events import Body, EndBody, Request, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h2 import H2Protocol, StreamBuffer
from hypercorn.utils import filter_pseudo_headers
from priority.priority import DuplicateStreamError

from api.transport.context import Context
from api.transport.streams import LastBody, Stream

RESETS = 200
"""Streams that a client may take back on one connection; more is the rapid reset attack (CVE-2023-44487)."""

VISIBLE = frozenset(range(0x21, 0x7F))


def refusal(headers: list[tuple[bytes, bytes]], limit: int) -> int | None:
    """The status that refuses a request's header block, or None. Counted as HTTP/1.1 would write it."""
    if sum(len(name) + len(value) + 4 for name, value in headers) > limit:
        return 431
    fields = dict(headers)
    path, method = fields.get(b":path", b""), fields[b":method"]
    if method == b"CONNECT" or not path.startswith(b"/") or not VISIBLE.issuperset(path + method):
        return 400
    return None


class H2(H2Protocol):
    """One connection's HTTP/2, without its WebSockets and server push."""

    context: Context
    streams: dict[int, Stream]  # type: ignore[assignment]
    paused = full = fresh = unread = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._resets = 0
        self.connection.local_settings = h2.settings.Settings(
            client=False,
            initial_values={
                h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: self.config.h2_max_concurrent_streams,
                h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE: self.config.h2_max_header_list_size,
            },
        )

    async def resume(self) -> None:
        """Nothing is ever kept back here."""

    async def handle(self, event: Event) -> None:
        """Bytes from the client, none at its end; or Closed, after which nothing more is read or said."""
        if isinstance(event, Closed) and not self.closed:
            with suppress(h2.exceptions.ProtocolError):
                self.connection.close_connection()
            await self._flush()
        await super().handle(event)
        if self.closed:
            for buffer in self.stream_buffers.values():
                await buffer.close()  # whoever waits for a window gets none any more

    async def _handle_events(self, events: list[h2.events.Event]) -> None:
        for event in events:
            if isinstance(event, h2.events.DataReceived) and event.stream_id not in self.streams:
                # Answered before its body had come: the rest still counts for the connection's window.
                self.connection.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
                continue
            await super()._handle_events([event])
            if isinstance(event, h2.events.StreamReset):
                self._resets += 1
                if self._resets > RESETS:
                    await self.send(Closed())
            if isinstance(event, h2.events.RequestReceived | h2.events.StreamReset):
                await self.send(Updated(idle=self.idle))
        await self._flush()

    async def _create_stream(self, request: h2.events.RequestReceived) -> None:
        headers, stream_id = request.headers or [], request.stream_id or 0
        status = refusal(headers, self.context.header_bytes)
        if status is not None:
            return await self._refuse(stream_id, status)
        stream = Stream(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            stream_id,
        )
        self.streams[stream_id] = stream
        self.stream_buffers[stream_id] = StreamBuffer(self.context.event_class)
        with suppress(DuplicateStreamError):  # its PRIORITY frame may have come first
            self.priority.insert_stream(stream_id)
            self.priority.block(stream_id)
        fields = dict(headers)
        method, path = fields[b":method"].decode("ascii"), fields[b":path"]
        plain = filter_pseudo_headers(headers)
        await stream.handle(Request(stream_id, plain, "2", method, path, self.connection_state))
        if request.stream_ended is None:
            self.context.body.enter(stream)
        return None

    async def _refuse(self, stream_id: int, status: int) -> None:
        headers = [(b":status", b"%d" % status), (b"content-length", b"0"), *self.config.response_headers("h2")]
        self.connection.send_headers(stream_id, headers, end_stream=True)
        self._reset(stream_id, h2.errors.ErrorCodes.NO_ERROR)
        await self._flush()

    def _reset(self, stream_id: int, code: h2.errors.ErrorCodes) -> None:
        """Let go of a stream that one side has not ended; nothing, if both have."""
        with suppress(h2.exceptions.ProtocolError):
            self.connection.reset_stream(stream_id, code)

    async def stream_send(self, event: StreamEvent) -> None:
        """A part of an answer. Whoever's client opens no window for it waits in the queue of writes."""
        stream = self.streams.get(event.stream_id)
        if stream is None:
            return
        if isinstance(event, StreamClosed):
            await self._end(event.stream_id)
            await super().stream_send(event)
        elif isinstance(event, Body):
            self.context.write.enter(stream)
            try:
                if event.data:
                    await super().stream_send(Body(event.stream_id, event.data))
                if isinstance(event, LastBody):
                    await super().stream_send(EndBody(event.stream_id))
            finally:
                self.context.write.leave(stream)
        else:
            await super().stream_send(event)

    async def _end(self, stream_id: int) -> None:
        """The stream is over for its app: cut what is unsaid, and let go of what is unread."""
        buffer = self.stream_buffers.get(stream_id)
        if buffer is None:
            self._reset(stream_id, h2.errors.ErrorCodes.NO_ERROR)
        elif not buffer.complete:
            self._reset(stream_id, h2.errors.ErrorCodes.INTERNAL_ERROR)
            await buffer.close()
        await self._flush()

    async def _send_data(self, stream_id: int) -> None:
        stream, buffer = self.streams.get(stream_id), self.stream_buffers.get(stream_id)
        before = len(buffer.buffer) if buffer is not None else 0
        await super()._send_data(stream_id)
        if stream is not None and buffer is not None and len(buffer.buffer) < before:
            self.context.write.renew(stream)
