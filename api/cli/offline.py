"""What a command does to the store while no engine runs."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import trio

from hatchway.engine.base.clock import SystemClock
from hatchway.engine.base.file_locks import LockHeld, locked
from hatchway.engine.engine import open_engine
from hatchway.engine.journal.logs import set_up_logs
from hatchway.engine.sessions.key_uses import KeyUse, KeyUses
from hatchway.engine.settings.redis_address import is_redis
from hatchway.engine.settings.settings import LogSettings
from hatchway.engine.settings.sources import load_settings
from hatchway.engine.store.protocol import Store
from hatchway.engine.store.sqlite import SQLiteStore

T = TypeVar("T")


def note_keys(home: Path, added: set[str]) -> None:
    """Note that these keys were registered now. Does nothing where an engine is just starting: it sees them itself."""
    with suppress(LockHeld):
        asked(home, lambda uses: uses.register(added))


def stored_uses(home: Path) -> dict[str, KeyUse]:
    """When each key was registered and last used, as the store has it; nothing where an engine just starts."""
    with suppress(LockHeld):
        return asked(home, lambda uses: uses.all())
    return {}


def asked(home: Path, ask: Callable[[KeyUses], Awaitable[T]]) -> T:
    """What the notes in the store of an engine that doesn't run say. Raises LockHeld, EngineUnavailable."""
    settings = load_settings(home, os.environ, {})
    if is_redis(settings.store):
        from hatchway.engine.fleet.store_keys import ask_store

        return ask_store(settings.store, lambda store: _ask(store, ask))
    with locked(home / "engine.lock", wait=False):
        store = SQLiteStore(home / "engine.db", SystemClock(), inline=True)
        try:
            return trio.run(_ask, store, ask)
        finally:
            store.close()


async def _ask(store: Store, ask: Callable[[KeyUses], Awaitable[T]]) -> T:
    uses = KeyUses(store, SystemClock(), tuple, tuple)
    await uses.take_up()
    return await ask(uses)


def end_sessions_of(home: Path, identities: set[str]) -> int:
    """End every stored session of these identities. Returns how many it ended. Raises EngineUnavailable where an engine
    runs."""
    set_up_logs(LogSettings(level="warning"))  # standard output is the command's

    async def end() -> int:
        async with open_engine(home, lambda: load_settings(home, os.environ, {}), run=False) as engine:
            await engine.key_uses.forget(identities)
            return await engine.orphans.end_of(identities)

    return trio.run(end)
