"""Limits on failures, counted by the address that they come from, in tables of bounded size."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Protocol

from hatchway.engine.base.clock import Clock
from hatchway.engine.base.errors import TooManyRequests

WINDOW = 60.0
"""Seconds in which an address may fail as often as its limit says."""

SOURCES = 65_536
"""Addresses kept at most; beyond it the oldest is forgotten."""


@lru_cache(maxsize=4096)
def source_of(address: str) -> str:
    """What counts as one source: an IPv4 address, or the /64 of an IPv6 one (one customer has as many as that)."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


def too_many(what: str, seconds: int) -> TooManyRequests:
    """The refusal of a source that is to wait."""
    return TooManyRequests(f"too many {what} from this address: wait {seconds} s", retry_after=seconds)


class Limit(Protocol):
    """A limit on failures by address. One engine counts them in memory, a fleet in its store."""

    async def take(self, address: str) -> None:
        """Count a failure. Raises TooManyRequests where there were too many before it."""

    async def give_back(self, address: str) -> None:
        """The failure counted last was none: it counts no longer."""

    def check(self, address: str) -> None:
        """Raises what `take` would raise now, as far as this engine knows without asking anybody."""


class FleetView(Protocol):
    """What the services of an engine ask of its fleet: counts that all share, and whether they may answer by what this
    engine knows."""

    def limit(self, most: Callable[[], int], what: str) -> Limit:
        """A count that the whole fleet shares."""

    def check_fresh(self) -> None:
        """Raises StoreUnavailable where this engine may not know what the others did."""

    async def wait_fresh(self) -> None:
        """Wait until this engine knows what the others did. Raises StoreUnavailable where that takes long."""

    async def wait_whole(self, seconds: float) -> None:
        """Wait until this engine has all that the fleet's others have. Raises StoreUnavailable after so many
        seconds."""


def limit_of(fleet: FleetView | None, clock: Clock, most: Callable[[], int], what: str) -> Limit:
    """A limit of one engine, or of its fleet."""
    return fleet.limit(most, what) if fleet is not None else FailureLimit(clock, most, what)


class FailureLimit:
    """At most `limit()` failures a minute from one source. Successes never count."""

    def __init__(self, clock: Clock, limit: Callable[[], int], what: str) -> None:
        self._clock, self._limit, self._what = clock, limit, what
        self._failures: dict[str, tuple[float, int]] = {}

    def check(self, address: str) -> None:
        """Raises TooManyRequests with the seconds until this source may try again."""
        source, now = source_of(address), self._clock.elapsed()
        since, count = self._failures.get(source, (now, 0))
        wait = since + WINDOW - now
        if count >= self._limit() and wait > 0:
            raise too_many(self._what, math.ceil(wait))

    def count(self, address: str) -> None:
        """One more failure of this source."""
        source, now = source_of(address), self._clock.elapsed()
        since, count = self._failures.pop(source, (now, 0))
        if now - since >= WINDOW:
            since, count = now, 0
        if len(self._failures) >= SOURCES:
            del self._failures[next(iter(self._failures))]
        self._failures[source] = (since, count + 1)

    def uncount(self, address: str) -> None:
        """The failure counted last was none: it counts no longer."""
        source = source_of(address)
        since, count = self._failures.get(source, (0.0, 0))
        if count > 1:
            self._failures[source] = (since, count - 1)
        else:
            self._failures.pop(source, None)

    async def take(self, address: str) -> None:
        """`check` and `count`, with nothing between them."""
        self.check(address)
        self.count(address)

    async def give_back(self, address: str) -> None:
        """`uncount`."""
        self.uncount(address)


class WrongAnswers:
    """Remembers by which signatures each source has answered a challenge wrongly, so that none is checked twice.

    After `ANSWERS` wrong ones from a source no further answer of that source to the challenge is checked. Other sources
    are not affected: else anybody could spoil another's challenge. The last `MOST` challenges are remembered.
    """

    MOST, ANSWERS = 16_384, 3

    def __init__(self) -> None:
        self._tried: dict[tuple[str, bytes], tuple[int, ...]] = {}

    def add(self, address: str, digest: bytes, answer: Hashable) -> None:
        """This challenge was answered wrongly from there."""
        key = (source_of(address), digest)
        told = self._tried.get(key, ())
        if not told and len(self._tried) >= self.MOST:
            del self._tried[next(iter(self._tried))]
        if hash(answer) not in told:
            self._tried[key] = (*told, hash(answer))[-self.ANSWERS :]

    def has(self, address: str, digest: bytes, answer: Hashable) -> bool:
        """Whether this answer to it is one too many."""
        told = self._tried.get((source_of(address), digest), ())
        return len(told) >= self.ANSWERS or hash(answer) in told
