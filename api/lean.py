"""How an engine's process keeps small: what is loaded with it, and what the garbage collector need not look at."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Around the import of the engine: without rich, which structlog would load for tracebacks that we print without,
    and without looking for garbage, of which imports make none. `settle` ends that, once the engine runs."""
    gc.disable()
    hidden = "rich" not in sys.modules
    if hidden:
        sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if hidden:
            del sys.modules["rich"]


def settle() -> None:
    """What is here now stays, and is not looked through again: a whole collection would take 40 ms of everybody."""
    gc.freeze()
    gc.enable()
