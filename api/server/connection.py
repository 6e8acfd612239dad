"""One connection from handshake to close: it reads until somebody ends it, and nothing it meets gets past it."""

from __future__ import annotations

from typing import Any

import trio
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.typing import ConnectionState
from hypercorn.utils import parse_socket_addr

from hatchway.api.http.request import Request, Response
from hatchway.api.server.apps import Apps
from hatchway.api.server.context import Context
from hatchway.api.server.deadlines import LOG, WaitKind
from hatchway.api.server.h1 import H1, PENDING_BYTES
from hatchway.api.server.h2 import H2
from hatchway.api.server.lane import Lane, encode, recognise
from hatchway.api.server.sockets import Socket

FAILED = Response(500, b"", ())

KNOWN_BYTES = 2048
"""A request up to this size is remembered beside its connection, in case the client sends the same again."""

ANSWERS_AT_ONCE = 64 * 1024
"""Bytes of pipelined answers that are sent in one write; no more are made before the client takes them."""

HANDSHAKE_COST = 48 * 1024
"""What OpenSSL keeps for a handshake that waits for its client."""

HALF_CLOSE_GRACE = 0.1
"""Seconds for an answer to a client that has said its last word; then it is taken to have left (`nc -N`, field B7)."""


class Connection(TCPServer):
    """Hypercorn's TCPServer with its own reading, writing and ending.

    Whoever wants it over calls `end` (politely), `cancel` (the app too) or `cut` (at once); none of them waits.
    """

    context: Context
    protocol: H1 | H2  # type: ignore[assignment]

    def __init__(self, app: Any, config: Any, context: Context, state: ConnectionState, sock: Any, tls: Any) -> None:
        self.socket = Socket(sock, context.write, self)
        stream: Any = self.socket
        super().__init__(app, config, context, state, stream)
        del self.idle_task  # the sweeper keeps the time for all
        self.places = context.places(sock.family)
        self.share = self.places.share(sock)
        self.held = 0
        self._asked = False
        self.secure, self._tls = tls is not None, tls
        self.busy = False
        self._late = False
        self._apps, self._reading = Apps(self.turn), trio.CancelScope()
        self._ended = False
        self._begun = False
        self._known: tuple[bytes, tuple[Request, int] | None] = (b"", None)
        self._unsent = b""
        self._pause: trio.CancelScope | None = None
        self._quiet: trio.Event | None = None
        context.join(self)

    async def run(self) -> None:
        """Serve the client until either side ends it. Raises nothing but Cancelled."""
        try:
            async with self._apps:
                await self._converse()
        except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            pass  # the client is gone, on whatever path
        except* Exception:
            LOG.exception("a connection ended in an error of ours")
        finally:
            self.cut()
            self.context.leave(self)

    async def _converse(self) -> None:
        with self._reading:
            await self._begin(await self._handshake())
            await self._read()
        if not self._begun:
            return
        if self._late and isinstance(self.protocol, H1):
            await self.protocol.refuse(408)
        await self.protocol.handle(Closed())
        await self._close()

    async def _handshake(self) -> str:
        if not self.secure:
            return "http/1.1"
        with trio.fail_after(self.context.limits().header_seconds):
            await self.socket.wait_readable()  # OpenSSL's tens of kilobytes are for those who say something
            await self.turn()
            self.hold(HANDSHAKE_COST)
            outer: Any = trio.SSLStream(self.socket, self._tls, server_side=True)
            self.stream = outer
            await self.stream.do_handshake()
        self._tls = None
        self.hold(-HANDSHAKE_COST)
        return self.stream.selected_alpn_protocol() or "http/1.1"

    async def turn(self) -> None:
        """Until something of this client may begin in this tick of the event loop."""
        await self.context.starts.turn(self.share.address)

    async def _begin(self, alpn: str) -> None:
        family = self.socket.sock.family
        client = parse_socket_addr(family, self.socket.sock.getpeername())
        server = parse_socket_addr(family, self.socket.sock.getsockname())
        state = ConnectionState(self.state)
        parts: Any = (self.app, self.config, self.context, self._apps, state, self.secure, client, server)
        self.protocol = H2(self, *parts, self.protocol_send) if alpn == "h2" else H1(self, *parts, self.protocol_send)
        self._begun = True
        await self.protocol.initiate()
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
                rest = await self._in_lane(data, self.context.lane)
            if rest or not data:
                await self.protocol.handle(RawData(rest))
            if not data:
                return await self._half_closed()
            del data, rest  # they would be kept as long as the next request is waited for

    async def _in_lane(self, data: bytes, lane: Lane) -> bytes:
        """Answer what the lane takes, all in one write; gives the rest, untouched."""
        answers: list[bytes] = []
        begin = size = 0
        while begin < len(data) and not (self.context.stopping or self._ended):
            if answers:  # pipelined: the others want their turn
                self._update(busy=True)
                await trio.lowlevel.checkpoint()
            found = self._recognise(data, begin)
            answer = None if found is None else await self._answer(found[0], lane)
            if found is None or answer is None:
                self._known = (b"", None)
                break
            answers.append(answer)
            begin, size = found[1], size + len(answer)
            if size >= ANSWERS_AT_ONCE:
                await self._write_before_more(b"".join(answers), len(data))
                answers, size = [], 0
        if answers:
            said = b"".join(answers) if len(answers) > 1 else answers[0]
            if not self._put(said):
                await self._write(said)
            self._update(busy=False)
        return b"" if self._ended else data[begin:]

    async def _write_before_more(self, answers: bytes, unread: int) -> None:
        """Pipelined answers: no more are made before the client has taken these."""
        self.hold(unread)
        try:
            await self._write(answers)
        finally:
            self.hold(-unread)

    def _recognise(self, data: bytes, begin: int) -> tuple[Request, int] | None:
        """As `recognise`; a client that asks the same again and again (inspect, by a proxy) is read once."""
        if data == self._known[0] and begin == 0 and len(data) <= self.context.header_bytes:
            return self._known[1]
        found = recognise(data, begin, self.context.header_bytes, (self.protocol.client, self.protocol.server))
        if found is not None and found[0].method == "GET" and found[1] == len(data) <= KNOWN_BYTES and begin == 0:
            self._known = data, found
        return found

    async def _answer(self, request: Request, lane: Lane) -> bytes | None:
        """The lane's answer as bytes, None if it leaves the request to the app. Its error is a 500 and the end."""
        date = self.config.response_headers("h11")[0]
        try:
            response = lane(request)
            if response is None:
                return None
            if not isinstance(response, Response):
                self._update(busy=True)
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

    async def protocol_send(self, event: Event) -> None:
        """What the protocol has for the connection: bytes, that it is idle or busy, or that all is said."""
        if isinstance(event, RawData):
            await self._write(event.data)
        elif isinstance(event, Updated):
            self._update(busy=not event.idle)
        elif isinstance(event, Closed):
            self.end()

    def _update(self, *, busy: bool) -> None:
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

    def _put(self, data: bytes) -> bool:
        """Have it sent with the others of this tick: a client that sleeps is woken once for all. False where something
        else is to be sent first, or encrypted."""
        if self.secure or self._unsent or self.send_lock.locked():
            return False
        self._unsent = data
        self.context.ticks.at_end(self._flush)
        return True

    def _flush(self) -> None:
        """At the end of a tick: send what waits for it; nothing, where a later write has taken it along."""
        if not self._unsent:
            return
        try:
            self._unsent = self._unsent[self.socket.send_now(self._unsent) :]
        except trio.BrokenResourceError:
            self.context.token.run_sync_soon(self.cut)
        else:
            if self._unsent:
                self.context.token.run_sync_soon(self._send_rest)

    def _send_rest(self) -> None:
        """The kernel did not take all of it: a task waits until it does."""
        try:
            if self._unsent and not self.socket.closed:
                self._apps.spawn(self._write, b"")
        except Exception:
            LOG.exception("an answer was not sent, in an error of ours")  # the others' are
            self.cut()

    async def _write(self, data: bytes) -> None:
        """At once as far as the kernel takes it, else in turn. Shielded: half an answer would spoil the next."""
        if self._unsent:
            data, self._unsent = self._unsent + data, b""
        try:
            if not self.secure and not self.send_lock.locked():
                sent = self.socket.send_now(data)
                if sent == len(data):
                    return
                data = data[sent:]
            await self._write_in_turn(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.cut()

    async def _write_in_turn(self, data: bytes) -> None:
        self.hold(len(data))
        try:
            with trio.CancelScope(shield=True):
                async with self.send_lock:
                    await self.stream.send_all(data)
        finally:
            self.hold(-len(data))

    async def _close(self) -> None:
        """Close once what is being written is written; the write's own deadline ends that."""
        self.socket.linger = self.protocol.unread
        if self._unsent:
            await self._write(b"")
        with trio.CancelScope(shield=True):
            await self.send_lock.acquire()
        try:
            await self.stream.aclose()
        finally:
            self.send_lock.release()

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
        self._apps.cancel()

    def give_way(self) -> None:
        """Close at once. An answer that was sent still arrives, and the end of an idle connection is a plain one."""
        if self.busy or not self._asked or self.protocol.unread:
            self.cut()
        else:
            self.end()

    def cut(self) -> None:
        """Drop the connection; whoever waits for it is told."""
        self.socket.cut()
