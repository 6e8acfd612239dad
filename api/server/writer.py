"""What one connection sends, in order. Responses of the fast path go out together at the end of their tick."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import trio

from hatchway.api.server.context import Context
from hatchway.api.server.deadlines import LOG
from hatchway.api.server.sockets import Socket


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
            self._context.token.run_sync_soon(self._owner.cut)
        else:
            if self._unsent:
                self._context.token.run_sync_soon(self._send_rest)

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
