"""Connections without a first byte yet: they are watched together, so that thousands of them cost next to nothing.

A `Connection` is some sixty objects and a task. It is made once its client's first byte has come.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable

import trio

from hatchway.api.server.context import Context
from hatchway.api.server.deadlines import WaitKind
from hatchway.api.server.places import Places, Share

BEGUN_AT_ONCE = 8
"""Connections that begin in one tick of the event loop (see `Context.may_begin`)."""


class SilentConnection:
    """A connection whose client has sent nothing yet. It counts as a connection, and its idle time runs."""

    __slots__ = ("_silent", "held_bytes", "places", "share", "sock")

    def __init__(self, sock: socket.socket, places: Places, silent: SilentConnections) -> None:
        self.sock, self.places, self._silent = sock, places, silent
        self.share: Share = places.share(sock)
        self.held_bytes = 0

    def expire(self, kind: WaitKind) -> None:
        """Close: the client has sent nothing for too long."""
        self.cut()

    def give_way(self) -> None:
        """Close: another connection gets the place."""
        self.cut()

    def stop(self) -> None:
        """Close: the engine is ending, and no request is under way here."""
        self.cut()

    def cancel(self) -> None:
        """Nothing, since no request is under way."""

    def cut(self) -> None:
        """Close at once."""
        self._silent.leave(self)
        self.sock.close()


class SilentConnections:
    """The silent connections of one server. `begin` is called with each socket whose first byte has come."""

    def __init__(self, context: Context, begin: Callable[[socket.socket], None]) -> None:
        self._context, self._begin = context, begin
        self._epoll = select.epoll()
        self._silent: dict[int, SilentConnection] = {}

    def take(self, sock: socket.socket) -> None:
        """Take a connection that was accepted. It begins at once where its first byte is there. Raises OSError where
        its client has left, or the system can't watch it."""
        if _has_spoken(sock):
            self._begin(sock)
            return
        connection = SilentConnection(sock, self._context.places(sock.family), self)
        self._epoll.register(sock, select.EPOLLIN | select.EPOLLRDHUP)  # first, since it may fail
        self._silent[sock.fileno()] = connection
        self._context.join(connection)
        self._context.idle.enter(connection)

    def leave(self, connection: SilentConnection) -> None:
        """Watch the connection no longer. A second call changes nothing."""
        if self._silent.pop(connection.sock.fileno(), None) is None:
            return
        self._epoll.unregister(connection.sock)
        self._context.idle.leave(connection)
        self._context.leave(connection)

    async def run(self) -> None:
        """Begin connections as their first bytes come, for ever."""
        while True:
            await trio.lowlevel.wait_readable(self._epoll.fileno())
            for fd, _ in self._epoll.poll(0, self._context.may_begin(BEGUN_AT_ONCE)):
                if fd in self._silent:  # else it was closed for one that began just now
                    self._spoke(self._silent[fd])
            await trio.lowlevel.checkpoint()

    def _spoke(self, connection: SilentConnection) -> None:
        self.leave(connection)
        try:
            if _has_spoken(connection.sock):
                self._begin(connection.sock)
                return
        except OSError:
            pass  # its client has left
        connection.sock.close()


def _has_spoken(sock: socket.socket) -> bool:
    """Whether a byte of the client has come. Raises OSError where the client has left."""
    try:
        if not sock.recv(1, socket.MSG_PEEK):
            raise ConnectionResetError("the client has closed")
    except BlockingIOError:
        return False
    return True
