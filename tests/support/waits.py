"""How a test waits for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 60.0
"""Seconds that anything may take on a busy machine."""


def until(there: Callable[[], bool], seconds: float = PATIENCE, *, what: str = "it") -> None:
    """Waits for a condition; fails the test where it does not come."""
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.02)
