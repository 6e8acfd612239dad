"""The file of authorized keys: looked up at every use, edited by hand or by us, never half written (section 2.4)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from engine import files
from engine.clock import SystemClock, Turns
from engine.errors import FileRefused, KeyRefused
from engine.trust.key_files import printable
from engine.trust.key_lines import Entry, Line, parse_file, render
from engine.trust.keys import PublicKey
from engine.trust.permissions import FIVE, MASTER, fold

__all__ = ["AuthorizedKeys", "Entry", "Fault", "Registered"]

_TICK = 0.05
"""Seconds: two changes closer than that may carry one time stamp."""

_PAUSE, _PAUSES = 0.005, 10
"""Seconds, and how many times them an editor gets between emptying the file and writing it."""


class Fault(NamedTuple):
    """A line that grants nothing, and why. `line` counts from 1."""

    line: int
    reason: str


class Registered(NamedTuple):
    """What `register` did; `before` is what the key held until then."""

    entry: Entry
    outcome: Literal["added", "replaced", "unchanged"]
    before: tuple[str, ...] | None = None


class AuthorizedKeys:
    """One authorized_keys file. A look costs one `lstat`, 3 us; the file is read again only when it changed.

    With `turns`, the first look in a turn of the event loop serves all of that turn: what is asked in it was sent
    before it began, so a change still shows to whoever asks after it.

    Where it isn't a private file of our own, every look and every edit raises `FileRefused`. A file that isn't there
    is one without keys.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._name = os.fspath(path)
        self._stamp: tuple[int, ...] | None = None
        self._inode = 0
        self._data = b""
        self._entries: dict[str, Entry] = {}
        self._faults: tuple[Fault, ...] = ()
        self._version = 0
        self.turns: Turns | None = None
        self._looked = -1

    def find(self, identity: str) -> Entry | None:
        """The line that counts for a key, or None where nothing is granted to it."""
        self._refresh()
        return self._entries.get(identity)

    def entries(self) -> tuple[Entry, ...]:
        """The lines that grant something, in the file's order, one for each key."""
        self._refresh()
        return tuple(self._entries.values())

    def faults(self) -> tuple[Fault, ...]:
        """The lines that grant nothing and are no comment."""
        self._refresh()
        return self._faults

    def look_anew(self) -> None:
        """What is asked now may have been sent after the turn of the event loop began: the next look is a look."""
        self._looked = -1

    def version(self) -> int:
        """A number that changes with the file's content; -1 while the file is refused. Raises nothing."""
        try:
            self._refresh()
        except FileRefused:
            return -1
        return self._version

    def register(
        self, key: PublicKey, permissions: tuple[str, ...] = FIVE, comment: str = "", *, own: bool = False
    ) -> Registered:
        """Authorize `key`, or replace what it holds. `own` is the engine's own key, which alone takes MASTER.

        Raises KeyRefused where the key's line has foreign options, or MASTER.
        """
        permissions = fold(permissions)
        if not permissions:
            raise KeyRefused("a key without any permission is not registered", cause="empty")
        if MASTER in permissions and not own:
            raise KeyRefused("MASTER belongs to the engine's own key and is not given to another", cause="master")
        with files.locked(self._lock()):
            lines = self._read()
            old = next((line for line in lines if line.key and line.key.identity == key.identity), None)
            _refuse_replacing(old, own)
            before = old.entry if old else None
            kept = comment or key.comment or (old.key.comment if old and old.key else "")
            entry = Entry(key, permissions, printable(kept), old.number if old else len(lines) + 1)
            if before and (before.permissions, before.comment) == (permissions, entry.comment):
                return Registered(before, "unchanged", permissions)
            self._write(_with(lines, old, render(key, permissions, entry.comment)))
        return Registered(entry, "replaced" if old else "added", before.permissions if before else None)

    def unregister(self, selector: str, *, force: bool = False, own: str | None = None) -> tuple[str, Entry | None]:
        """Take out every line of one key: its identity, a unique prefix of it, or a unique comment.

        Returns its identity and what it held, None if its lines granted nothing. Raises KeyRefused: no such key, more
        than one, or, without `force`, one that holds MASTER or is `own`, the engine's own identity.
        """
        with files.locked(self._lock()):
            lines = self._read()
            identity = _selected(lines, selector)
            # A later line of the same key must not come to count.
            gone = [line for line in lines if line.key and line.key.identity == identity]
            entry = next((line.entry for line in gone if line.entry), None)
            if not force and (identity == own or (entry and MASTER in entry.permissions)):
                raise KeyRefused("this is the engine's own key; to remove it all the same, add --force", cause="own")
            self._write(b"".join(line.raw for line in lines if line not in gone))
        return identity, entry

    def _lock(self) -> Path:
        files.make_private_dir(self.path.parent)
        return self.path.with_name(f"{self.path.name}.lock")

    def _read(self) -> tuple[Line, ...]:
        files.clear_leftovers(self.path)
        return parse_file(self._content())

    def _write(self, data: bytes) -> None:
        files.write_private(self.path, data)
        self._stamp, self._looked = None, -1

    def _refresh(self) -> None:
        turn = -1 if self.turns is None else self.turns.number
        if turn >= 0 and turn == self._looked:
            return
        try:
            status = os.lstat(self._name)
        except FileNotFoundError:
            status = None
        if _stamp(status) != self._stamp:
            self._reload(status)
        self._looked = turn

    def _reload(self, status: os.stat_result | None) -> None:
        data = self._content()
        in_place = status is None or status.st_ino == self._inode
        if data != self._data and (in_place or not data):
            data = self._settled(data)
        if data != self._data or not self._version:
            self._load(data)
        # The stamp is from before the reading: a change in between shows at the next look. So must one within a tick.
        fresh = status is not None and abs(SystemClock().wall() - status.st_ctime) < _TICK
        self._stamp, self._inode = None if fresh else _stamp(status), status.st_ino if status else 0

    def _settled(self, data: bytes) -> bytes:
        """What an editor leaves in the end.

        Some empty or move the file before they write it: a look just then would end everybody's session.
        """
        for _ in range(_PAUSES):
            time.sleep(_PAUSE)
            before, data = data, self._content()
            if data and data == before:
                break
        return data

    def _content(self) -> bytes:
        try:
            return files.read_private(self.path)
        except FileNotFoundError:
            return b""

    def _load(self, data: bytes) -> None:
        lines = parse_file(data)
        self._entries = {line.entry.identity: line.entry for line in lines if line.entry}
        self._faults = tuple(Fault(line.number, line.fault) for line in lines if line.fault)
        self._data = data
        self._version += 1


def _stamp(status: os.stat_result | None) -> tuple[int, ...]:
    if status is None:
        return ()
    return (
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_size,
        status.st_ino,
        status.st_mode,
        status.st_uid,
    )


def _refuse_replacing(old: Line | None, own: bool) -> None:
    if old is None:
        return
    if old.options:
        raise KeyRefused(
            f"line {old.number} of authorized_keys has this key with the option {', '.join(old.options)}:"
            " unregister it first, or edit the line",
            cause="options",
        )
    if old.entry and MASTER in old.entry.permissions and not own:
        raise KeyRefused("this is the engine's own key, which holds MASTER already", cause="own")


def _with(lines: Iterable[Line], old: Line | None, new: bytes) -> bytes:
    """The file with `new` in the place of `old`, or as its last line; every other line byte for byte as it was."""
    if old is None:
        data = b"".join(line.raw for line in lines)
        return data + (b"\n" if data and not data.endswith(b"\n") else b"") + new + b"\n"
    end = b"\r\n" if old.raw.endswith(b"\r\n") else b"\n"
    return b"".join(new + end if line is old else line.raw for line in lines)


def _selected(lines: Iterable[Line], selector: str) -> str:
    """The one identity that `selector` means. Raises KeyRefused."""
    known: dict[str, str] = {}
    for line in lines:
        if line.key:
            known.setdefault(line.key.identity, line.key.comment)
    if selector in known:
        return selector
    prefix = len(selector) > len("SHA256:")
    found = [
        identity
        for identity, comment in known.items()
        if (prefix and identity.startswith(selector)) or comment == selector
    ]
    if not selector or not found:
        raise KeyRefused(f"no authorized key has the identity or comment {printable(selector)!r}", cause="unknown_key")
    if len(found) > 1:
        raise KeyRefused(
            f"{len(found)} authorized keys go by {printable(selector)!r}: give more of the identity", cause="ambiguous"
        )
    return found[0]
