"""Addresses that the engine answers to for a while: the near ends of tunnels, and what an operator adds by hand.

A challenge names the address that was dialled, and each request's Host is checked. A tunnel's near end may be any port
of the other machine, so whoever holds the tunnel tells the engine which, over the operator socket. Such an address goes
with the connection that told it; one that was added by hand goes with its time, or with the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from hatchway.engine.base.clock import Clock
from hatchway.engine.base.errors import InvalidRequest, TooManyRequests

MOST = 256
"""Addresses that are kept at most, each tunnel counted."""

LONGEST_SLEEP = 30.0
"""Seconds between two looks at what has elapsed: the clock counts suspended time, a sleep does not."""


class AddedAddresses:
    """The added addresses of one engine. `tell` is called with all that count now, whenever they change."""

    def __init__(self, clock: Clock, tell: Callable[[tuple[str, ...]], Awaitable[None]]) -> None:
        self._clock, self._tell = clock, tell
        self._held: Counter[str] = Counter()
        self._until: dict[str, float | None] = {}
        """Addresses that were added by hand, and the elapsed time at which each ends, None for the engine's end."""
        self._news = trio.Event()

    @asynccontextmanager
    async def held(self, address: str) -> AsyncIterator[None]:
        """Have the address count for the block, and as long as others hold it. Raises TooManyRequests."""
        self._check_room()
        self._held[address] += 1
        try:
            await self._changed()
            yield
        finally:
            self._held[address] -= 1
            self._held += Counter()  # drops what nobody holds
            with trio.CancelScope(shield=True):
                await self._changed()

    async def add(self, address: str, seconds: int | None) -> None:
        """Have the address count for `seconds` from now, also where it was added before; None: until the engine
        stops."""
        if address not in self._until:
            self._check_room()
        self._until[address] = None if seconds is None else self._clock.elapsed() + seconds
        await self._changed()

    async def remove(self, address: str) -> None:
        """Remove an address that was added by hand. Raises InvalidRequest where there is none."""
        if address not in self._until:
            why = "is a tunnel's, and goes when that tunnel is closed"
            if address not in self._held:
                why = "was not added; `hatchway engine address list` shows what was"
            raise InvalidRequest({"address": f"{address} {why}"})
        del self._until[address]
        await self._changed()

    def listed(self) -> list[dict[str, Any]]:
        """Each address, how many tunnels hold it, and for how many seconds it stays by hand (None: with the engine)."""
        now = self._clock.elapsed()
        by_hand = [
            {"address": address, "by": "hand", "seconds": None if until is None else max(0, round(until - now))}
            for address, until in self._until.items()
        ]
        return by_hand + [{"address": address, "by": "tunnel", "tunnels": n} for address, n in self._held.items()]

    async def expire(self) -> None:
        """Remove addresses when their time is over, for ever."""
        while True:
            now = self._clock.elapsed()
            ended = [address for address, until in self._until.items() if until is not None and until <= now]
            for address in ended:
                del self._until[address]
            if ended:
                await self._changed()
            next_end = min((until - now for until in self._until.values() if until is not None), default=LONGEST_SLEEP)
            with trio.move_on_after(max(0.0, min(next_end, LONGEST_SLEEP))):
                await self._news.wait()

    def _check_room(self) -> None:
        if len(self._until) + self._held.total() >= MOST:
            raise TooManyRequests(f"{MOST} addresses are added already: `hatchway engine address list` shows them")

    async def _changed(self) -> None:
        self._news.set()
        self._news = trio.Event()
        await self._tell(tuple(sorted({*self._held, *self._until})))
