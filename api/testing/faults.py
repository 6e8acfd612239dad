"""Faults that a test can set: a store that is away, slow responses, 503s, connections that break."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any
from weakref import WeakValueDictionary

import msgspec

Seconds = Annotated[float, msgspec.Meta(ge=0, le=366 * 86_400)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class Faults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is wrong now. `slow`, `unavailable` and `drop_after` are for requests whose path begins with `path`, and for
    the next `times` of them, if that is given.

    `store_away`: nothing can be stored (503 `store_unavailable`). `slow`: seconds, by the engine's clock, that each
    answer waits. `unavailable`: 503 with Retry-After. `drop_after`: the connection ends after so many bytes of the
    answer, head included. `away`: every connection is cut, and none is taken. `clock_off`: seconds by which the
    engine's wall clock is wrong.
    """

    store_away: bool = False
    slow: Seconds = 0.0
    unavailable: bool = False
    drop_after: Count | None = None
    away: bool = False
    clock_off: Annotated[float, msgspec.Meta(ge=-366 * 86_400, le=366 * 86_400)] = 0.0
    path: str = "/"
    times: Count | None = None


class FaultSwitch:
    """Sets faults. A fault that is not named is cleared."""

    def __init__(self, get: Callable[[], Faults], put: Callable[[Faults], object]) -> None:
        self._get, self._put = get, put

    @property
    def now(self) -> Faults:
        """The faults that are set, and for how many requests still."""
        return self._get()

    def set(self, **faults: Any) -> None:
        """Set these faults, and clear all others. Raises ValueError for an unknown one."""
        self._put(msgspec.convert(faults, Faults))

    def clear(self) -> None:
        """Clear all faults."""
        self._put(Faults())


class BreakingSocket(socket.socket):
    """A connection that can be told to end once it has sent so much."""

    _room: int | None = None

    def end_after(self, count: int) -> None:
        """Have the connection end after `count` more bytes."""
        self._room = count

    def send(self, data: Any, flags: int = 0) -> int:
        """As `socket.send`, as far as there is room. Raises BrokenPipeError past it."""
        if self._room is None:
            return super().send(data, flags)
        sent = super().send(data[: self._room], flags) if self._room else 0
        self._room -= sent
        if self._room == 0:
            self.end()
        if not sent:
            raise BrokenPipeError
        return sent

    def end(self) -> None:
        """End the connection both ways, at once. The server reads its end."""
        with suppress(OSError):  # the client has ended it already
            self.shutdown(socket.SHUT_RDWR)


class BreakingListener(socket.socket):
    """Listens, hands out connections that can break, and knows them by their clients' addresses."""

    _away = False

    def __init__(self, listening: socket.socket) -> None:
        """Takes over what another socket listens on."""
        super().__init__(listening.family, listening.type, listening.proto, fileno=listening.detach())
        self.connections: WeakValueDictionary[Any, BreakingSocket] = WeakValueDictionary()

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection. Raises BlockingIOError where there is none; while it is away every one is reset."""
        accepted, address = super().accept()
        if self._away:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            accepted.close()
            raise BlockingIOError
        breaking = BreakingSocket(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        self.connections[address[:2]] = breaking
        return breaking, address

    def set_away(self, away: bool) -> None:
        """Set whether every new connection is reset. If so, those that are open end."""
        self._away = away
        for connection in list(self.connections.values()) if away else ():
            if connection.fileno() >= 0:
                connection.end()


def connection_of(listeners: Sequence[BreakingListener], client: Any) -> BreakingSocket | None:
    """The connection whose client has this address and port."""
    for listener in listeners:
        if (found := listener.connections.get(tuple(client or ()))) is not None:
            return found
    return None
