"""What one connection sends: in order and whole, and the fast path's responses of one tick in one write at its end."""

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
        """So many more bytes wait here for the client, or fewer."""

    def spawn(self, call: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run something as long as the connection lasts, at most."""

    def cut(self) -> None:
        """Drop the connection: its client is gone."""


class Writer:
    """What one connection sends, in the order in which it is given."""

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
        """Have it sent with the others of this tick: a client that sleeps is woken once for all. False where something
        else goes first, or TLS is between: it is for `write` then."""
        if self._encrypted is not None or self._unsent or self._lock.locked():
            return False
        self._unsent = data
        self._context.ticks.at_end(self._flush)
        return True

    def _flush(self) -> None:
        """At the end of a tick: send what waits for it; nothing, where a later write has taken it along."""
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
        """The kernel did not take all of it: a task waits until it does."""
        try:
            if self._unsent and not self._socket.closed:
                self._owner.spawn(self.write, b"")
        except Exception:
            LOG.exception("an answer was not sent, in an error of ours")  # the others' are
            self._owner.cut()

    async def write(self, data: bytes) -> None:
        """At once as far as the kernel takes it, else in turn. Shielded: half a response would spoil the next."""
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
                async with self._lock:
                    await (self._encrypted or self._socket).send_all(data)
        finally:
            self._owner.hold(-len(data))

    async def close(self) -> None:
        """Close once what is being written is written; the write's own deadline ends that."""
        if self._unsent:
            await self.write(b"")
        with trio.CancelScope(shield=True):
            await self._lock.acquire()
        try:
            await (self._encrypted or self._socket).aclose()
        finally:
            self._lock.release()
