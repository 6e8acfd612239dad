"""Changes that commands make to the keys, in a folder's files or a fleet's store, whether or not an engine runs."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import msgspec
import trio

from hatchway.engine.base import files
from hatchway.engine.base.clock import Clock
from hatchway.engine.base.errors import EngineUnavailable, Refusal, StoreUnavailable
from hatchway.engine.fleet.keys import FleetKeys, SharedKeys
from hatchway.engine.keys.authorized_keys import AUTHORIZED_KEYS, AuthorizedKeys
from hatchway.engine.keys.key_edits import Edit, T
from hatchway.engine.keys.key_lines import KeyLine, parse_file
from hatchway.engine.keys.rotation import next_token_key, rotate_token_key
from hatchway.engine.settings.redis_address import read_address
from hatchway.engine.settings.settings import Settings, keys_folder
from hatchway.engine.store.redis import RedisStore
from hatchway.engine.store.redis_link import RedisLink

CONNECT_WITHIN = 5.0
"""Seconds that a command waits for the store."""


class KeyAdministration(Protocol):
    """What a command can do with the keys, wherever they are kept."""

    where: str
    """Where authorized_keys is, for people."""

    def lines(self) -> tuple[KeyLine, ...]:
        """Every line of authorized_keys now."""

    def edit(self, change: Edit[T]) -> T:
        """Change authorized_keys. Returns what `change` says that it did."""

    def rotate_token(self, clock: Clock, *, force: bool) -> None:
        """Replace the token key."""


def open_key_administration(home: Path, settings: Settings) -> KeyAdministration:
    """The keys where the settings say that they are kept. Raises SettingRefused."""
    folder = keys_folder(home, settings)
    types = settings.key_types
    return _StoreKeys(settings.store, types) if settings.keys == "store" else _FolderKeys(folder, types)


class _FolderKeys:
    """Keys in the files of a folder."""

    def __init__(self, folder: Path, types: tuple[str, ...]) -> None:
        self._types = types
        self._folder, self._keys = folder, AuthorizedKeys(folder / AUTHORIZED_KEYS)
        self.where = str(self._keys.path)

    def lines(self) -> tuple[KeyLine, ...]:
        with contextlib.suppress(FileNotFoundError):
            return parse_file(files.read_private(self._keys.path), self._types)
        return ()

    def edit(self, change: Edit[T]) -> T:
        return self._keys.edit(change)

    def rotate_token(self, clock: Clock, *, force: bool) -> None:
        rotate_token_key(self._folder, clock, force=force)


class _StoreKeys:
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
        raise EngineUnavailable(f"{lost.detail}; the keys are in {address.shown}") from None
