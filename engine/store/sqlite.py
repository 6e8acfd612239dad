"""The default store: one SQLite file, WAL and FULL, written by one thread in group commits."""

from __future__ import annotations

import contextlib
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import trio

from engine.clock import Clock
from engine.errors import EngineUnavailable, StoreUnavailable
from engine.store.protocol import AlreadyUsed, Change, Once, Stored, VersionMoved, new_identity, uncancellable

SCHEMA_VERSION = 1
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
}
GROUP = 256
"""Changes that share one transaction, more or less; one that can't be made leaves no trace in it."""


class _Job:
    """One change on its way through the writer, and the task that waits for it."""

    __slots__ = ("change", "done", "error", "token")

    def __init__(self, change: Change, token: trio.lowlevel.TrioToken) -> None:
        self.change, self.token = change, token
        self.done = trio.Event()
        self.error: BaseException | None = None


class SQLiteStore:
    """One engine's store. `inline` writes in the caller's thread, for tests in virtual time (trio#456)."""

    shared = False

    def __init__(self, path: Path, clock: Clock, *, inline: bool = False) -> None:
        self._clock = clock
        self._path = path
        self._types: dict[str, type[msgspec.Struct]] = {}
        self._encode = msgspec.msgpack.Encoder().encode
        self._connection = _open(path)
        # Nonces die with the engine that made them, and its elapsed seconds with the host's boot.
        self._connection.execute("DELETE FROM used")
        self._identity: str = self._connection.execute("SELECT identity FROM engine").fetchone()[0]
        self._next_sweep = -float("inf")
        self._gathered: list[_Job] = []
        self._jobs: queue.SimpleQueue[list[_Job] | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        if not inline:
            self._writer = threading.Thread(target=self._write_loop, name="sqlite-writer", daemon=True)
            self._writer.start()

    def define(self, facts: Mapping[str, type[msgspec.Struct]]) -> None:
        self._types.update(facts)

    def close(self) -> None:
        """Write what is queued, then close the file."""
        if self._writer is not None:
            self._jobs.put(None)
            self._writer.join()
        self._connection.close()

    async def load(self, chart: str, actor: str) -> Stored | None:
        for name, stored in await self._read("AND id = ?", chart, actor):
            if name == actor:
                return stored
        return None

    async def load_many(self, chart: str, actors: Sequence[str]) -> list[Stored | None]:
        return [await self.load(chart, actor) for actor in actors]

    async def live(self, chart: str) -> list[tuple[str, Stored]]:
        return await self._read("", chart)

    async def _read(self, where: str, chart: str, *values: str) -> list[tuple[str, Stored]]:
        # Read on a connection of its own: the writer's may stand inside a transaction.
        decode = msgspec.msgpack.Decoder(self._types[chart]).decode
        query = f"SELECT id, version, state, deadline, facts FROM actors WHERE chart = ? {where}"  # noqa: S608
        with contextlib.closing(_open(self._path)) as connection:
            rows = connection.execute(query, (chart, *values)).fetchall()
        return [
            (name, Stored(version, state, deadline, decode(facts))) for name, version, state, deadline, facts in rows
        ]

    @uncancellable
    async def commit(self, change: Change) -> None:
        if self._writer is None:
            error = self._write([change])[0]
        else:
            job = _Job(change, trio.lowlevel.current_trio_token())
            self._gathered.append(job)
            # The change is on its way whatever happens to the caller: only its outcome may be told.
            with trio.CancelScope(shield=True):
                if len(self._gathered) == 1:
                    # Whoever commits in this turn of the event loop shares the waking of the writer.
                    await trio.lowlevel.checkpoint()
                    self._jobs.put(self._gathered)
                    self._gathered = []
                await job.done.wait()
            error = job.error
        if error is not None:
            raise error

    def _write_loop(self) -> None:
        while (jobs := self._jobs.get()) is not None:
            while len(jobs) < GROUP and not self._jobs.empty():
                following = self._jobs.get()
                if following is None:
                    self._jobs.put(None)
                    break
                jobs += following
            errors = self._write([job.change for job in jobs])
            for job, error in zip(jobs, errors, strict=True):
                job.error = error
            self._wake(jobs)

    @staticmethod
    def _wake(jobs: list[_Job]) -> None:
        def wake() -> None:
            for job in jobs:
                job.done.set()

        # A run that ended meanwhile has nobody left to tell.
        with contextlib.suppress(trio.RunFinishedError):
            jobs[0].token.run_sync_soon(wake)

    def _write(self, changes: list[Change]) -> list[BaseException | None]:
        """One transaction for all; a change that can't be made is undone alone, a failed commit fails all."""
        execute = self._connection.execute
        try:
            execute("BEGIN IMMEDIATE")
            errors = [self._attempt(execute, change) for change in changes]
            self._sweep(execute)
            execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                execute("ROLLBACK")
            return [StoreUnavailable(f"the store can't be written ({error}); try again", retry_after=5)] * len(changes)
        return errors

    def _attempt(self, execute: Callable[..., sqlite3.Cursor], change: Change) -> BaseException | None:
        """One change, whole or not at all. (A savepoint would say so in two statements more.)"""
        if change.once is not None and not self._use(execute, change.once):
            return AlreadyUsed("used before")
        if self._apply(execute, change):
            return None
        if change.once is not None:
            execute("DELETE FROM used WHERE key = ?", (change.once.key,))
        return VersionMoved()

    def _use(self, execute: Callable[..., sqlite3.Cursor], once: Once) -> bool:
        now = self._clock.elapsed()
        taken = execute(
            "INSERT INTO used VALUES (?, ?)"
            " ON CONFLICT (key) DO UPDATE SET expires_at = excluded.expires_at WHERE used.expires_at <= ?",
            (once.key, now + once.seconds, now),
        )
        return bool(taken.rowcount)

    def _apply(self, execute: Callable[..., sqlite3.Cursor], change: Change) -> bool:
        key, stored = (change.chart, change.actor), change.stored
        if stored is None:
            done = execute("DELETE FROM actors WHERE chart = ? AND id = ? AND version = ?", (*key, change.expected))
        elif change.expected == 0:
            row = (stored.version, stored.state, stored.deadline, self._encode(stored.facts))
            done = execute("INSERT OR IGNORE INTO actors VALUES (?, ?, ?, ?, ?, ?)", (*key, *row))
        else:
            row = (stored.version, stored.state, stored.deadline, self._encode(stored.facts))
            done = execute(
                "UPDATE actors SET version = ?, state = ?, deadline = ?, facts = ?"
                " WHERE chart = ? AND id = ? AND version = ?",
                (*row, *key, change.expected),
            )
        return bool(done.rowcount)

    def _sweep(self, execute: Callable[..., sqlite3.Cursor]) -> None:
        now = self._clock.elapsed()
        if now >= self._next_sweep:
            execute("DELETE FROM used WHERE expires_at <= ?", (now,))
            self._next_sweep = now + 60

    async def identity(self) -> str:
        return self._identity

    def size(self) -> int:
        return sum(os.stat(file).st_size for file in _files(self._path) if file.exists())


def _files(path: Path) -> tuple[Path, Path]:
    return path, path.with_name(path.name + "-wal")


def _open(path: Path) -> sqlite3.Connection:
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
