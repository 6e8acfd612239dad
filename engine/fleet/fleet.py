"""One engine in its fleet: its lease, and how fresh its memory of the fleet's sessions is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from math import inf

import structlog
import trio

from hatchway.engine.access.limits import Limit
from hatchway.engine.base.clock import Clock
from hatchway.engine.base.errors import EngineUnavailable, StoreUnavailable
from hatchway.engine.fleet.change_reader import ChangeReader, Follow
from hatchway.engine.fleet.lease import SECONDS, Lease, inbox
from hatchway.engine.fleet.limits import FleetLimit
from hatchway.engine.fleet.messages import Messages
from hatchway.engine.runtime import Runtime
from hatchway.engine.settings.redis_address import read_address
from hatchway.engine.store.redis import PREFIX, RedisStore
from hatchway.engine.store.redis_link import RedisLink
from hatchway.engine.store.scripts import OTHERS

log = structlog.get_logger(__name__)

TOKEN_KEY_ID = PREFIX + "token-key"
"""The store's key for the id of the token key that all live engines sign with."""

FRESH = 0.75
"""Seconds since the memory was confirmed, within which sessions are answered from it."""

PATIENCE = 1.0
"""Seconds that a response waits at most for the memory to be confirmed."""

CONNECT_WITHIN = 5.0
"""Seconds that a start waits for the store."""

RENEW_INTERVAL, RENEW_INTERVAL_REPLICATED = 1.0, 0.25
"""Seconds between two renewals of the lease. With Sentinel each renewal shows that a replica follows this primary."""

LEAVE_WITHIN = 1.0
"""Seconds that a stopping engine has to send its last messages."""


class Fleet:
    """One engine's side of the fleet. Use `open_fleet`."""

    def __init__(self, link: RedisLink, clock: Clock, lease: Lease, tasks: trio.Nursery) -> None:
        self.link, self.store, self._clock, self.lease = link, RedisStore(link), clock, lease
        self.tasks = tasks
        """The nursery of tasks that outlast the function which starts them."""
        self.messages = Messages(link, clock)
        self._subscribers: list[Callable[[float], None]] = []
        self.not_durable: str | None = None
        """What is wrong with the store's durability, in words; None if nothing is."""
        self._not_renewed = StoreUnavailable("the fleet's store has not taken this engine's lease; try again")
        self._reader: ChangeReader | None = None
        self._whole = trio.Event()

    async def run(self, runtime: Runtime, mirrors: Mapping[str, Follow]) -> None:
        """Renew the lease, have `runtime` take up the store's sessions and their changes, read and send messages, for
        ever.

        `mirrors` keep copies of other things in the store, as the fleet's keys. Each is called when the store tells a
        change of the chart that it stands under here.
        """
        own, take = inbox(self.lease.run_id), self.messages.take
        reader = ChangeReader(self.link, self.store, self._clock, runtime, own, take, mirrors, self._whole)
        self._reader = reader
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._renew)
            nursery.start_soon(reader.run)
            nursery.start_soon(self._tell_fresh, reader)
            nursery.start_soon(self.messages.run)

    async def check_token_key(self, own: tuple[str, ...]) -> None:
        """Raises EngineUnavailable where the fleet's live engines sign tokens with a key that is none of `own`.

        Their tokens would be refused here, and ours there.
        """
        agreed = (await self.store.agree(TOKEN_KEY_ID, own[0].encode())).decode()
        await self._refuse_other_token_keys(agreed, own)
        if agreed != own[0]:
            await self.tell_token_key(own[0])

    async def check_token_key_ahead(self, own: tuple[str, ...]) -> None:
        """As `check_token_key`, before the key that this engine will sign with is settled."""
        agreed = await self.link.call(lambda client: client.get(TOKEN_KEY_ID))
        if agreed is not None:
            await self._refuse_other_token_keys(agreed.decode(), own)

    async def _refuse_other_token_keys(self, agreed: str, own: tuple[str, ...]) -> None:
        if agreed not in own and await self.others():
            raise EngineUnavailable(
                "the other engines of this fleet sign tokens with another key than this one's token-key.pem: give all"
                " of them the same setting `keys`, store or one folder, or this engine a copy of their keys"
            )

    async def tell_token_key(self, key_id: str) -> None:
        """Store that the fleet signs with this key from now on. Raises StoreUnavailable."""
        await self.link.call(lambda client: client.set(TOKEN_KEY_ID, key_id))

    async def check_durable(self) -> None:
        """Note in `not_durable` which settings of the store could lose a confirmed change when its server fails."""
        wanted = {b"appendonly": b"yes", b"appendfsync": b"always"}
        try:
            held = await self.link.call(lambda client: client.config_get(list(wanted)))
        except StoreUnavailable:
            self.not_durable = "the store does not tell whether it is durable"
        else:
            wrong = [f"{name.decode()} {value.decode()}" for name, value in wanted.items() if held.get(name) != value]
            self.not_durable = f"the store may lose what was answered: it wants {', '.join(wrong)}" if wrong else None
        if self.not_durable:
            log.warning("store_not_durable", why=self.not_durable)

    async def others(self) -> list[str]:
        """The live engines of the fleet but this one."""
        runs = await self.link.script(OTHERS, [f"{PREFIX}engines"], [self.lease.run_id])
        return [run.decode() for run in runs]

    # Freshness

    @property
    def confirmed_at(self) -> float:
        """When the memory of the fleet's sessions was last confirmed, in elapsed seconds."""
        if self._reader is None:
            return -inf
        proven = self.lease.renewed_at if self.link.replicated else inf
        return min(self._reader.confirmed_at, proven)

    @property
    def fresh(self) -> bool:
        """Whether sessions may be answered from memory: every end that is older than a second is known."""
        return self._clock.elapsed() - self.confirmed_at < FRESH

    def check_fresh(self) -> None:
        """Raises StoreUnavailable unless the memory is fresh."""
        if not self.fresh:
            lost = self._why_stale()
            raise StoreUnavailable(lost.detail, why=lost.why, cause="stale", retry_after=2)

    def check_leased(self) -> None:
        """Raises StoreUnavailable unless this engine's lease was renewed lately.

        A renewal is a write like any other, and so shows that the store takes writes: one that is full, or has become a
        replica, can still be read.
        """
        if self._clock.elapsed() - self.lease.renewed_at >= SECONDS:
            lost = self._not_renewed
            raise StoreUnavailable(lost.detail, why=lost.why, cause="not_leased", retry_after=2)

    def _why_stale(self) -> StoreUnavailable:
        """Why the memory is not fresh."""
        lost = self._reader.lost if self._reader else None
        return self.link.unavailable() if lost is None else lost

    def subscribe_freshness(self, subscriber: Callable[[float], None]) -> None:
        """Have `subscriber` called whenever the memory is confirmed, with the elapsed time until which it is fresh."""
        self._subscribers.append(subscriber)

    async def _tell_fresh(self, reader: ChangeReader) -> None:
        while True:
            await reader.wait_confirmed()
            for subscriber in self._subscribers:
                subscriber(self.confirmed_at + FRESH)

    async def wait_fresh(self) -> None:
        """Wait until the memory is fresh. Raises StoreUnavailable after `PATIENCE` seconds."""
        with trio.move_on_after(PATIENCE):
            while not self.fresh and self._reader is not None:
                if self.link.replicated:
                    await trio.sleep(0.02)
                else:
                    await self._reader.wait_confirmed()
        self.check_fresh()

    async def wait_whole(self, seconds: float = inf) -> None:
        """Wait until the memory holds all sessions of the fleet: an engine takes them up behind its first answers.

        Raises StoreUnavailable after so many seconds.
        """
        with trio.move_on_after(seconds):
            await self._whole.wait()
        if not self._whole.is_set():
            raise StoreUnavailable(
                "this engine has just started and still reads the fleet's sessions; try again, or ask another engine",
                cause="not_whole",
                retry_after=5,
            )

    def limit(self, most: Callable[[], int], what: str) -> Limit:
        """A limit that counts in the store, for the whole fleet."""
        return FleetLimit(self.link, most, what, self._clock)

    # The lease

    async def _renew(self) -> None:
        pause = RENEW_INTERVAL_REPLICATED if self.link.replicated else RENEW_INTERVAL
        lapsed = False
        while True:
            try:
                await self.lease.refresh()
            except StoreUnavailable as lost:
                self._not_renewed = lost
                if not lapsed:  # a store may be away for hours
                    log.warning("lease_not_renewed", why=lost.why)
                lapsed = True
            except Exception:
                log.exception("lease_not_renewed")
            else:
                if lapsed:
                    log.info("lease_renewed_again")
                lapsed = False
            await trio.sleep(pause)

    async def leave(self) -> None:
        """Send the messages that wait, then give the lease up, in about a second."""
        with trio.move_on_after(LEAVE_WITHIN) as scope:
            scope.shield = True
            await self.messages.send_rest()
            await self.lease.give_up()


@asynccontextmanager
async def open_fleet(url: str, clock: Clock, name: str, engine_id: str) -> AsyncIterator[Fleet]:
    """A place in the fleet behind `url`, until left, for the engine `engine_id` on the host `name`.

    Raises EngineUnavailable where its store can't be used.
    """
    address = read_address(url)
    link = RedisLink(address)
    async with trio.open_nursery() as nursery:
        fleet = Fleet(link, clock, Lease(link, clock, name, engine_id), nursery)
        nursery.start_soon(link.run)
        connected = await _connect(fleet)
        if connected:
            await fleet.check_durable()
            try:
                yield fleet
            finally:
                await fleet.leave()
        nursery.cancel_scope.cancel()
    if not connected:
        raise EngineUnavailable(f"the store {address.shown} can't be used: {link.why}")


async def _connect(fleet: Fleet) -> bool:
    until = trio.current_time() + CONNECT_WITHIN
    while trio.current_time() < until:
        try:
            await fleet.lease.refresh()
        except StoreUnavailable:
            await trio.sleep(0.05)
        else:
            return True
    return False
