"""The keys in a fleet's store, for commands of a host whose engine need not run; `key_administration` opens them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import trio

from hatchway.engine.base.clock import Clock
from hatchway.engine.base.errors import EngineUnavailable, Refusal, StoreUnavailable
from hatchway.engine.fleet.keys import FleetKeys, SharedKeys
from hatchway.engine.keys.key_edits import Edit, T
from hatchway.engine.keys.key_lines import KeyLine, parse_file
from hatchway.engine.keys.rotation import next_token_key
from hatchway.engine.settings.redis_address import read_address
from hatchway.engine.store.redis import RedisStore
from hatchway.engine.store.redis_link import RedisLink

CONNECT_WITHIN = 5.0
"""Seconds that a command waits for the store."""


class StoreKeys:
    """Keys in the fleet's store. Each call connects anew, and raises EngineUnavailable where the store can't be
    reached."""

    def __init__(self, url: str, types: tuple[str, ...]) -> None:
        self._url, self._types = url, types
        self.where = "the store's authorized_keys"

    def lines(self) -> tuple[KeyLine, ...]:
        async def read(keys: FleetKeys) -> SharedKeys:
            return (await keys.read()).keys

        return parse_file(self._ask(read).authorized, self._types)

    def edit(self, change: Edit[T]) -> T:
        def edit(held: SharedKeys) -> tuple[SharedKeys, T]:
            authorized, done = change(held.authorized)
            return msgspec.structs.replace(held, authorized=authorized), done

        return self._ask(lambda keys: keys.change(edit))

    def rotate_token(self, clock: Clock, *, force: bool) -> None:
        def edit(held: SharedKeys) -> tuple[SharedKeys, None]:
            if not held.token:
                raise EngineUnavailable("the store has no token key yet: the first start of an engine makes it")
            now = clock.wall()
            made, old = next_token_key(held.token, held.rotated_at, now, force=force)
            return SharedKeys(held.authorized, made, old, now), None

        self._ask(lambda keys: keys.change(edit))

    def _ask(self, ask: Callable[[FleetKeys], Awaitable[T]]) -> T:
        return ask_store(self._url, lambda store: ask(FleetKeys(store)))


def ask_store(url: str, ask: Callable[[RedisStore], Awaitable[T]]) -> T:
    """What a fleet's store answers to a command of a host whose engine need not run. Raises EngineUnavailable."""
    address = read_address(url)

    async def run() -> T:
        link, done, refusal = RedisLink(address), [], None
        async with trio.open_nursery() as nursery:
            with trio.move_on_after(CONNECT_WITHIN):
                await nursery.start(link.run)
            try:
                done.append(await ask(RedisStore(link)))
            except Refusal as refused:
                refusal = refused
            nursery.cancel_scope.cancel()
        if refusal is not None:
            raise refusal
        return done[0]

    try:
        return trio.run(run)
    except StoreUnavailable as lost:
        raise EngineUnavailable(f"{lost.why}; the keys are in {address.shown}") from None
