"""Listening sockets, the loop that accepts connections, and the 503 for those past the limit."""

from __future__ import annotations

import errno
import resource
import socket
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

import trio

from hatchway.api.server.binding import addresses_of, listen, other_loopback
from hatchway.api.server.context import Context
from hatchway.api.server.deadlines import LOG, WaitKind
from hatchway.api.server.silent import SilentConnections
from hatchway.api.server.sockets import Socket
from hatchway.api.server.unix_sockets import bind_private, may_operate
from hatchway.engine.base.errors import EngineUnavailable

BACKLOG = 4096
"""Connections that may wait to be accepted. With 100, as many servers have it, a thousand at once lose SYNs, and each
of them a second."""

SPARE_FILES = 100
"""Descriptors that are left for files: the store, the log, keys, the container runtime."""

REFUSED_AT_ONCE = 32
"""Connections past the limit that get a 503 at once; further ones are cut off without it."""

ACCEPTED_AT_ONCE = 4
"""Connections accepted in one event-loop tick, so that those that are open are served too (see `Context.may_begin`)."""

EXHAUSTED_SECONDS = 0.1
"""Seconds of a pause where the host has no descriptors or no memory left."""

REFUSAL_SECONDS = 2.0
RETRY_AFTER = 5

TlsContext = Callable[[], ssl.SSLContext]
"""Called at each connection, so that a new certificate is used from the next one on."""


ADVICE = {
    errno.EADDRINUSE: "; another program has it, which `ss -ltnp 'sport = {port}'` names: end that, or give another"
    " port, `--port N` or `hatchway config set port N`",
    errno.EACCES: "; ports up to 1023 are root's: give a larger one, `--port N` or `hatchway config set port N`",
}
"""What to do, by the number of the error."""


async def open_sockets(host: str, port: int, *, both_loopbacks: bool = False) -> list[socket.socket]:
    """A listening socket for each address of `host`, all on one port (0: any free one).

    With `both_loopbacks`, beside one loopback address the other too, unless another process has it: a process that
    listened there would get the requests of people who dial `localhost`. Raises EngineUnavailable.
    """
    _check_room()
    try:
        wanted = await addresses_of(host)
        if both_loopbacks:
            wanted += await other_loopback(wanted)
        return listen(wanted, port, BACKLOG)
    except OSError as error:
        advice = ADVICE.get(error.errno or 0, "").format(port=port)
        raise EngineUnavailable(f"can't listen on {host} port {port}: {error.strerror or error}{advice}") from error


def open_unix_socket(path: Path) -> socket.socket:
    """A listening socket at `path`, for this user alone, in the place of what is there. Raises EngineUnavailable,
    FileRefused."""
    _check_room()
    path.unlink(missing_ok=True)
    return bind_private(path, BACKLOG)


def _check_room() -> None:
    if room_for(1) < 1:
        raise EngineUnavailable(
            f"the limit of open files leaves no room for a connection: give it {SPARE_FILES + 1} or more (ulimit -n)"
        )


def bound(sock: socket.socket) -> tuple[str, int]:
    """Host and port that a socket listens on; a Unix socket's path, and 0."""
    name = sock.getsockname()
    return (name[0], name[1]) if isinstance(name, tuple) else (str(name), 0)


def bound_ports(sockets: Sequence[socket.socket]) -> tuple[tuple[str, int], ...]:
    """Host and port of each socket that has a port."""
    return tuple(bound(sock) for sock in sockets if sock.family != socket.AF_UNIX)


def room_for(connections: int) -> int:
    """Raise the limit on open files for so many connections. Returns how many there can be, `SPARE_FILES` left over."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_FILES
    if soft < wanted:
        soft = min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(connections, soft - SPARE_FILES)


class RefusedConnection:
    """The owner of the socket of a connection past the limit."""

    def expire(self, kind: WaitKind) -> None:
        """Nothing, since `Refusals.tell` has a deadline of its own."""


class Refusals:
    """Sends a 503 to connections past `max_connections`."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._told = 0

    async def tell(self, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Refuse one client. Gives up after two seconds, or at once where too many are being refused."""
        stream = Socket(sock, self.context.write, RefusedConnection())
        self._told += 1
        try:
            if self._told <= REFUSED_AT_ONCE:
                with trio.move_on_after(REFUSAL_SECONDS):
                    await self._tell(stream, tls)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            pass
        finally:
            self._told -= 1
            stream.cut()

    async def _tell(self, stream: Socket, tls: ssl.SSLContext | None) -> None:
        stream.linger = True
        outer = stream if tls is None else trio.SSLStream(stream, tls, server_side=True)
        if isinstance(outer, trio.SSLStream):
            await outer.do_handshake()
            if outer.selected_alpn_protocol() == "h2":
                return
        always = b"".join(b"%b: %b\r\n" % header for header in self.context.headers)
        await outer.send_all(
            b"HTTP/1.1 503 \r\nretry-after: %d\r\ncontent-length: 0\r\nconnection: close\r\n%b\r\n"
            % (RETRY_AFTER, always)
        )
        await outer.aclose()


class Acceptor:
    """Accepts connections, `at_once` in a tick, or more after a long one (`Context.may_begin`). Those past the limit
    are refused by tasks in `nursery`."""

    def __init__(
        self,
        context: Context,
        silent: SilentConnections,
        tls: TlsContext | None,
        nursery: trio.Nursery,
        *,
        at_once: int,
    ) -> None:
        self._context, self._silent, self._tls, self._nursery = context, silent, tls, nursery
        self._at_once = at_once
        self._refusals = Refusals(context)

    async def run(self, listeners: Sequence[socket.socket], until: trio.Event, started: Callable[[], None]) -> None:
        """Accept on all `listeners` until the event `until`. `started` is called once connections are accepted."""
        async with trio.open_nursery() as accepting:
            for listener in listeners:
                listener.setblocking(False)
                accepting.start_soon(self._accept, listener)
            started()
            await until.wait()
            accepting.cancel_scope.cancel()

    async def _accept(self, listener: socket.socket) -> None:
        places, limits = self._context.places(listener.family), self._context.limits
        while True:
            await trio.lowlevel.wait_readable(listener)
            for sock in await _waiting(listener, self._context.may_begin(self._at_once)):
                try:
                    _prepare(sock, limits().write_seconds)
                    if places.make_room(places.share(sock), room_for(limits().max_connections)):
                        self._silent.take(sock)
                    else:
                        tls = self._tls() if self._tls is not None and sock.family != socket.AF_UNIX else None
                        self._nursery.start_soon(self._refusals.tell, sock, tls)
                except OSError:
                    sock.close()  # the client has left already, or is another user's


def _prepare(sock: socket.socket, write_seconds: float) -> None:
    sock.setblocking(False)
    if sock.family == socket.AF_UNIX:
        # The modes of the socket and its folder keep other users out. This check holds where a mode was widened since.
        if not may_operate(sock):
            raise PermissionError("a Unix socket is for the engine's own user")
    else:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel gives up a peer that has vanished, after the time that a client has which reads nothing.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(write_seconds * 1000))


async def _waiting(listener: socket.socket, at_once: int) -> list[socket.socket]:
    """Accept connections that wait, `at_once` at most."""
    taken: list[socket.socket] = []
    while len(taken) < at_once:
        try:
            taken.append(listener.accept()[0])
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                LOG.error("can't accept a connection: %s", error.strerror)
                await trio.sleep(EXHAUSTED_SECONDS)
            break  # no connection waits any more, or its client has left
    return taken
