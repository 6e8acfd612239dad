"""Connections that have said nothing yet: watched together, since thousands of silent ones must cost next to nothing.

A `Connection` is some sixty objects and a task. It is made once its client's first byte is there.
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
"""Connections that begin in one tick of the event loop."""


class Newcomer:
    """A connection whose client has said nothing. It has a place, and its idle time runs."""

    __slots__ = ("_lobby", "held", "places", "share", "sock")

    def __init__(self, sock: socket.socket, places: Places, lobby: Lobby) -> None:
        self.sock, self.places, self._lobby = sock, places, lobby
        self.share: Share = places.share(sock)
        self.held = 0

    def expire(self, kind: WaitKind) -> None:
        """Its client has said nothing for too long."""
        self.cut()

    def give_way(self) -> None:
        """Another connection gets its place."""
        self.cut()

    def stop(self) -> None:
        """The engine is ending, and nothing is being answered here."""
        self.cut()

    def cancel(self) -> None:
        """Nothing is being answered."""

    def cut(self) -> None:
        """Close at once."""
        self._lobby.leave(self)
        self.sock.close()


class Lobby:
    """The silent connections of one server. `begin` is called with each socket whose client has spoken."""

    def __init__(self, context: Context, begin: Callable[[socket.socket], None]) -> None:
        self._context, self._begin = context, begin
        self._epoll = select.epoll()
        self._silent: dict[int, Newcomer] = {}

    def take(self, sock: socket.socket) -> None:
        """A connection was accepted: it begins at once where its first byte is there. Raises OSError where its client
        has gone."""
        if _has_spoken(sock):
            self._begin(sock)
            return
        newcomer = Newcomer(sock, self._context.places(sock.family), self)
        self._silent[sock.fileno()] = newcomer
        self._context.join(newcomer)
        self._context.idle.enter(newcomer)
        self._epoll.register(sock, select.EPOLLIN | select.EPOLLRDHUP)

    def leave(self, newcomer: Newcomer) -> None:
        """It is watched no more; nothing happens the second time."""
        if self._silent.pop(newcomer.sock.fileno(), None) is None:
            return
        self._epoll.unregister(newcomer.sock)
        self._context.idle.leave(newcomer)
        self._context.leave(newcomer)

    async def run(self) -> None:
        """Begin those that speak, for ever."""
        while True:
            await trio.lowlevel.wait_readable(self._epoll.fileno())
            for fd, _ in self._epoll.poll(0, BEGUN_AT_ONCE):
                if fd in self._silent:  # else it was cut for one that began just now
                    self._spoke(self._silent[fd])
            await trio.lowlevel.checkpoint()

    def _spoke(self, newcomer: Newcomer) -> None:
        self.leave(newcomer)
        try:
            if _has_spoken(newcomer.sock):
                self._begin(newcomer.sock)
                return
        except OSError:
            pass  # its client has gone
        newcomer.sock.close()


def _has_spoken(sock: socket.socket) -> bool:
    """Whether a byte of its client is there. Raises OSError where the client has gone."""
    try:
        if not sock.recv(1, socket.MSG_PEEK):
            raise ConnectionResetError("the client has closed")
    except BlockingIOError:
        return False
    return True
