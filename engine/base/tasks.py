"""Tasks of the engine that outlast what they meet."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import structlog
import trio

log = structlog.get_logger(__name__)

BEGIN_ANEW = 5.0
"""Seconds until a task that failed begins anew."""


async def kept_up(task: Callable[..., Awaitable[None]], *arguments: Any) -> None:
    """Run a task of the engine's. A fault in it is logged, and it begins anew: it must not end everybody's sign-ins."""
    while True:
        try:
            await task(*arguments)
        except Exception:
            log.exception("task_failed", task=task.__qualname__)
            await trio.sleep(BEGIN_ANEW)
        else:
            return
