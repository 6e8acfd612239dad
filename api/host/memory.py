"""How an engine's process keeps small: what is loaded with it, and what the garbage collector need not look at."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

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


YOUNG = 10_000
"""Objects made and kept before the next look for garbage. Ours is nearly all found by counting references."""


def settle() -> None:
    """What is here now stays, and is not looked through again: a whole collection would take 40 ms of everybody."""
    gc.freeze()
    gc.set_threshold(YOUNG)
    gc.enable()
