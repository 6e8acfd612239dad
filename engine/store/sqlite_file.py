"""The database's file: opened, brought to this version of the schema, and known again where it was taken away."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from engine.errors import EngineUnavailable
from engine.store.protocol import new_identity

SCHEMA_VERSION = 2
"""Older files are migrated in one transaction; newer ones are refused in words."""

MIGRATIONS = {
    0: """
    CREATE TABLE actors (
        chart TEXT NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL, state TEXT NOT NULL,
        deadline REAL, facts BLOB NOT NULL, PRIMARY KEY (chart, id)) WITHOUT ROWID;
    CREATE TABLE engine (identity TEXT NOT NULL);
    CREATE TABLE used (key BLOB NOT NULL PRIMARY KEY, expires_at REAL NOT NULL) WITHOUT ROWID;
    CREATE INDEX used_by_expiry ON used (expires_at);
    """,
    # A sweep takes half of the rows: it reads them all in less time than an index of theirs takes to be kept.
    1: "DROP INDEX used_by_expiry",
}


def which(path: Path) -> tuple[int, int] | None:
    """Which file stands there."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def files_of(path: Path) -> tuple[Path, Path]:
    return path, path.with_name(path.name + "-wal")


def open_database(path: Path) -> sqlite3.Connection:
    """The file, migrated to this version. Raises EngineUnavailable in words where it can't be used."""
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        _migrate(connection, path)
    except sqlite3.DatabaseError as error:
        raise EngineUnavailable(
            f"{path} can't be read as Hatchway's store ({error}): restore it from a backup, or move it away to start"
            " with no sessions"
        ) from error
    return connection


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
