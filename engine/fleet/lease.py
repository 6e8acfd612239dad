"""An engine's lease, by which others know that it is alive; each renewal brings the store's time and the MAC keys."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf

from hatchway.engine.base.clock import Clock
from hatchway.engine.base.errors import StoreUnavailable
from hatchway.engine.store.redis import PREFIX
from hatchway.engine.store.redis_link import RedisLink
from hatchway.engine.store.scripts import LEASE

SECONDS = 3.0
"""Seconds that a lease lasts. An engine without a lease counts as dead: its codes and claims end."""

REMEMBERED = 7 * 24 * 3600.0
"""Seconds that the fleet remembers a dead engine, and the instances that it ran."""

EPOCH = 3600
"""Seconds of the store's time in which nonces are made under one MAC key."""


class Lease:
    """One engine's lease. `run_id` names this process, `engine_id` the engine across restarts, `name` its host.

    `refresh` is to be called about once a second.
    """

    def __init__(self, link: RedisLink, clock: Clock, name: str, engine_id: str) -> None:
        self.run_id, self.name, self.engine_id = secrets.token_hex(8), name, engine_id
        self._link, self._clock = link, clock
        self._offset = 0.0
        self._mac_keys: dict[int, bytes] = {}
        self.renewed_at = -inf
        """When the last renewal that succeeded was sent, in elapsed seconds."""
        self._watches: dict[object, tuple[str, Callable[[], None]]] = {}
        """For each `watch` the run, and the function to call once that is dead."""
        self.identity: str | None = None

    async def refresh(self) -> None:
        """Renew the lease, and call the watchers of runs whose lease is gone. Raises StoreUnavailable."""
        watched, sent = sorted({run for run, _ in self._watches.values()}), self._clock.elapsed()
        fresh = (secrets.token_bytes(32), secrets.token_bytes(32))
        keys = (lease_of(self.run_id), inbox(self.run_id), f"{PREFIX}engines", f"{PREFIX}home:{self.engine_id}")
        args = (self.run_id, self.name, int(SECONDS * 1000), EPOCH, *fresh, int(REMEMBERED * 1000), *watched)
        answer = await self._link.script(LEASE, keys, args, durable=True)
        seconds, micros, epoch = (int(value) for value in answer[:3])
        self._offset = seconds + micros / 1e6 - (sent + self._clock.elapsed()) / 2
        self._mac_keys = {epoch + ahead: answer[4 + ahead] for ahead in (-1, 0, 1) if answer[4 + ahead]}
        self.identity = answer[6].decode()
        self.renewed_at = sent
        dead = {run for run, alive in zip(watched, answer[7:], strict=True) if not alive}
        for run, died in list(self._watches.values()):
            if run in dead:
                died()

    @contextmanager
    def watch(self, run: str, died: Callable[[], None]) -> Iterator[None]:
        """For the block, have `died` called at each renewal that finds the engine `run` dead."""
        key = object()
        self._watches[key] = (run, died)
        try:
            yield
        finally:
            del self._watches[key]

    async def give_up(self) -> None:
        """Delete the lease, since the engine stops. Where the store is away, the lease runs out."""
        with suppress(StoreUnavailable):
            await self._link.call(lambda client: client.delete([lease_of(self.run_id), inbox(self.run_id)]))
            await self._link.call(lambda client: client.hdel(f"{PREFIX}engines", [self.run_id]))

    def now(self) -> float:
        """The store's time, in epoch seconds."""
        return self._clock.elapsed() + self._offset

    def mac_key(self, issued: float) -> bytes | None:
        """The key of nonces made at that time. Raises StoreUnavailable where the keys of now are not known."""
        epoch = int(issued) // EPOCH
        if epoch not in self._mac_keys and epoch == int(self.now()) // EPOCH:
            raise StoreUnavailable("the fleet's store can't be reached; try again", retry_after=2)
        return self._mac_keys.get(epoch)


def lease_of(run: str) -> str:
    """The store's key of an engine's lease."""
    return f"{PREFIX}engine:{run}"


def inbox(run: str) -> str:
    """The store's key of the stream of messages to an engine."""
    return f"{PREFIX}inbox:{run}"
