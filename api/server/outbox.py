"""What connections send: each in order and whole, and the fast path's responses of one tick of the event loop together
behind it, so that a client that sleeps is woken once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import trio

from hatchway.api.server.deadlines import LOG
from hatchway.api.server.sockets import Socket


class Sender(Protocol):
    """Whoever has something to send."""

    def flush(self) -> None:
        """Send it, as far as the kernel takes it at once."""


class Outbox:
    """Who has something to send behind this tick."""

    def __init__(self) -> None:
        self._senders: list[Sender] = []
        self._idle = trio.lowlevel.ParkingLot()

    def put(self, sender: Sender) -> None:
        """Flush it when the tasks of this tick have run."""
        self._senders.append(sender)
        if len(self._senders) == 1:
            self._idle.unpark()

    async def run(self) -> None:
        """Flush for ever. One such task stands beside the connections."""
        while True:
            if not self._senders:
                await self._idle.park()
            senders, self._senders = self._senders, []
            for sender in senders:
                try:
                    sender.flush()
                except Exception:
                    LOG.exception("an answer was not sent, in an error of ours")  # the others' are


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

    __slots__ = ("_encrypted", "_lock", "_outbox", "_owner", "_socket", "_unsent")

    def __init__(self, socket: Socket, outbox: Outbox, owner: WriterOwner) -> None:
        self._socket, self._outbox, self._owner = socket, outbox, owner
        self._encrypted: trio.SSLStream[Socket] | None = None
        self._unsent = b""
        self._lock = trio.Lock()

    def encrypt(self, stream: trio.SSLStream[Socket]) -> None:
        """Send through TLS from now on."""
        self._encrypted = stream

    async def put(self, data: bytes) -> None:
        """Have it sent with the others of this tick; at once where something else goes first, or TLS is between."""
        if self._encrypted is not None or self._unsent or self._lock.locked():
            await self.write(data)
            return
        self._unsent = data
        self._outbox.put(self)

    def flush(self) -> None:
        """Send what waits for the end of the tick; nothing, where a later write has taken it along."""
        try:
            self._unsent = self._unsent[self._socket.send_now(self._unsent) :]
        except trio.BrokenResourceError:
            self._owner.cut()
        else:
            if self._unsent:
                self._owner.spawn(self.write, b"")

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
