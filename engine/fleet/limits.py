"""Limits on failures by address for the whole fleet, counted in its store."""

from __future__ import annotations

import math
from collections.abc import Callable

from hatchway.engine.access.limits import SOURCES, WINDOW, source_of, too_many
from hatchway.engine.base.clock import Clock
from hatchway.engine.store.redis import PREFIX
from hatchway.engine.store.redis_link import RedisLink
from hatchway.engine.store.scripts import COUNT, UNCOUNT


class FleetLimit:
    """At most `limit()` failures a minute from one source, wherever in the fleet. Successes never count."""

    def __init__(self, link: RedisLink, limit: Callable[[], int], what: str, clock: Clock) -> None:
        self._link, self._limit, self._what = link, limit, what
        self._clock = clock
        self._shut: dict[str, float] = {}

    def check(self, address: str) -> None:
        """Raises TooManyRequests until the wait is over that the store named for this source."""
        wait = self._shut.get(source_of(address), 0.0) - self._clock.elapsed()
        if wait > 0:
            raise too_many(self._what, math.ceil(wait))

    async def take(self, address: str) -> None:
        """Count a failure. Raises TooManyRequests with the seconds to wait, StoreUnavailable."""
        wait = await self._link.script(COUNT, [self._key(address)], [self._limit(), int(WINDOW * 1000)])
        if wait:
            if len(self._shut) >= SOURCES:
                del self._shut[next(iter(self._shut))]
            self._shut[source_of(address)] = self._clock.elapsed() + wait / 1000
            raise too_many(self._what, math.ceil(wait / 1000))

    async def give_back(self, address: str) -> None:
        """The failure counted last was none: it counts no longer. Raises StoreUnavailable."""
        await self._link.script(UNCOUNT, [self._key(address)], [])

    def _key(self, address: str) -> str:
        return f"{PREFIX}wrong:{self._what}:{source_of(address)}"
