"""Connections and memory, counted by client address: where either runs short, the address that has most loses some.

A place is a connection. Memory is what the server must keep while it waits for a client: a request that has not come
whole, and a response that the client does not read.
"""

from __future__ import annotations

import socket
from typing import Any, Protocol

import trio

from hatchway.api.server.deadlines import LOG, Queue
from hatchway.engine.access.limits import source_of

CONNECTION_BYTES = 1024 * 1024
"""Bytes kept for one connection, past which further HTTP/2 streams are refused until its client reads responses."""

HELD_BYTES = 12 * 1024 * 1024
"""Bytes kept for all connections together, past which one is cut off."""

SILENT_SHARE = 4
"""One connection in so many may have made no request yet."""

SILENT_LEAST = 16

WAITING_COST = 24 * 1024
"""Bytes that a request takes while it waits for its client, besides its own: a task, its frames, the headers."""

LOG_INTERVAL = 60.0
"""Seconds between two lines in the log about connections that were closed for others."""


class Occupant(Protocol):
    """A connection, as `Places` sees it."""

    share: Share
    held_bytes: int
    """Bytes kept for it, by its calls of `Places.hold`."""

    def give_way(self) -> None:
        """Close at once: another connection gets the place or the memory."""


class Share:
    """What one address has: an IPv4 address, the /64 of an IPv6 address, or all local sockets together."""

    __slots__ = ("address", "held_bytes", "occupants", "silent")

    def __init__(self, address: str) -> None:
        self.address = address
        self.occupants: dict[Occupant, None] = {}
        """All connections, the oldest first."""
        self.silent: dict[Occupant, None] = {}
        """Connections that have made no request yet, the oldest first."""
        self.held_bytes = 0


class Places:
    """The connections of one kind of socket. `waiting` are the queues of those that wait for a request: where one of
    these is closed, no request is lost."""

    def __init__(self, waiting: tuple[Queue, ...]) -> None:
        self._waiting = waiting
        self._shares: dict[str, Share] = {}
        self._taken = self._silent = self._held = 0
        self._told = -LOG_INTERVAL

    def share(self, sock: socket.socket) -> Share:
        """The share of the address at the other end. Raises OSError where the client has left."""
        peer = sock.getpeername()
        address = source_of(peer[0]) if isinstance(peer, tuple) else ""
        return self._shares.get(address) or Share(address)

    def make_room(self, share: Share, places: int) -> bool:
        """Whether a new connection of this share may have one of `places` places. Another may be closed for it."""
        if self._silent >= max(SILENT_LEAST, places // SILENT_SHARE):
            greedy = max(self._shares.values(), key=lambda one: len(one.silent))
            self._give_way(next(iter(greedy.silent)), "too many connections say nothing", greedy)
        if self._taken < places:
            return True
        if not self._shares:
            return False  # the limit of open files, lowered meanwhile, leaves no place at all
        greedy = max(self._shares.values(), key=lambda one: len(one.occupants))
        if len(share.occupants) >= len(greedy.occupants):
            greedy = share
        leaving = self._idle(greedy)
        if leaving is None and greedy is not share:
            most = 2 * len(greedy.occupants) > places  # then even one that is being answered is closed for a new one
            leaving = next(reversed(greedy.occupants)) if most else self._idle(None)
        if leaving is None:
            return False
        self._give_way(leaving, "all places are taken", greedy)
        return True

    def asked(self, occupant: Occupant) -> None:
        """A connection has made its first request."""
        if occupant in occupant.share.silent:
            del occupant.share.silent[occupant]
            self._silent -= 1

    def _idle(self, share: Share | None) -> Occupant | None:
        """The connection of the share, or of all, to be closed first: one that never made a request, else the one that
        has waited longest for its next."""
        if share is not None and share.silent:
            return next(iter(share.silent))
        for queue in self._waiting:
            occupant: Any
            for occupant in queue.waiting():
                if occupant in occupant.share.occupants and (share or self._shares.get(occupant.share.address)) is (
                    occupant.share
                ):
                    found: Occupant = occupant
                    return found
        return None

    def join(self, occupant: Occupant) -> None:
        """A connection begins. Its share is one that `share` gave."""
        occupant.share = share = self._shares.setdefault(occupant.share.address, occupant.share)
        share.occupants[occupant] = share.silent[occupant] = None
        self._taken += 1
        self._silent += 1

    def leave(self, occupant: Occupant) -> None:
        """A connection is over, or about to be. A second call changes nothing."""
        share = occupant.share
        if occupant not in share.occupants:
            return
        self.hold(occupant, -occupant.held_bytes)
        self.asked(occupant)
        del share.occupants[occupant]
        self._taken -= 1
        if not share.occupants:
            del self._shares[share.address]

    def hold(self, occupant: Occupant, change: int) -> None:
        """`change` more bytes are kept for a connection, or fewer. Past HELD_BYTES in all, one connection is cut
        off."""
        if occupant not in occupant.share.occupants:
            return
        occupant.held_bytes += change
        occupant.share.held_bytes += change
        self._held += change
        while change > 0 and self._held > HELD_BYTES:
            share = max(self._shares.values(), key=lambda one: one.held_bytes)
            leaving = max(share.occupants, key=lambda one: one.held_bytes)
            self._give_way(leaving, "too much waits for clients that do not send or read on", share)

    def _give_way(self, leaving: Occupant, why: str, share: Share) -> None:
        self.leave(leaving)
        leaving.give_way()
        now = trio.current_time()
        if now - self._told >= LOG_INTERVAL:
            self._told = now
            LOG.warning("%s: connections of %s are closed for others", why, share.address or "local sockets")
