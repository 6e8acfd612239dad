"""Keeps an engine's process small: which modules are not loaded, and how rarely the garbage collector runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from hatchway.engine.base.imports import without

UNUSED = ("rich", "greenlet", "typing_extensions")
"""Modules that libraries load where they are installed, and that an engine never uses: structlog loads them for other
tracebacks and threads, msgspec for an older Python."""


@contextmanager
def loading() -> Iterator[None]:
    """Around the import of the engine: without `UNUSED`, and without looking for garbage, of which imports make none.
    `collect_rarely` ends that, once the engine runs."""
    gc.disable()
    with without(*UNUSED):
        yield


SELDOM = 100_000
"""Threshold of `gc.set_threshold` for a command: most end before so many objects are there."""


@contextmanager
def short_lived() -> Iterator[None]:
    """Around a command: garbage is looked for seldom, and not once more when Python ends, which takes as long as ten
    imports."""
    gc.set_threshold(SELDOM)
    try:
        yield
    finally:
        gc.freeze()


YOUNG, MIDDLE, NEVER = 1000, 5, 1_000_000
"""Thresholds of `gc.set_threshold`: a collection of the youngest objects takes 0.5 ms, one of the middle generation 3
ms. The third is so high that a full collection never comes by itself."""

PAUSE = 300.0
"""Seconds between two looks through all objects. All requests wait for it, 50 ms where some hundred connections are
open, and finds little: nearly all garbage of ours is found by counting references."""


def collect_rarely() -> None:
    """Exempt all present objects from garbage collection, and have the others collected rarely and in short runs.

    To be called once, from inside trio.
    """
    import trio  # commands import this module too, and are quicker without it

    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, NEVER)
    gc.enable()
    trio.lowlevel.spawn_system_task(_look_through)


async def _look_through() -> None:
    import trio

    while True:
        await trio.sleep(PAUSE)
        if gc.get_count()[2]:
            gc.collect()
