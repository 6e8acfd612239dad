"""Paths of Unix sockets as the kernel takes them: 107 bytes at most (unix(7))."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST_PATH = 107


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """The path by which the kernel reaches `path`, for the block: a longer one goes through its folder's descriptor."""
    if len(os.fsencode(path)) <= LONGEST_PATH:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
