"""SQLite's file: opening it, migrating its schema, noticing that another file is in its place, and advice on errors."""

from __future__ import annotations

import os
import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hatchway.engine.base import file_locks, files
from hatchway.engine.base.errors import EngineUnavailable, FileRefused
from hatchway.engine.store.protocol import new_identity

SCHEMA_VERSION = 3
"""Older files are migrated in one transaction; newer ones are refused in words. It grows too where the tables stay as
they are and what is stored in them, or in the journal beside them, means more than an older version knows."""

MIGRATIONS = {
    0: """
    CREATE TABLE actors (
        chart TEXT NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL, state TEXT NOT NULL,
        deadline REAL, facts BLOB NOT NULL, PRIMARY KEY (chart, id)) WITHOUT ROWID;
    CREATE TABLE engine (identity TEXT NOT NULL);
    CREATE TABLE used (key BLOB NOT NULL PRIMARY KEY, expires_at REAL NOT NULL) WITHOUT ROWID;
    CREATE INDEX used_by_expiry ON used (expires_at);
    """,
    # A sweep deletes about half of the rows: reading all of them costs less than keeping an index on their expiry.
    1: "DROP INDEX used_by_expiry",
    # 0.1.0 would forget what a key allows its sessions, and write lines without a hash into a journal of hashed ones.
    2: "",
}


def files_of(path: Path) -> tuple[Path, Path]:
    """The database's file, and its WAL, in which commits are before they are in the file."""
    return path, path.with_name(path.name + "-wal")


def lying_at(path: Path) -> list[tuple[int, int] | None]:
    """Device and inode of the files of the database at `path`, None for one that is missing: they tell whether it is
    another one by now. What is written into a file that was removed is lost."""
    return [_device_and_inode(file) for file in files_of(path)]


def _device_and_inode(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def open_database(path: Path) -> sqlite3.Connection:
    """The file, migrated to this version. Raises EngineUnavailable in words where it can't be used.

    It is opened once a process: `connect` makes further connections.
    """
    _refuse_foreign_wal(path)
    with in_words(path):
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            _migrate(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def connect(path: Path) -> sqlite3.Connection:
    """A further connection to a file that this process has open."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=5)


_WAL_MODE = slice(18, 20)
"""The bytes of the file's header that say whether it has a WAL (SQLite's file format, 1.3.3)."""


def _refuse_foreign_wal(path: Path) -> None:
    """Raises EngineUnavailable where a WAL lies beside a file that has none, as a backup: it belongs to the file that
    was here before, and SQLite would write what that one had into this one.

    Where this process has the file open in SQLite already, it must not be opened as here: to close it drops the locks
    of all the process, and another program then takes itself for the last user of the WAL and removes it ("How To
    Corrupt An SQLite Database File", 2.2).
    """
    _, wal = files_of(path)
    try:
        with path.open("rb") as file:
            foreign = file.read(20)[_WAL_MODE] == b"\1\1" and wal.stat().st_size > 0
    except OSError:
        return
    if foreign:
        raise EngineUnavailable(
            f"{path} was put back beside the {wal.name} of the database before it: nothing was read or changed; remove"
            f" that, which the backup can't use, with: rm {shlex.quote(str(wal))}"
        )


@contextmanager
def in_words(path: Path) -> Iterator[None]:
    """Raises what SQLite raises in the block as EngineUnavailable, which says what to do about it."""
    try:
        yield
    except sqlite3.Error as error:
        raise EngineUnavailable(_advice(path, error)) from error


def _advice(path: Path, error: sqlite3.Error) -> str:
    """What to do about an error. Only damage is called damage: the advice for it is to move the file away, and that
    loses every session."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code not in PASSING:
        return damaged(path, error)
    try:
        for file in (*files_of(path), path.with_name(f"{path.name}-shm")):
            if file.exists():
                files.check_private(file)
        file_locks.try_folder(path.parent, ROOM)
    except FileRefused as refused:
        return refused.detail
    except OSError as refused:
        reason = refused.strerror or str(refused)
        return (
            f"{path} can't be written ({reason}): make room, or mend what else that is, and try again; nothing was lost"
        )
    what, cure = PASSING[code]
    return f"{path} {what} ({error}): {cure.format(path=path)}, and try again; nothing was lost"


_WRITABLE = "make it and the files beside it writable (its mode, `chattr -i`, its mount)"
_HELD = "is held by another program", "end that one, which `fuser {path}` names"
_FAILING = "can't be used", "see what the kernel's log says of its file system"

PASSING = {
    sqlite3.SQLITE_BUSY: _HELD,
    sqlite3.SQLITE_LOCKED: _HELD,
    sqlite3.SQLITE_PROTOCOL: _HELD,
    sqlite3.SQLITE_FULL: ("can't be written", "make room on its file system"),
    sqlite3.SQLITE_READONLY: ("can't be written", _WRITABLE),
    sqlite3.SQLITE_CANTOPEN: ("can't be written", _WRITABLE),
    sqlite3.SQLITE_PERM: ("can't be written", _WRITABLE),
    sqlite3.SQLITE_IOERR: _FAILING,
    sqlite3.SQLITE_NOMEM: ("can't be used", "leave more memory to the engine"),
}
"""SQLite's errors that come from where the file lies and who may use it, not from its content; what to do about
each."""

ROOM = 65_536
"""Bytes that must be free at a start. The files that SQLite puts beside the database take half of them."""


def damaged(path: Path, error: Exception) -> str:
    """What to do about a file that is damaged, or none of Hatchway's."""
    return (
        f"{path} can't be read as Hatchway's store ({error}): restore it from a backup, or move it away to start"
        " with no sessions"
    )


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise EngineUnavailable(
            f"{path} was written by a newer Hatchway (schema {version}, this one knows {SCHEMA_VERSION}): upgrade"
        )
    if version == SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    for older in range(version, SCHEMA_VERSION):
        for statement in MIGRATIONS[older].split(";"):
            connection.execute(statement)
    if version == 0:
        connection.execute("INSERT INTO engine VALUES (?)", (new_identity(),))
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")
