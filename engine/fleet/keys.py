"""A fleet's keys in its store: authorized_keys and the token key are one value, changed by compare-and-set alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import msgspec

from hatchway.engine.base.errors import KeyRefused, StoreUnavailable
from hatchway.engine.keys import keys
from hatchway.engine.keys.key_lines import judged, known_lines, split
from hatchway.engine.keys.own_keys import read_public_token_key
from hatchway.engine.store.protocol import Change, Stored, VersionMoved
from hatchway.engine.store.redis import RedisStore

CHART = "keys"
"""The value is stored, and its change told, as if it were the one actor of a chart of this name."""

LARGEST = 1024 * 1024
"""Bytes of authorized_keys; a key of 3072 bits takes about 560."""

T = TypeVar("T")


class SharedKeys(msgspec.Struct, frozen=True):
    """What the files of a folder of keys would hold. `rotated_at` is in epoch seconds."""

    authorized: bytes = b""
    token: bytes = b""
    old_token: bytes = b""
    rotated_at: float = 0.0


class StoredKeys(NamedTuple):
    """The keys in the store, and the version of their value; 0 where there is none yet."""

    version: int
    keys: SharedKeys


class FleetKeys:
    """Reads and changes the keys in the store. The files of every host are copies of them."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        store.define({CHART: SharedKeys})

    async def read(self) -> StoredKeys:
        """The keys now. Raises StoreUnavailable, also where the value can't be read."""
        try:
            stored = await self._store.load(CHART, CHART)
        except (msgspec.MsgspecError, ValueError) as error:
            raise StoreUnavailable(f"the fleet's keys in the store can't be read: {error}", cause="damaged") from None
        if stored is None:
            return StoredKeys(0, SharedKeys())
        assert isinstance(stored.facts, SharedKeys)
        return StoredKeys(stored.version, stored.facts)

    async def change(self, edit: Callable[[SharedKeys], tuple[SharedKeys, T]]) -> T:
        """Store what `edit` makes of the keys, and tell every engine. Returns what `edit` says that it did.

        `edit` is called again where another change came first, so that no change is lost. Raises KeyRefused where the
        result is not sound, StoreUnavailable.
        """
        while True:
            version, held = await self.read()
            wanted, done = edit(held)
            if wanted == held:
                return done
            _check(wanted, held)
            try:
                await self._store.commit(Change(CHART, CHART, version, Stored(version + 1, "held", None, wanted)))
            except VersionMoved:
                continue
            return done


def _check(wanted: SharedKeys, held: SharedKeys) -> None:
    """Raises KeyRefused for keys that are not sound, since every engine would take them up."""
    if len(wanted.authorized) > LARGEST:
        raise KeyRefused(f"authorized_keys would be larger than {LARGEST // 1024} KiB", cause="size")
    known = set(split(held.authorized))
    for line in known_lines(wanted.authorized):
        if line.raw not in known and (fault := judged(line).fault):
            raise KeyRefused(f"line {line.number} of authorized_keys grants nothing: {fault}", cause="line")
    if wanted.token or held.token:
        keys.read_token_key(wanted.token)
    if wanted.old_token:
        read_public_token_key(wanted.old_token)
