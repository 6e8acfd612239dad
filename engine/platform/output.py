"""What an instance wrote: its log's file, a piece at a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import trio

LOOK = 0.25
"""Seconds between two looks at a log that is followed: it may lie on a file system that tells nobody of a change."""

CHUNK = 65536


async def pieces(
    path: Path, position: int, may_grow: Callable[[], bool], goes_on: Callable[[], bool] | None
) -> AsyncGenerator[bytes, None]:
    """The log from `position` to where it ends now; with `goes_on`, also what comes while it may grow, and nothing once
    that is no longer true."""
    end = size(path) if goes_on is None else None
    while goes_on is None or goes_on():
        last = goes_on is None or not may_grow()  # asked first: nothing is written after an end
        chunk = read(path, position, CHUNK if end is None else min(CHUNK, end - position))
        if chunk:
            position += len(chunk)
            yield chunk
        elif last:
            return
        else:
            await trio.sleep(LOOK)


def read(path: Path, position: int, most: int = CHUNK) -> bytes:
    """What is there; nothing where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(position)
            return file.read(max(most, 0))
    except OSError:
        return b""


def size(path: Path) -> int:
    """Its bytes now."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
