"""Counts failures by address for the whole fleet, in its store."""

from __future__ import annotations

import math
from collections.abc import Callable

from engine.store.redis import PREFIX
from engine.store.redis_link import RedisLink
from engine.store.scripts import COUNT, UNCOUNT
from engine.trust.limits import WINDOW, source_of, too_many


class FleetLimit:
    """At most `limit()` failures a minute from one source, wherever in the fleet. Successes never count."""

    def __init__(self, link: RedisLink, limit: Callable[[], int], what: str) -> None:
        self._link, self._limit, self._what = link, limit, what

    async def take(self, address: str) -> None:
        """Count a failure. Raises TooManyRequests with the seconds to wait, StoreUnavailable."""
        wait = await self._link.script(COUNT, [self._key(address)], [self._limit(), int(WINDOW * 1000)])
        if wait:
            raise too_many(self._what, math.ceil(wait / 1000))

    async def give_back(self, address: str) -> None:
        """The try counted last was none. Raises StoreUnavailable."""
        await self._link.script(UNCOUNT, [self._key(address)], [])

    def _key(self, address: str) -> str:
        return f"{PREFIX}wrong:{self._what}:{source_of(address)}"
