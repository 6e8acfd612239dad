"""A connected socket as a stream of trio's. Its writes have deadlines, its close lets the last bytes arrive."""

from __future__ import annotations

import array
import fcntl
import socket
import struct
import termios

import trio
from trio.abc import HalfCloseableStream

from hatchway.api.server.deadlines import Expiring, Queue

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
