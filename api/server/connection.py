"""One connection, from handshake to close. Whatever goes wrong on it ends this connection alone."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from hatchway.api.http.request import Request, Response
from hatchway.api.server.apps import App
from hatchway.api.server.context import Context
from hatchway.api.server.deadlines import LOG, WaitKind
from hatchway.api.server.h1 import H1, PENDING_BYTES
from hatchway.api.server.plain_requests import FastPath, PlainParser, encode
from hatchway.api.server.sockets import Socket, Writer
from hatchway.api.server.streams import SocketAddress

if TYPE_CHECKING:
    from hatchway.api.server.h2 import H2

FAILED = Response(500, b"", ())

RESPONSES_AT_ONCE = 64 * 1024
"""Bytes of responses to pipelined requests that are sent in one write. No more are made before the client reads
them."""

HANDSHAKE_COST = 48 * 1024
"""Bytes that OpenSSL keeps for a handshake that waits for its client."""

LARGE_READ = 4096
"""Bytes read at once, past which handling them waits as the start of a request does (`starts`): forty bodies that
arrive together would else hold up other clients for 10 ms."""

HALF_CLOSE_GRACE = 0.1
"""Seconds in which a client that has closed its side (`nc -N`) may get a response; then it counts as gone."""


class Connection:
    """A client's connection. It is ended by `end` (after the response), `cancel` (the app is cancelled) or `cut` (at
    once); none of them waits."""

    client: SocketAddress
    server: SocketAddress
    protocol: H1 | H2
    """`_begin` sets these three, once the handshake is over."""

    def __init__(self, app: App, context: Context, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        self.app, self.context = app, context
        self.socket = Socket(sock, context.write, self)
        self.stream: Socket | trio.SSLStream[Socket] = self.socket
        self.writer = Writer(self.socket, context, self)
        self.places = context.places(sock.family)
        self.share = self.places.share(sock)
        self.held_bytes = 0
        """Bytes kept for the client; `Places` counts them."""
        self.busy = False
        """Whether a request is being answered."""
        self.secure, self._tls = tls is not None, tls
        self._asked = False
        """Whether the client has made a request yet."""
        self._late = False
        """Whether a head did not come whole in its time: the client is told so."""
        self._nursery: trio.Nursery | None = None
        self._reading = trio.CancelScope()
        self._ended = False
        self._pause: trio.CancelScope | None = None
        """Around the wait of a reader whose protocol takes nothing now. Cancelled once it goes on."""
        self._quiet: trio.Event | None = None
        """Set when no request is being answered any more, for a client that has closed its side."""
        context.join(self)

    async def run(self) -> None:
        """Serve the client until either side ends it. Raises nothing but Cancelled."""
        try:
            async with trio.open_nursery() as self._nursery:
                await self._serve()
        except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            pass  # the client has left
        except* Exception:
            LOG.exception("a connection ended in an error of ours")
        finally:
            self.cut()
            self.context.leave(self)
            self._let_go()

    def _let_go(self) -> None:
        """Break the reference cycles of this connection. Else the memory of OpenSSL (tens of kilobytes) and h2
        (hundreds of objects) would be freed only by the garbage collector, which runs late."""
        protocol: H1 | H2 | None = vars(self).pop("protocol", None)
        if protocol is not None:
            protocol.let_go()
        if self.stream is not self.socket:
            vars(self.stream).clear()
        del self.stream, self.writer
        self.socket.let_go()

    async def _serve(self) -> None:
        begun = False
        with self._reading:
            await self._begin(await self._handshake())
            begun = True
            await self._read()
        if not begun:
            return
        if self._late and isinstance(self.protocol, H1):
            await self.protocol.refuse(408)
        await self.protocol.close()
        self.socket.linger = self.protocol.unread
        await self.writer.close()

    async def _handshake(self) -> str:
        if self._tls is None:
            return "http/1.1"
        with trio.fail_after(self.context.limits().header_seconds):
            await self.socket.wait_readable()  # before OpenSSL takes tens of kilobytes for it
            await self.turn()
            self.hold(HANDSHAKE_COST)
            self.stream = encrypted = trio.SSLStream(self.socket, self._tls, server_side=True)
            self.writer.encrypt(encrypted)
            await encrypted.do_handshake()
        self._tls = None
        self.hold(-HANDSHAKE_COST)
        return encrypted.selected_alpn_protocol() or "http/1.1"

    async def turn(self) -> None:
        """Wait until this client's address may begin a request (see `starts`)."""
        await self.context.starts.turn(self.share.address)

    async def _begin(self, alpn: str) -> None:
        self.client, self.server = _address(self.socket.sock.getpeername()), _address(self.socket.sock.getsockname())
        self._plain = PlainParser((self.client, self.server))
        if alpn == "h2":
            from hatchway.api.server.h2 import H2  # HTTP/2 is for TLS alone, which many engines don't have

            self.protocol = H2(self)
            await self.protocol.initiate()
        else:
            self.protocol = H1(self)
        self.context.idle.enter(self)

    async def _read(self) -> None:
        while True:
            try:
                data = await self._paused() if self.protocol.paused else bytes(await self.stream.receive_some())
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return None
            if data is None:
                await self.protocol.resume()
                continue
            rest = data
            if data and self.context.fast_path is not None and self.protocol.fresh and not self.context.stopping:
                rest = await self._respond_to_plain(data, self.context.fast_path)
            if len(rest) > LARGE_READ:
                await self.turn()
            if rest or not data:
                await self.protocol.receive(rest)
            if not data:
                return await self._half_closed()
            del data, rest  # else they would be kept until the next request comes

    async def _respond_to_plain(self, data: bytes, fast_path: FastPath) -> bytes:
        """Respond to the plain requests at the beginning of `data`, in one write. Returns the rest, as it came."""
        responses: list[bytes] = []
        begin = size = 0
        while begin < len(data) and not (self.context.stopping or self._ended):
            if responses:  # the requests are pipelined: other connections go first
                self.update(busy=True)
                await trio.lowlevel.checkpoint()
            found = self._plain.recognise(data, begin, self.context.header_bytes)
            response = None if found is None else await self._respond(found[0], fast_path)
            if found is None or response is None:
                self._plain.forget()
                break
            responses.append(response)
            begin, size = found[1], size + len(response)
            if size >= RESPONSES_AT_ONCE:
                await self._write_before_more(b"".join(responses), len(data))
                responses, size = [], 0
        if responses:
            joined = b"".join(responses) if len(responses) > 1 else responses[0]
            if not self.writer.put(joined):
                await self.writer.write(joined)
            self.update(busy=False)
        return b"" if self._ended else data[begin:]

    async def _write_before_more(self, responses: bytes, unread: int) -> None:
        """Write responses to pipelined requests. No more are made before the client has read these."""
        self.hold(unread)
        try:
            await self.writer.write(responses)
        finally:
            self.hold(-unread)

    async def _respond(self, request: Request, fast_path: FastPath) -> bytes | None:
        """The gateway's response as bytes; None where it leaves the request to the app. An error is a 500, and ends the
        connection."""
        date = self.context.date
        try:
            response = fast_path(request)
            if response is None:
                return None
            if not isinstance(response, Response):
                self.update(busy=True)
                response = await response
            return encode(response, date, closing=self.context.stopping)
        except Exception:
            LOG.exception("the fast path failed at %r", request.path)
            self.end()
            return encode(FAILED, date, closing=True)

    async def _paused(self) -> bytes | None:
        """What the client sends while the protocol is paused; empty at its end. None where the protocol goes on
        first."""
        with trio.CancelScope() as self._pause:
            if self.protocol.full:
                await trio.sleep_forever()
            return bytes(await self.stream.receive_some(PENDING_BYTES))
        return None

    async def _half_closed(self) -> None:
        """The client has closed its side. It may wait for its responses, or have left: give it HALF_CLOSE_GRACE."""
        with trio.move_on_after(HALF_CLOSE_GRACE):
            while self.busy:
                self._quiet = trio.Event()
                await self._quiet.wait()
                await self.protocol.resume()

    def update(self, *, busy: bool) -> None:
        """Note whether a request is being answered. Where none is, the idle time begins."""
        self.busy = busy
        if not self._asked:
            self._asked = True
            self.places.asked(self)
        if busy:
            self.context.idle.leave(self)
            return
        self.context.idle.enter(self)
        if self._pause is not None:
            self._pause.cancel()
        if self._quiet is not None:
            self._quiet.set()
        if self.context.stopping:
            self.end()

    async def write(self, data: bytes) -> None:
        """Send bytes, in the order of the calls."""
        await self.writer.write(data)

    def spawn(self, call: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run a task that is cancelled when the connection ends. Only tasks of the connection may call this."""
        if self._nursery is None:
            raise RuntimeError("a connection that does not run")
        self._nursery.start_soon(call, *args)

    def expire(self, kind: WaitKind) -> None:
        """A deadline of this connection is over."""
        if kind is WaitKind.WRITE:
            if self.socket.took(self.context.least_taken):
                self.context.write.enter(self)
            else:
                self.cut()
            return
        self._late = kind is WaitKind.HEAD
        self.end()

    def hold(self, change: int) -> None:
        """`change` more bytes are kept for the client, or fewer. Past the bound for all, one connection is cut off."""
        self.places.hold(self, change)

    def stop(self) -> None:
        """The engine is ending: close now if nothing is being answered, else after the answer."""
        self.socket.hurry()
        if not self.busy:
            self.end()

    def end(self) -> None:
        """Read no more and close."""
        self._ended = True
        self._reading.cancel()

    def cancel(self) -> None:
        """End, and cancel what is being answered."""
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    def give_way(self) -> None:
        """Close at once. A response that was sent still arrives, and an idle connection ends without a reset."""
        if self.busy or not self._asked or self.protocol.unread:
            self.cut()
        else:
            self.end()

    def cut(self) -> None:
        """Drop the connection. Tasks that wait for it get an error."""
        self.socket.cut()


def _address(address: Any) -> SocketAddress:
    """One end of a connection, from what the socket says: address and port, None at a Unix socket."""
    return address[:2] if isinstance(address, tuple) else None
