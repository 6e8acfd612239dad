"""The default store: one SQLite file, WAL and FULL, written by one thread in group commits."""

from __future__ import annotations

import contextlib
import os
import queue
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import structlog
import trio

from hatchway.engine.base.clock import Clock, SystemClock
from hatchway.engine.base.errors import EngineUnavailable, StoreUnavailable
from hatchway.engine.base.ticks import loop_ticks
from hatchway.engine.store.facts import share_texts
from hatchway.engine.store.pending_changes import Batch, PendingChange
from hatchway.engine.store.protocol import AlreadyUsed, Change, Once, Stored, VersionMoved
from hatchway.engine.store.sqlite_file import connect, damaged, files_of, in_words, lying_at, open_database

log = structlog.get_logger(__name__)

GROUP = 256
"""Changes of one transaction at most, or a few more. A change that can't be made leaves no trace in its transaction."""

PROBED, QUIET = 1.0, 10.0
"""Seconds after which a probe is written to a store that failed, and to one in which nobody has written."""

PROBE_BYTES = 8192
"""Bytes of a probe: as many new pages as a change takes, so that a disk too full for a change is too full for it."""

WRITE_WITHIN = 10.0
"""Seconds after which a write that has not ended counts as failed."""

PATIENCE, PAUSE = 5.0, 0.05
"""Seconds that a commit waits at most for another program that writes the file, and between two tries."""


class SQLiteStore:
    """One engine's store. `inline` writes in the caller's thread, for tests in virtual time (trio#456).

    The connection is the event loop's until it hands a batch to the writer's thread, then that thread's until the loop
    is told that the batch is written.
    """

    shared = False
    shields_commit = True

    def __init__(self, path: Path, clock: Clock, *, inline: bool = False) -> None:
        self._clock = clock
        self._path = path
        self._types: dict[str, type[msgspec.Struct]] = {}
        self._encode = msgspec.msgpack.Encoder().encode
        self._connection = open_database(path)
        self._failed: str | None = None
        self._next_probe = -float("inf")
        self._identity = self._take_up()
        self._opened = lying_at(self._path)
        self._next_sweep = -float("inf")
        self._gathered: list[PendingChange] = []
        self._writing, self._handed_over = False, 0.0
        self._batches: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        if not inline:
            self._writer = threading.Thread(target=self._write_loop, name="sqlite-writer", daemon=True)
            self._writer.start()

    def _take_up(self) -> str:
        """Prepare the file for this run; returns the engine's identity. Raises EngineUnavailable where the file can't
        be written."""
        try:
            with in_words(self._path):
                # Used nonces need not be kept: an engine accepts none that was made before its start.
                self._connection.execute("DELETE FROM used")
                self._connection.execute("PRAGMA busy_timeout = 0")
                named: tuple[str] | None = self._connection.execute("SELECT identity FROM engine").fetchone()
                if named is None:
                    raise sqlite3.DatabaseError("it has no name")
        except EngineUnavailable:
            self._connection.close()
            raise
        return named[0]

    def define(self, facts: Mapping[str, type[msgspec.Struct]]) -> None:
        self._types.update(facts)

    def close(self) -> None:
        """Write what is queued, then close the file."""
        if self._writer is not None:
            self._batches.put(None)
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
        # A connection of its own reads them: the writer's thread may be inside a transaction.
        decode = msgspec.msgpack.Decoder(self._types[chart]).decode
        query = f"SELECT id, version, state, deadline, facts FROM actors WHERE chart = ? {where}"  # noqa: S608
        with in_words(self._path), contextlib.closing(connect(self._path)) as connection:
            rows = connection.execute(query, (chart, *values)).fetchall()
        try:
            return [
                (name, Stored(version, sys.intern(state), deadline, share_texts(decode(facts))))
                for name, version, state, deadline, facts in rows
            ]
        except msgspec.DecodeError as error:
            raise EngineUnavailable(damaged(self._path, error)) from error

    async def commit(self, change: Change) -> None:
        if self._writer is None:
            error = self._write([change])[0]
        else:
            job = PendingChange(change)
            self._gathered.append(job)
            if not self._writing and len(self._gathered) == 1:
                # All that is committed in this tick of the event loop shares one transaction.
                loop_ticks().at_end(self._flush)
            await job.wait()
            error = job.error
        if error is not None:
            raise error

    def _flush(self) -> None:
        """Make the changes that have gathered, and have the writer's thread commit them, which waits for the disk.

        The statements run here, since a thread would pass the interpreter's lock to and fro at each of them. One batch
        is with the thread at a time.
        """
        if self._writing or not self._gathered:
            return
        jobs, self._gathered = self._gathered[:GROUP], self._gathered[GROUP:]
        self._writing, self._handed_over = True, self._clock.elapsed()
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error:
            errors = None  # another program is writing the file: the thread can wait for its end
        else:
            errors = self._make([job.change for job in jobs])
        self._batches.put(Batch(jobs, errors, trio.lowlevel.current_trio_token()))

    def _write_loop(self) -> None:
        while (batch := self._batches.get()) is not None:
            changes = [job.change for job in batch.jobs]
            errors = self._write(changes) if batch.errors is None else self._end(batch.errors)
            # Where the trio run has ended meanwhile, no task waits any more.
            with contextlib.suppress(trio.RunFinishedError):
                batch.token.run_sync_soon(self._written, batch.jobs, errors)

    def _written(self, jobs: list[PendingChange], errors: list[BaseException | None]) -> None:
        for job, error in zip(jobs, errors, strict=True):
            job.end(error)
        self._writing = False
        self._flush()

    def _write(self, changes: list[Change | None]) -> list[BaseException | None]:
        """One transaction for all these changes; returns the error of each. A change that can't be made is undone
        alone, a failed commit fails all."""
        until = SystemClock().elapsed() + PATIENCE
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                break
            except sqlite3.Error as error:
                if SystemClock().elapsed() > until:
                    return self._fail(error, len(changes))
            time.sleep(PAUSE)
        return self._end(self._make(changes))

    def _make(self, changes: list[Change | None]) -> list[BaseException | None]:
        """Make the changes in the transaction that was begun; returns the error of each. Where the store fails, the
        transaction is rolled back."""
        try:
            return [self._attempt(self._connection.execute, change) for change in changes]
        except Exception as error:  # whatever it is, the tasks that wait must be woken with it
            return self._fail(error, len(changes))

    def _end(self, errors: list[BaseException | None]) -> list[BaseException | None]:
        """Commit the transaction of `_make`; returns the error of each change, the same for all where the commit
        fails."""
        if self._connection.in_transaction:
            try:
                if lying_at(self._path) != self._opened:
                    raise sqlite3.OperationalError(GONE)
                self._sweep(self._connection.execute)
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                return self._fail(error, len(errors))
            if self._failed is not None:
                log.info("store_written_again")
            self._failed, self._next_probe = None, self._clock.elapsed() + QUIET
        return errors

    def _fail(self, error: Exception, count: int) -> list[BaseException | None]:
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("ROLLBACK")
        if self._failed is None:  # a disk may be full for hours
            log.error("store_not_written", why=str(error))
        self._failed = str(error)
        return [_unavailable(self._failed)] * count

    def _attempt(self, execute: Callable[..., sqlite3.Cursor], change: Change | None) -> BaseException | None:
        """Make one change, or none of it; returns its error. A `change` of None is a probe.

        Each statement is undone by hand where a later one fails: a savepoint would cost two more statements.
        """
        if change is None:
            self._use(execute, Once(os.urandom(PROBE_BYTES), QUIET))
            return None
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

    def check(self) -> None:
        if lying_at(self._path) != self._opened:
            raise _unavailable(GONE)
        now = self._clock.elapsed()
        if self._writing and now - self._handed_over > WRITE_WITHIN:
            raise _unavailable("a write does not come to its end")
        if not self._writing and now >= self._next_probe:
            self._next_probe = now + PROBED
            self._probe()
        if self._failed is not None:
            raise _unavailable(self._failed)

    def _probe(self) -> None:
        """Write random bytes, since SQLite writes no page that did not change. The next sweep removes them.

        A store that has failed is probed here, and the caller waits: nothing else is written while `/readyz` says that
        the engine is not ready. Else the probe goes to the thread as changes do, and the next `check` sees its outcome.
        """
        if self._failed is None and self._writer is not None:
            self._gathered.append(PendingChange(None))
            self._flush()
            return
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            self._fail(error, 0)
        else:
            self._end(self._make([None]))

    def size(self) -> int:
        return sum(os.stat(file).st_size for file in files_of(self._path) if file.exists())


GONE = "its file was moved or removed under the engine: put it back, or restart the engine"


def _unavailable(why: str) -> StoreUnavailable:
    return StoreUnavailable(f"the store can't be written ({why}); try again", retry_after=5)
