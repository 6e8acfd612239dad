"""One host's copy of the keys in the fleet's store, in files that engine and workers read as any others."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import trio

from hatchway.engine.access.tokens import key_id
from hatchway.engine.base import files
from hatchway.engine.base.errors import EngineUnavailable, FileRefused, StoreUnavailable
from hatchway.engine.base.permissions import MASTER
from hatchway.engine.fleet.keys import FleetKeys, SharedKeys, StoredKeys
from hatchway.engine.keys import key_edits, keys
from hatchway.engine.keys.authorized_keys import AUTHORIZED_KEYS
from hatchway.engine.keys.key_lines import known_lines
from hatchway.engine.keys.keys import PublicKey
from hatchway.engine.keys.own_keys import OLD_TOKEN_KEY, TOKEN_KEY

FLEET = "fleet"
"""A file that names the fleet whose keys the folder has a copy of, and the engine's key that is authorized there."""

CheckSigners = Callable[[tuple[str, ...]], Awaitable[None]]
"""Raises EngineUnavailable where live engines sign with a key whose id is none of these."""


class KeyMirror:
    """Keeps the files in `folder` as the store has the keys. An edit of the files themselves is undone in a second."""

    def __init__(self, store: FleetKeys, folder: Path) -> None:
        self._store, self._folder = store, folder
        self._version = 0
        self._following = trio.Lock()

    async def join(
        self, fleet: str, own: PublicKey, comment: str, home: Path, check_token_key_ahead: CheckSigners
    ) -> None:
        """Take up the store's keys at an engine's start. Where the store has none, this engine puts its own there.

        An engine whose `own` key is new to this fleet has it authorized under that comment, as at any first start
        (section 2.3). Raises KeyRefused, FileRefused, StoreUnavailable.
        """
        files.make_private_dir(self._folder)
        joined, wanted = _read(self._folder / FLEET), f"{fleet}\n{own.identity}\n".encode()
        if joined != wanted:
            brought = SharedKeys() if joined else _brought(home)
            await self._check(brought, check_token_key_ahead)
            await self._store.change(partial(_with_engine, brought=brought, own=own, comment=comment))
        await self.follow()
        if joined != wanted:
            files.write_private(self._folder / FLEET, wanted)

    async def _check(self, brought: SharedKeys, check_token_key_ahead: CheckSigners) -> None:
        """Raises EngineUnavailable where the store has no keys and live engines sign with others than `brought`
        holds."""
        ids = (key_id(keys.read_token_key(brought.token).public_key()),) if brought.token else ()
        if (await self._store.read()).keys.token:
            return
        try:
            await check_token_key_ahead(ids)
        except EngineUnavailable:
            if not (await self._store.read()).keys.token:  # else another engine has stored the keys meanwhile
                raise

    async def follow(self) -> None:
        """Make the files what the store has. Raises StoreUnavailable, also where they can't be written."""
        async with self._following:  # one call at a time: else an older reading might be written last
            self._take(await self._store.read())

    def _take(self, held: StoredKeys) -> None:
        if held.version < self._version:
            raise StoreUnavailable("the fleet's store has lost keys that it held; restart the engine", cause="older")
        if not held.keys.token:
            raise StoreUnavailable("the fleet's store has no keys any more", cause="no_keys")
        try:
            self._write(held)
        except (FileRefused, OSError) as error:
            # What can't be written is named by its path, which is for the log alone.
            why = f"the fleet's keys can't be kept here: {error}"
            raise StoreUnavailable("this engine can't keep the fleet's keys; its log has why", why=why) from None

    def _write(self, held: StoredKeys) -> None:
        kept = held.keys
        self._put(OLD_TOKEN_KEY, kept.old_token)
        if kept.old_token:
            os.utime(self._folder / OLD_TOKEN_KEY, (kept.rotated_at, kept.rotated_at))
        self._put(TOKEN_KEY, kept.token)
        self._put(AUTHORIZED_KEYS, kept.authorized)
        self._version = held.version

    def _put(self, name: str, data: bytes) -> None:
        path = self._folder / name
        if _read(path) == data:
            return
        files.clear_leftovers(path)
        if data:
            files.write_private(path, data)
        else:
            path.unlink()


def _read(path: Path) -> bytes:
    try:
        return files.read_private(path)
    except FileNotFoundError:
        return b""


def _brought(home: Path) -> SharedKeys:
    old = home / OLD_TOKEN_KEY
    rotated_at = old.stat().st_mtime if old.exists() else 0.0
    return SharedKeys(_read(home / AUTHORIZED_KEYS), _read(home / TOKEN_KEY), _read(old), rotated_at)


def _with_engine(held: SharedKeys, brought: SharedKeys, own: PublicKey, comment: str) -> tuple[SharedKeys, None]:
    base = held if held.token else brought
    token = base.token or keys.token_key_pem(keys.generate_token_key())
    authorized = base.authorized
    for line in () if held.token else known_lines(held.authorized):  # keys registered before any engine's start
        if line.entry is not None:
            entry = line.entry
            options = dict(entry.options.texts) if entry.options else {}
            authorized, _ = key_edits.register(
                authorized, entry.key, entry.permissions, entry.comment, options, own=True
            )
    if all(line.key is None or line.key.identity != own.identity for line in known_lines(authorized)):
        authorized, _ = key_edits.register(authorized, own, (MASTER,), comment, own=True)
    return SharedKeys(authorized, token, base.old_token, base.rotated_at), None
