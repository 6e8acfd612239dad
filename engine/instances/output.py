"""What an instance wrote: its log's file and, where that is full, the files beside it (see `watcher`), in pieces.

Several instances of one name write into one file, one after the other: `begin` is where in it an instance's own output
begins. A `position` counts from there, over all files.
"""

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
    """The files beside a log, in order."""
    found = []
    with suppress(OSError):
        for other in path.parent.iterdir():
            head, plus, start = other.name.removeprefix(f"{path.name}.").partition("+")
            if other.name.startswith(f"{path.name}.") and plus and head.isdecimal() and start.isdecimal():
                found.append(Rest(int(head), int(start), other))
    return sorted(found)


def piece(path: Path, begin: int, position: int, most: int) -> tuple[bytes, int]:
    """What was written at `position`, `most` bytes at most, and the position behind it. Where that was not kept,
    nothing, and the position from which on it was."""
    rest = _rest(path)
    if not rest:
        chunk = read(path, begin + position, most)
        if chunk and _rest(path):  # the log became full meanwhile: what was read may be the note of that
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
    """How many bytes were written so far, kept or not."""
    rest = _rest(path)
    return rest[-1].start + size(rest[-1].path) if rest else size(path) - begin


def remove_rest(path: Path) -> None:
    """Remove the files beside a log."""
    for part in _rest(path):
        with suppress(OSError):
            part.path.unlink()


def remove(path: str, begin: int, end: int) -> None:
    """Remove an ended instance's log, unless another instance's has grown in the same file since."""
    file = Path(path)
    if size(file) == end:
        remove_rest(file)
        with suppress(OSError):
            os.truncate(file, begin) if begin else file.unlink()


def read(path: Path, position: int, most: int = CHUNK) -> bytes:
    """The file's bytes from `position` on, `most` at most; nothing where there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(position)
            return file.read(max(most, 0))
    except OSError:
        return b""


def size(path: Path) -> int:
    """The file's size in bytes, 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
