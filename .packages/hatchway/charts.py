"""Charts of your own: all that a program needs to run one, durably, in time, and on record. `hatchway help charts`.

A chart is a table of rows. A `Runtime` runs the actors of the charts that are registered with it: an event becomes a
step of one actor, is stored, recorded, has its effects run, and the delay of the state it leads to is armed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hatchway.engine.base.clock import Clock, SystemClock, TrioClock
from hatchway.engine.base.errors import StoreUnavailable
from hatchway.engine.runtime import Actor, Effect, Runtime
from hatchway.engine.runtime.records import NOBODY, Origin, Record, Records
from hatchway.engine.store.memory import MemoryStore
from hatchway.engine.store.protocol import Store
from hatchway.statecharts.chart import NONE, Chart, ChartFault, Data, Delay, Transition, always
from hatchway.statecharts.interpreter import EventRefused

if TYPE_CHECKING:
    from hatchway.engine.store.redis import RedisStore
    from hatchway.engine.store.sqlite import SQLiteStore

__all__ = [
    "NOBODY",
    "NONE",
    "Actor",
    "Chart",
    "ChartFault",
    "Clock",
    "Data",
    "Delay",
    "Effect",
    "EventRefused",
    "MemoryStore",
    "Origin",
    "Record",
    "Records",
    "Runtime",
    "Store",
    "StoreUnavailable",
    "SystemClock",
    "Transition",
    "TrioClock",
    "always",
    "redis_store",
    "sqlite_store",
]


@contextmanager
def sqlite_store(path: Path, clock: Clock, *, inline: bool = False) -> Iterator[SQLiteStore]:
    """A store in a SQLite file, made where there is none, that is open until left. Every step is durable before `send`
    returns. With `inline` it is written in the caller's thread: for tests in virtual time.

    Raises EngineUnavailable where the file can't be used, FileRefused where others may read or write it.
    """
    from hatchway.engine.base.files import check_private, write_private
    from hatchway.engine.store.sqlite import SQLiteStore

    if path.exists():
        check_private(path)
    else:
        write_private(path, b"", overwrite=False)
    store = SQLiteStore(path, clock, inline=inline)
    try:
        yield store
    finally:
        store.close()


@asynccontextmanager
async def redis_store(url: str) -> AsyncIterator[RedisStore]:
    """A store in Redis or Valkey that several programs share, until left: each sees at its next event what the others
    did to an actor. `url` as the setting `store` has it; needs `hatchway[fleet]`. Raises SettingRefused."""
    import trio

    from hatchway.engine.settings.redis_address import read_address
    from hatchway.engine.store.redis import RedisStore
    from hatchway.engine.store.redis_link import RedisLink

    link = RedisLink(read_address(url))
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        yield RedisStore(link)
        nursery.cancel_scope.cancel()
