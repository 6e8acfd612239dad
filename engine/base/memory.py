"""How an engine's process keeps small: what is loaded with it, and what the garbage collector need not look at."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from hatchway.engine.base.imports import without

UNUSED = ("rich", "greenlet", "typing_extensions")
"""What is loaded where it is installed: by structlog for tracebacks, and for threads, of kinds that an engine has none
of; by msgspec for a Python older than ours."""


@contextmanager
def loading() -> Iterator[None]:
    """Around the import of the engine: without `UNUSED`, and without looking for garbage, of which imports make none.
    `settle` ends that, once the engine runs."""
    gc.disable()
    with without(*UNUSED):
        yield


YOUNG, MIDDLE, NEVER = 1000, 5, 1_000_000
"""Objects made and kept before the next look through the young ones (0.5 ms), such looks before one through those that
outlived a look (3 ms), and so many of these before one through all that it never comes by itself."""

PAUSE = 300.0
"""Seconds between two looks through all objects. It holds everybody up for 50 ms where some hundred connections are
open, and finds little: nearly all garbage of ours is found by counting references."""


def settle() -> None:
    """What is here now stays, and is not looked through again; what comes is looked through rarely, and not for long.
    To be called once, from inside trio."""
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, NEVER)
    gc.enable()
    trio.lowlevel.spawn_system_task(_look_through)


async def _look_through() -> None:
    while True:
        await trio.sleep(PAUSE)
        if gc.get_count()[2]:
            gc.collect()
