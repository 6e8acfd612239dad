"""Keeps an engine's memory of the fleet's sessions complete: a message says that one moved, the stored value counts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf
from typing import Any

import structlog
import trio

from hatchway.engine.base.clock import Clock
from hatchway.engine.base.errors import StoreUnavailable
from hatchway.engine.runtime import Runtime
from hatchway.engine.store.redis import CHANGES, COUNTER, IDENTITY, RedisStore
from hatchway.engine.store.redis_link import RedisLink

log = structlog.get_logger(__name__)

SHARED_CHARTS = ("session",)
"""Charts whose actors every engine of the fleet has in memory."""

IDENTIFIED = 0.2
"""Seconds between two checks that the store still has the fleet's identity."""

BLOCK_MS = 200
COUNT = 500
BATCH = 200

Deliver = Callable[[dict[str, bytes]], None]
"""Takes the fields of one message of the inbox. Must not wait."""

Follow = Callable[[], Awaitable[None]]
"""Has another copy of something in the store read it anew."""

Ask = Callable[..., Awaitable[Any]]


class ChangeReader:
    """Reads the store's changes and this engine's inbox.

    `confirmed_at` is the latest time, in elapsed seconds, at which the memory is known to have been complete.
    """

    def __init__(
        self,
        link: RedisLink,
        store: RedisStore,
        clock: Clock,
        runtime: Runtime,
        inbox: str,
        deliver: Deliver,
        mirrors: Mapping[str, Follow],
    ) -> None:
        self._link, self._store, self._clock, self._runtime = link, store, clock, runtime
        self._inbox, self._inbox_at, self._deliver = inbox, b"0-0", deliver
        self._mirrors = mirrors
        self._identified = -inf
        self.confirmed_at = -inf
        self.lost: StoreUnavailable | None = None
        """Why changes are not read; None while they are."""
        self._confirmed = trio.Event()

    async def run(self) -> None:
        """Read, for ever. After a lost connection everything is compared anew, since messages may have been missed."""
        while True:
            try:
                async with self._link.one_connection() as ask:
                    at, number = await self._compare(ask)
                    while True:
                        at, number = await self._read(ask, at, number)
                        if self.lost is not None:
                            self.lost = None
                            log.info("store_followed_again")
            except StoreUnavailable as lost:
                if self.lost is None:
                    log.warning("store_not_followed", why=lost.detail)
                self.lost = lost
            except Exception:
                log.exception("store_not_followed")
            await trio.sleep(0.05)

    async def _check_identity(self, ask: Ask, now: float) -> None:
        """Raises StoreUnavailable where the store was emptied: no message would tell of the sessions that ended by
        it."""
        if now - self._identified >= IDENTIFIED:
            self._store.check_identity(await ask(b"GET", IDENTITY.encode()))
            self._identified = now

    async def wait_confirmed(self) -> None:
        """Wait until the memory is confirmed once more."""
        await self._confirmed.wait()

    async def _compare(self, ask: Ask) -> tuple[bytes, int]:
        self._identified = -inf
        await self._check_identity(ask, self._clock.elapsed())
        last = await ask(b"XREVRANGE", CHANGES.encode(), b"+", b"-", b"COUNT", b"1")
        number = int(await ask(b"GET", COUNTER.encode()) or 0) if not last else int(_fields(last[0][1])[b"n"])
        for chart in SHARED_CHARTS:
            held = {actor.id: actor.version for actor in self._runtime.actors(chart)}
            stored = {name: value.version for name, value in await self._store.live(chart)}
            moved = {name: stored.get(name, 0) for name in held | stored if held.get(name) != stored.get(name)}
            names = list(moved)
            for start in range(0, len(names), BATCH):
                await self._runtime.absorb(chart, {name: moved[name] for name in names[start : start + BATCH]})
        for follow in self._mirrors.values():
            await follow()
        return last[0][0] if last else b"0-0", number

    async def _read(self, ask: Ask, at: bytes, number: int) -> tuple[bytes, int]:
        sent = self._clock.elapsed()
        streams = (CHANGES.encode(), self._inbox.encode(), at, self._inbox_at)
        reply = await ask(b"XREAD", b"COUNT", COUNT, b"BLOCK", BLOCK_MS, b"STREAMS", *streams)
        read: Mapping[bytes, Sequence[Any]] = dict(reply or {})
        await self._check_identity(ask, sent)
        changes = read.get(CHANGES.encode(), ())
        moved: dict[str, dict[str, int]] = {}
        # A change has a number `n`, and says to which version `v` the actor `a` of the chart `c` was moved.
        for _, entry in changes:
            fields, number = _fields(entry), number + 1
            if int(fields[b"n"]) != number:
                raise StoreUnavailable("messages are missing", cause="gap")
            moved.setdefault(fields[b"c"].decode(), {})[fields[b"a"].decode()] = int(fields[b"v"])
        for chart, versions in moved.items():
            if chart in SHARED_CHARTS:
                await self._runtime.absorb(chart, versions)
            elif chart in self._mirrors:
                await self._mirrors[chart]()
        for message, entry in read.get(self._inbox.encode(), ()):
            fields, self._inbox_at = _fields(entry), message
            self._deliver({name.decode(): value for name, value in fields.items()})
        if len(changes) < COUNT:
            self.confirmed_at = sent
            confirmed, self._confirmed = self._confirmed, trio.Event()
            confirmed.set()
        return changes[-1][0] if changes else at, number


def _fields(entry: Any) -> dict[bytes, bytes]:
    return dict(entry) if isinstance(entry, dict) else dict(zip(entry[::2], entry[1::2], strict=True))
