"""One connection from handshake to close: it reads until somebody ends it, and nothing it meets gets past it."""

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
from hatchway.api.server.lane import Lane, PlainParser, encode
from hatchway.api.server.sockets import Socket
from hatchway.api.server.streams import End
from hatchway.api.server.writer import Writer

if TYPE_CHECKING:
    from hatchway.api.server.h2 import H2

FAILED = Response(500, b"", ())

ANSWERS_AT_ONCE = 64 * 1024
"""Bytes of pipelined answers that are sent in one write; no more are made before the client takes them."""

HANDSHAKE_COST = 48 * 1024
"""What OpenSSL keeps for a handshake that waits for its client."""

HALF_CLOSE_GRACE = 0.1
"""Seconds for an answer to a client that has said its last word; then it is taken to have left (`nc -N`, field B7)."""


class Connection:
    """A client's connection. Whoever wants it over calls `end` (politely), `cancel` (the app too) or `cut` (at once);
    none of them waits."""

    client: End
    server: End
    protocol: H1 | H2
    """These three are there once the handshake is over (`_begin`)."""

    def __init__(self, app: App, context: Context, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        self.app, self.context = app, context
        self.socket = Socket(sock, context.write, self)
        self.stream: Socket | trio.SSLStream[Socket] = self.socket
        self.writer = Writer(self.socket, context, self)
        self.places = context.places(sock.family)
        self.share = self.places.share(sock)
        self.held = 0
        self.busy = False
        self.secure, self._tls = tls is not None, tls
        self._asked = False
        self._late = False
        self._nursery: trio.Nursery | None = None
        self._reading = trio.CancelScope()
        self._ended = False
        self._pause: trio.CancelScope | None = None
        self._quiet: trio.Event | None = None
        context.join(self)

    async def run(self) -> None:
        """Serve the client until either side ends it. Raises nothing but Cancelled."""
        try:
            async with trio.open_nursery() as self._nursery:
                await self._converse()
        except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            pass  # the client is gone, on whatever path
        except* Exception:
            LOG.exception("a connection ended in an error of ours")
        finally:
            self.cut()
            self.context.leave(self)
            self._let_go()

    def _let_go(self) -> None:
        """Take apart what holds this connection, or itself, in a circle. The garbage collector comes late: what OpenSSL
        keeps, tens of kilobytes, would wait for it, and so would hundreds of objects of h2's."""
        protocol: H1 | H2 | None = vars(self).pop("protocol", None)
        if protocol is not None:
            protocol.let_go()
        if self.stream is not self.socket:
            vars(self.stream).clear()
        del self.stream, self.writer
        self.socket.let_go()

    async def _converse(self) -> None:
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
            await self.socket.wait_readable()  # OpenSSL's tens of kilobytes are for those who say something
            await self.turn()
            self.hold(HANDSHAKE_COST)
            self.stream = encrypted = trio.SSLStream(self.socket, self._tls, server_side=True)
            self.writer.encrypt(encrypted)
            await encrypted.do_handshake()
        self._tls = None
        self.hold(-HANDSHAKE_COST)
        return encrypted.selected_alpn_protocol() or "http/1.1"

    async def turn(self) -> None:
        """Until something of this client may begin in this tick of the event loop."""
        await self.context.starts.turn(self.share.address)

    async def _begin(self, alpn: str) -> None:
        self.client, self.server = _address(self.socket.sock.getpeername()), _address(self.socket.sock.getsockname())
        self._plain = PlainParser((self.client, self.server))
        if alpn == "h2":
            from hatchway.api.server.h2 import H2  # HTTP/2 is spoken over TLS alone, which many engines have not

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
            if data and self.context.lane is not None and self.protocol.fresh and not self.context.stopping:
                rest = await self._answer_plain(data, self.context.lane)
            if rest or not data:
                await self.protocol.receive(rest)
            if not data:
                return await self._half_closed()
            del data, rest  # they would be kept as long as the next request is waited for

    async def _answer_plain(self, data: bytes, lane: Lane) -> bytes:
        """Answer the plain requests that `data` begins with, all in one write; gives the rest, untouched."""
        answers: list[bytes] = []
        begin = size = 0
        while begin < len(data) and not (self.context.stopping or self._ended):
            if answers:  # pipelined: the others want their turn
                self.update(busy=True)
                await trio.lowlevel.checkpoint()
            found = self._plain.recognise(data, begin, self.context.header_bytes)
            answer = None if found is None else await self._answer(found[0], lane)
            if found is None or answer is None:
                self._plain.forget()
                break
            answers.append(answer)
            begin, size = found[1], size + len(answer)
            if size >= ANSWERS_AT_ONCE:
                await self._write_before_more(b"".join(answers), len(data))
                answers, size = [], 0
        if answers:
            said = b"".join(answers) if len(answers) > 1 else answers[0]
            if not self.writer.put(said):
                await self.writer.write(said)
            self.update(busy=False)
        return b"" if self._ended else data[begin:]

    async def _write_before_more(self, answers: bytes, unread: int) -> None:
        """Pipelined answers: no more are made before the client has taken these."""
        self.hold(unread)
        try:
            await self.writer.write(answers)
        finally:
            self.hold(-unread)

    async def _answer(self, request: Request, lane: Lane) -> bytes | None:
        """The lane's answer as bytes, None if it leaves the request to the app. Its error is a 500 and the end."""
        date = self.context.date
        try:
            response = lane(request)
            if response is None:
                return None
            if not isinstance(response, Response):
                self.update(busy=True)
                response = await response
            return encode(response, date, closing=self.context.stopping)
        except Exception:
            LOG.exception("the lane raised at %r", request.path)
            self.end()
            return encode(FAILED, date, closing=True)

    async def _paused(self) -> bytes | None:
        """What the client sent; none at its end; None if the protocol has something to go on with before that."""
        with trio.CancelScope() as self._pause:
            if self.protocol.full:
                await trio.sleep_forever()
            return bytes(await self.stream.receive_some(PENDING_BYTES))
        return None

    async def _half_closed(self) -> None:
        """The client will send no more. It may still want its answers, or have left: time tells."""
        with trio.move_on_after(HALF_CLOSE_GRACE):
            while self.busy:
                self._quiet = trio.Event()
                await self._quiet.wait()
                await self.protocol.resume()

    def update(self, *, busy: bool) -> None:
        """Whether a request is being answered. Where none is, the idle time begins."""
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
        """Run something as long as the connection lasts, at most. Only what runs in the connection may call this."""
        if self._nursery is None:
            raise RuntimeError("a connection that does not run")
        self._nursery.start_soon(call, *args)

    def expire(self, kind: WaitKind) -> None:
        """A wait of this connection's took too long."""
        if kind is WaitKind.WRITE:
            if self.socket.took(self.context.least_taken):
                self.context.write.enter(self)
            else:
                self.cut()
            return
        self._late = kind is WaitKind.HEAD
        self.end()

    def hold(self, change: int) -> None:
        """So many more bytes wait here for the client, or fewer. Past what all may have held, one is cut off."""
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
        """Close at once. An answer that was sent still arrives, and the end of an idle connection is a plain one."""
        if self.busy or not self._asked or self.protocol.unread:
            self.cut()
        else:
            self.end()

    def cut(self) -> None:
        """Drop the connection; whoever waits for it is told."""
        self.socket.cut()


def _address(address: Any) -> End:
    """One end of a connection, of what the socket says: IPv6 says more, a Unix socket says a path."""
    return address[:2] if isinstance(address, tuple) else None
