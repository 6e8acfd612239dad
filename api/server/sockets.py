"""A connected socket as trio's stream: it says when a write waits, closes so that the last bytes arrive, can be cut."""

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
"""Seconds we go on reading what nobody wants after our last word: a close on unread bytes would wipe that word out."""


class Socket(HalfCloseableStream):
    """A stream over a plain non-blocking socket. `owner` waits in `writes` while the client takes nothing."""

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
        """Send all, waiting as long as the client takes some of it."""
        with memoryview(data) as view:
            sent = 0
            while sent < len(view):
                with view[sent:] as rest:
                    took = self.send_now(rest)  # type: ignore[arg-type]
                sent += took
                if not took:
                    await self.wait_send_all_might_not_block()

    async def wait_send_all_might_not_block(self) -> None:
        """Wait for room, in the queue of those whose client takes nothing."""
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
        """Whether the client took so much since the wait began or this was last asked; the kernel wakes us late."""
        before, self._left = self._left, 0 if self.closed else self._untaken()
        return before - self._left >= least

    def _untaken(self) -> int:
        self._check_open()
        count = array.array("i", [0])
        fcntl.ioctl(self.sock, termios.TIOCOUTQ, count)
        return count[0]

    async def wait_readable(self) -> None:
        """Until the first byte has come, or the end. Raises ClosedResourceError."""
        self._check_open()
        await trio.lowlevel.wait_readable(self.sock)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """The next bytes, or none at the end. It always yields, so no client can keep the others waiting."""
        while True:
            # A closed socket given to trio's epoll would bring the next waiter down.
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
        """Our last word is said."""
        if not self.closed:
            try:
                self.sock.shutdown(socket.SHUT_WR)
            except OSError as error:
                raise trio.BrokenResourceError from error
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Close; with `linger`, first let the client read what we said (RFC 9112, 9.6)."""
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
        """Close at once, dropping what the client did not take; whoever waits for it gets ClosedResourceError."""
        if not self.closed:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._close()

    def let_go(self) -> None:
        """The connection is over: it is held here no longer."""
        self.cut()
        self._owner = None

    def _close(self) -> None:
        if not self.closed:
            self.closed = True
            trio.lowlevel.notify_closing(self.sock)
            self.sock.close()
