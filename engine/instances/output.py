"""What an instance wrote: its log's file and what a full one left beside it (see `watcher`), a piece at a time."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

CHUNK = 65536

LEFT_OUT = b"\n[hatchway: %d bytes are left out here: the log was full]\n"


class Rest(NamedTuple):
    """A file beside a full log, which itself holds `head` bytes: what was written from `start` on."""

    head: int
    start: int
    path: Path


def _rest(path: Path) -> list[Rest]:
    """All of them, in order."""
    found = []
    with suppress(OSError):
        for other in path.parent.iterdir():
            head, plus, start = other.name.removeprefix(f"{path.name}.").partition("+")
            if other.name.startswith(f"{path.name}.") and plus and head.isdecimal() and start.isdecimal():
                found.append(Rest(int(head), int(start), other))
    return sorted(found)


def piece(path: Path, begin: int, position: int, most: int) -> tuple[bytes, int]:
    """What is at `position` of all that was written and the position after it, or where what is kept goes on."""
    rest = _rest(path)
    if not rest:
        chunk = read(path, begin + position, most)
        if chunk and _rest(path):  # it became full meanwhile, and what was read may be the word that it is
            return piece(path, begin, position, most)
    elif position < rest[0].head:
        chunk = read(path, begin + position, min(most, rest[0].head - position))
    else:
        here = [part for part in rest if part.start <= position]
        chunk = read(here[-1].path, position - here[-1].start, most) if here else b""
    later = [part for part in rest if part.start > position]
    if chunk or not later or most <= 0:
        return chunk, position + len(chunk)
    return LEFT_OUT % (later[0].start - position), later[0].start


def end(path: Path, begin: int) -> int:
    """How much was written so far."""
    rest = _rest(path)
    return rest[-1].start + size(rest[-1].path) if rest else size(path) - begin


def remove_rest(path: Path) -> None:
    """What is beside a log goes."""
    for part in _rest(path):
        with suppress(OSError):
            part.path.unlink()


def remove(path: str, begin: int, end: int) -> None:
    """An ended instance's log goes, unless another's has grown in the same file since."""
    file = Path(path)
    if size(file) == end:
        remove_rest(file)
        with suppress(OSError):
            os.truncate(file, begin) if begin else file.unlink()


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
