"""A connected socket as a stream of trio's, and what a connection sends over it, in order.

Writes have deadlines, a close lets the last bytes arrive, and responses of the fast path go out together at the end of
their tick.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
import termios
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import trio
from trio.abc import HalfCloseableStream

from hatchway.api.server.context import Context
from hatchway.api.server.deadlines import LOG, Expiring, Queue

RECEIVE_SIZE = 65536

LINGER = 2.0
"""Seconds in which input is read and dropped before a close: to close with unread input would reset the connection, and
the client might lose the end of its response."""


class Socket(HalfCloseableStream):
    """A stream over a non-blocking socket. While the client reads nothing, `owner` waits in the queue `writes`."""

    def __init__(self, sock: socket.socket, writes: Queue, owner: Expiring) -> None:
        self.sock = sock
        self.closed = False
        self.linger = False
        """Set where a request may not have been read to its end."""
        self._writes = writes
        self._owner: Expiring | None = owner
        self._left = 0
        self._lingering: trio.CancelScope | None = None

    def send_now(self, data: bytes) -> int:
        """How many bytes the kernel took at once. Raises BrokenResourceError."""
        try:
            return self.sock.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise trio.BrokenResourceError from error

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of it. Waits for as long as the client reads on."""
        with memoryview(data) as view:
            sent = 0
            while sent < len(view):
                with view[sent:] as rest:
                    took = self.send_now(rest)  # type: ignore[arg-type]
                sent += took
                if not took:
                    await self.wait_send_all_might_not_block()

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the kernel has room, in the queue `writes`."""
        self._left = self._untaken()
        self._check_open()
        owner = self._owner
        assert owner is not None
        self._writes.enter(owner)
        try:
            await trio.lowlevel.wait_writable(self.sock)
        finally:
            self._writes.leave(owner)

    def took(self, least: int) -> bool:
        """Whether the client has read `least` bytes since the wait began or since the last call. The kernel's own
        wake-up comes later than the first byte that is read."""
        before, self._left = self._left, 0 if self.closed else self._untaken()
        return before - self._left >= least

    def _untaken(self) -> int:
        self._check_open()
        count = array.array("i", [0])
        fcntl.ioctl(self.sock, termios.TIOCOUTQ, count)
        return count[0]

    async def wait_readable(self) -> None:
        """Wait until a byte has come, or the end. Raises ClosedResourceError."""
        self._check_open()
        await trio.lowlevel.wait_readable(self.sock)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """The next bytes, or none at the end. It always yields to other tasks, however fast the client sends."""
        while True:
            # To hand a closed socket to trio's epoll would break the next task that waits for one.
            if not self.closed:
                await trio.lowlevel.wait_readable(self.sock)
            if self.closed:
                raise trio.ClosedResourceError
            try:
                return self.sock.recv(max_bytes or RECEIVE_SIZE)
            except BlockingIOError:
                continue
            except OSError as error:
                raise trio.BrokenResourceError from error

    def _check_open(self) -> None:
        if self.closed:
            raise trio.ClosedResourceError

    async def send_eof(self) -> None:
        """Send nothing more."""
        if not self.closed:
            try:
                self.sock.shutdown(socket.SHUT_WR)
            except OSError as error:
                raise trio.BrokenResourceError from error
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Close; with `linger`, first let the client read what was sent (RFC 9112, 9.6)."""
        try:
            await self.send_eof()
            if self.linger:
                with trio.move_on_after(LINGER) as self._lingering:
                    while await self.receive_some():
                        pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self._close()

    def hurry(self) -> None:
        """Linger no longer."""
        self.linger = False
        if self._lingering is not None:
            self._lingering.cancel()

    def cut(self) -> None:
        """Close at once and drop what was not sent. Tasks that wait for the socket get ClosedResourceError."""
        if not self.closed:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._close()

    def let_go(self) -> None:
        """Drop the reference to the connection, which is over."""
        self.cut()
        self._owner = None

    def _close(self) -> None:
        if not self.closed:
            self.closed = True
            trio.lowlevel.notify_closing(self.sock)
            self.sock.close()


class WriterOwner(Protocol):
    """The connection that a writer sends for."""

    def hold(self, change: int) -> None:
        """`change` more bytes are kept for the client, or fewer."""

    def spawn(self, call: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run a task that is cancelled when the connection ends."""

    def cut(self) -> None:
        """Drop the connection: its client has left."""


class Writer:
    """Sends the bytes of one connection, in the order of the calls."""

    __slots__ = ("_context", "_encrypted", "_lock", "_owner", "_socket", "_unsent")

    def __init__(self, socket: Socket, context: Context, owner: WriterOwner) -> None:
        self._socket, self._context, self._owner = socket, context, owner
        self._encrypted: trio.SSLStream[Socket] | None = None
        self._unsent = b""
        self._lock = trio.Lock()

    def encrypt(self, stream: trio.SSLStream[Socket]) -> None:
        """Send through TLS from now on."""
        self._encrypted = stream

    def put(self, data: bytes) -> bool:
        """Have `data` sent at the end of this tick, together with what else comes: so a proxy wakes once for all.

        Returns False where other bytes must go first, or the connection has TLS: then `write` is to be called.
        """
        if self._encrypted is not None or self._unsent or self._lock.locked():
            return False
        self._unsent = data
        self._context.ticks.at_end(self._flush)
        return True

    def _flush(self) -> None:
        """Send at the end of a tick what was put; nothing, where a later `write` has sent it already."""
        if not self._unsent:
            return
        try:
            self._unsent = self._unsent[self._socket.send_now(self._unsent) :]
        except trio.BrokenResourceError:
            self._context.trio_token.run_sync_soon(self._owner.cut)
        else:
            if self._unsent:
                self._context.trio_token.run_sync_soon(self._send_rest)

    def _send_rest(self) -> None:
        """Start a task that sends what the kernel did not take at once."""
        try:
            if self._unsent and not self._socket.closed:
                self._owner.spawn(self.write, b"")
        except Exception:
            LOG.exception("an answer was not sent, in an error of ours")  # other connections go on
            self._owner.cut()

    async def write(self, data: bytes) -> None:
        """Send bytes, at once as far as the kernel takes them. Cancelling waits for the end: after half a response no
        other could follow."""
        if self._unsent:
            data, self._unsent = self._unsent + data, b""
        try:
            if self._encrypted is None and not self._lock.locked():
                sent = self._socket.send_now(data)
                if sent == len(data):
                    return
                data = data[sent:]
            await self._write_in_turn(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._owner.cut()

    async def _write_in_turn(self, data: bytes) -> None:
        self._owner.hold(len(data))
        try:
            with trio.CancelScope(shield=True):
                if self._lock.locked():
                    await self._lock.acquire()
                else:
                    self._lock.acquire_nowait()  # `acquire` waits for a tick of the event loop where it need not
                try:
                    await (self._encrypted or self._socket).send_all(data)
                finally:
                    self._lock.release()
        finally:
            self._owner.hold(-len(data))

    async def close(self) -> None:
        """Close once all is sent, or the deadline of the write is over."""
        if self._unsent:
            await self.write(b"")
        with trio.CancelScope(shield=True):
            await self._lock.acquire()
        try:
            await (self._encrypted or self._socket).aclose()
        finally:
            self._lock.release()
