"""The journal's files in `log/`: one that is written, and full ones, each named by its first record's number."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from hatchway.engine.base import files

CURRENT = "events.jsonl"
PIECE = 65_536
"""Bytes read at once."""

_SEQ = re.compile(rb'"seq":(\d+)')
_FULL = re.compile(r"events-([0-9]{16,18})\.jsonl")


class RecordLine(NamedTuple):
    """One record: its number, and its JSON without the line's end."""

    seq: int
    data: bytes


def segment_name(first_seq: int) -> str:
    """The name of a full file whose first record has that number; names sort as their records do."""
    return f"events-{first_seq:016d}.jsonl"


def segments(folder: Path) -> list[Path]:
    """Every file of the journal, oldest first, the written one last.

    Only names that `segment_name` makes, of regular files: what else lies here is its owner's, and isn't touched.
    """
    current = folder / CURRENT
    full = sorted(path for path in folder.glob("events-*.jsonl") if _is_full(path))
    return [*full, *([current] if current.exists() else [])]


def _is_full(path: Path) -> bool:
    named = _FULL.fullmatch(path.name)
    return named is not None and segment_name(int(named[1])) == path.name and path.is_file() and not path.is_symlink()


def parse(data: bytes) -> RecordLine | None:
    """The record of a line, None for a torn or foreign one."""
    found = _SEQ.search(data) if data.startswith(b"{") and data.endswith(b"}") else None
    return RecordLine(int(found[1]), data) if found else None


def last_seq(folder: Path) -> int:
    """The number of the last whole record, 0 where there is none."""
    for path in reversed(segments(folder)):
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - PIECE))
            found = [line.seq for line in map(parse, file.read().split(b"\n")) if line]
        if found:
            return found[-1]
    return 0


def is_torn(path: Path) -> bool:
    """Whether the file ends inside a line: its writer was killed, or the disk was full."""
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


_EXPENDABLE = re.compile(rb'"kind":"refusal"|"kind":"transition","chart":"session","actor":"[^"]*","event":"renew"')
"""What anybody, and anybody with a session, can cause without end. No quote stands bare inside a value."""


def sift(path: Path) -> int:
    """Rewrite a full file without its refusals and renewals, its age as it was; how many bytes that gained.

    Raises OSError and FileRefused, and leaves the file as it was.
    """
    status = path.stat()
    with path.open("rb") as file:
        kept = b"".join(line for line in file if not _EXPENDABLE.search(line))
    gained = status.st_size - len(kept)
    if not kept:
        path.unlink()
    elif gained:
        files.write_private(path, kept)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return gained


def read_after(folder: Path, seq: int) -> Iterator[list[RecordLine]]:
    """The records after number `seq`, oldest first, a piece of a file at a time."""
    for path in _from(segments(folder), seq):
        try:
            file = path.open("rb")
        except FileNotFoundError:
            continue  # the file was removed meanwhile, as too old
        with file:
            file.seek(_offset_after(path, seq))
            rest = b""
            while piece := file.read(PIECE):
                *whole, rest = (rest + piece).split(b"\n")
                lines = [line for line in map(parse, whole) if line and line.seq > seq]
                if lines:
                    seq = lines[-1].seq
                    yield lines


def _from(paths: list[Path], seq: int) -> list[Path]:
    """The files from the one on that may hold the record after `seq`."""
    while len(paths) > 1 and (named := _FULL.fullmatch(paths[1].name)) and int(named[1]) <= seq + 1:
        paths = paths[1:]
    return paths


def _offset_after(path: Path, seq: int) -> int:
    """Where in the file the first record after `seq` may begin: looked for by halves, since numbers only grow."""
    with path.open("rb") as file:
        low, high = 0, path.stat().st_size
        while high - low > PIECE:
            middle = (low + high) // 2
            file.seek(middle)
            file.readline()
            line = parse(file.readline().rstrip(b"\n"))
            if line is None or line.seq > seq:
                high = middle
            else:
                low = middle
        file.seek(low)
        if low:
            file.readline()
        return file.tell()
