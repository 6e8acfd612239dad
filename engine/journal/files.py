"""The journal's files as they lie in `log/`: one that is written, and full ones, each named by its
first record's number.

Each line ends in a hash over the hash of the line before it and the line itself, so that none can be changed, dropped
or put in between without a trace. `engine.journal.heads` signs the last of them from time to time.
"""

from __future__ import annotations

import itertools
import os
import re
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from hatchway.engine.base import files
from hatchway.engine.runtime.records import Record

CURRENT = "events.jsonl"
PIECE = 65_536
"""Bytes read at once."""

SCHEMA = 3
"""Version of a line's form. Lines of version 1 have no hash and do not say what was decided on; those of version 2 tell
elapsed time as the host's clock has it, and this one by the delay that it decides on."""

HASH_BYTES, HASH_CHARS = 15, 20
"""120 bits of SHA-256, in base64: to find another line with a given hash takes 2^120 tries."""

TAIL = len('"hash":""},') + HASH_CHARS
"""Bytes of a line, without its end, that stand after what is hashed: comma, hash, closing brace."""


class SealedRecord(Record, frozen=True, gc=False):
    """As it stands in the journal it also has `hash`: 120 bits of SHA-256, in base64, over the hash of the line before
    it and its own text up to the comma before `hash`. The first record that an engine writes into a file tells the
    `schema` of the lines and, as `prev`, the hash of the line before it; `lost` says how many records before it could
    not be written."""

    schema: int | UnsetType = UNSET
    prev: str | UnsetType = UNSET
    lost: int | UnsetType = UNSET
    hash: str | UnsetType = UNSET


class Sifted(msgspec.Struct, frozen=True, gc=False):
    """What stands in an old file for records that made room: their numbers, and the hash of the last of them."""

    sifted: tuple[int, int]
    hash: str


def chain(prev: str, text: bytes) -> str:
    """The hash of a line: `text` is its JSON without the closing brace, and without the hash."""
    return b2a_base64(sha256(prev.encode() + text).digest()[:HASH_BYTES], newline=False).decode()


def hash_of(data: bytes) -> str:
    """The hash that a line tells; empty where it tells none."""
    found = _HASH.search(data)
    return found[1].decode() if found else ""


_HASH = re.compile(rb',"hash":"([A-Za-z0-9+/]{20})"\}$')
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
    try:
        with os.scandir(folder) as entries:
            full = sorted(entry.name for entry in entries if _is_full(entry))
    except FileNotFoundError:
        return []
    return [*map(folder.joinpath, full), *([current] if current.exists() else [])]


def _is_full(entry: os.DirEntry[str]) -> bool:
    named = _FULL.fullmatch(entry.name)
    return named is not None and segment_name(int(named[1])) == entry.name and entry.is_file(follow_symlinks=False)


def named_by(path: Path) -> int | None:
    """The number that a full file is named by, which is its first record's; None for any other file."""
    found = _FULL.fullmatch(path.name)
    return int(found[1]) if found else None


def parse(data: bytes) -> RecordLine | None:
    """The record of a line, None for a torn or foreign one."""
    found = _SEQ.search(data) if data.startswith(b"{") and _is_whole(data) else None
    return RecordLine(int(found[1]), data) if found else None


def _is_whole(data: bytes) -> bool:
    """Whether a line was not cut. All but those of early versions end with a hash; a cut one may end with a brace."""
    if data[-31:-22] == b',"hash":"' and data.endswith(b'"}'):  # each line of a search comes by here
        return True
    with suppress(msgspec.DecodeError, RecursionError):
        return data.endswith(b"}") and isinstance(msgspec.json.decode(data), dict)
    return False


def last_line(folder: Path) -> RecordLine:
    """The last whole record, number 0 where there is none."""
    for path in reversed(segments(folder)):
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - PIECE))
            found = [line for line in map(parse, file.read().split(b"\n")) if line]
        if found:
            return found[-1]
    return RecordLine(0, b"")


def last_seq(folder: Path) -> int:
    """The number of the last whole record, 0 where there is none."""
    return last_line(folder).seq


def first_seq(folder: Path, skip: int = 0) -> int:
    """The number of the first record that the files hold but the first `skip` of them, 0 where there is none."""
    return next(filter(None, map(first_of, segments(folder)[skip:])), 0)


def first_of(path: Path) -> int:
    """The number of a file's first record, sifted ones counted; 0 where there is none."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        for data in file:
            gone, line = sifted(data), parse(data.rstrip(b"\n"))
            if gone or line:
                return gone.sifted[0] if gone else line.seq if line else 0
    return 0


def is_torn(path: Path) -> bool:
    """Whether the file ends inside a line: its writer was killed, or the disk was full."""
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


_TIME = re.compile(rb'\{"time":([0-9.eE+-]+),')


def time_of(data: bytes) -> float:
    """When a record's line was written, in epoch seconds; 0.0 for one that does not tell."""
    found = _TIME.match(data)
    return float(found[1]) if found else 0.0


_EXPENDABLE = re.compile(rb'"kind":"refusal"|"kind":"transition","chart":"session","actor":"[^"]*","event":"renew"')
"""What anybody, and anybody with a session, can cause without end. No quote stands bare inside a value."""


SEAL = b'{"seal":"'
"""What the first line of a sifted file begins with: a signature over all that follows."""

Seal = Callable[[bytes], bytes]
"""Signs what is left of a sifted file."""


def sift(path: Path, seal: Seal | None = None) -> int:
    """Rewrite a full file without its refusals and renewals, its age as it was; how many bytes that gained.

    What went leaves its numbers and its last hash behind, and the whole is signed anew. Raises OSError and FileRefused,
    and leaves the file as it was.
    """
    status = path.stat()
    with path.open("rb") as file:
        kept = b"".join(_sifted(file))
    gained = status.st_size - len(kept)
    if gained > 0:
        _write_sifted(path, kept, status, seal)
    return max(gained, 0)


def fold(before: Path, path: Path, seal: Seal | None = None) -> None:
    """What is left of a file without a record goes to the end of the one before it. Raises OSError and FileRefused.

    Killed in between, it stands in both, which harms nobody.
    """
    status = before.stat()
    with before.open("rb") as first, path.open("rb") as second:
        kept = b"".join(_sifted(itertools.chain(first, second)))
    _write_sifted(before, kept, status, seal)
    path.unlink()


def is_empty(path: Path) -> bool:
    """Whether no record is left in a sifted file."""
    if path.stat().st_size > 4096:
        return False
    return not any(parse(line) for line in path.read_bytes().split(b"\n"))


def _write_sifted(path: Path, kept: bytes, status: os.stat_result, seal: Seal | None) -> None:
    files.write_private(path, (SEAL + seal(kept) + b'"}\n' if seal else b"") + kept)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _sifted(lines: Iterable[bytes]) -> Iterator[bytes]:
    gone: Sifted | None = None
    for line in lines:
        if line.startswith(SEAL):
            continue
        found = sifted(line) or _expended(line)
        if found is not None:
            gone = Sifted((gone.sifted[0] if gone else found.sifted[0], found.sifted[1]), found.hash)
            continue
        if gone is not None:
            yield msgspec.json.encode(gone) + b"\n"
            gone = None
        yield line
    if gone is not None:
        yield msgspec.json.encode(gone) + b"\n"


def _expended(line: bytes) -> Sifted | None:
    found = _SEQ.search(line) if _EXPENDABLE.search(line) else None
    return Sifted((int(found[1]), int(found[1])), hash_of(line.rstrip(b"\n"))) if found else None


def sifted(line: bytes) -> Sifted | None:
    """What a line says that stands for sifted records; None for any other."""
    if not line.startswith(b'{"sifted":'):
        return None
    try:
        return msgspec.json.decode(line, type=Sifted)
    except msgspec.DecodeError:
        return None


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
    while len(paths) > 1 and (named := named_by(paths[1])) is not None and named <= seq + 1:
        paths = paths[1:]
    return paths


def _offset_after(path: Path, seq: int) -> int:
    """Where in the file the first record after `seq` may begin."""
    return offset_where(path, lambda line: line.seq > seq)


def offset_where(path: Path, is_past: Callable[[RecordLine], bool]) -> int:
    """Where in the file the first record that `is_past` holds for may begin: looked for by halves, so that it must hold
    for every one that follows, too."""
    with path.open("rb") as file:
        low, high = 0, path.stat().st_size
        while high - low > PIECE:
            middle = (low + high) // 2
            file.seek(middle)
            file.readline()
            line = parse(file.readline().rstrip(b"\n"))
            if line is None or is_past(line):
                high = middle
            else:
                low = middle
        file.seek(low)
        if low:
            file.readline()
        return file.tell()
