"""The journal: every record in `log/events.jsonl`, for 7 days or 64 MiB, and in memory for those who follow it.

Where 64 MiB are too few, what anybody can cause makes room for the rest: refusals and renewals are taken out of the
oldest files, and only where that is not enough the oldest files go.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from operator import attrgetter
from pathlib import Path

import msgspec
import structlog
import trio

from hatchway.engine.base import files
from hatchway.engine.base.clock import Clock
from hatchway.engine.base.errors import FileRefused
from hatchway.engine.journal.files import (
    CURRENT,
    RecordLine,
    is_torn,
    last_seq,
    parse,
    read_after,
    segment_name,
    segments,
    sift,
)
from hatchway.engine.journal.subscribers import Subscriber, Subscribers
from hatchway.engine.runtime.records import Record

log = structlog.get_logger(__name__)

MIB = 1024 * 1024
KEPT_SECONDS, KEPT_BYTES = 7 * 86_400, 64 * MIB
SEGMENT_SECONDS, SEGMENT_BYTES = 86_400, 8 * MIB
"""A file is full after a day or 8 MiB; full ones go once they are too old, or all together too large."""

MOST_FILES = 1000
"""However small they are."""

RECENT = 4096
"""Records that a subscriber may fall behind before it is dropped."""


class FileJournal:
    """A sink of records. Publishing writes one line, waits for nobody and never raises."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        """Raises FileRefused where the folder or file isn't private."""
        files.make_private_dir(folder)
        self._folder, self._clock = folder, clock
        self._encode = msgspec.json.Encoder().encode
        self._recent: list[RecordLine] = []
        self.subscribers = Subscribers(self)
        self.last_seq = last_seq(folder)
        """The number of the last record; the next engine goes on from it."""
        self.lost = 0
        """Records that could not be written."""
        self._fd = -1
        self._sifted: set[str] = set()
        self._crowded: trio.Event | None = None
        self._open()
        self._prune()

    def close(self) -> None:
        """Close the file: no record may come after."""
        os.close(self._fd)

    def __call__(self, record: Record) -> None:
        """Publish one record."""
        try:
            line = RecordLine(record.seq, self._encode(record))
        except UnicodeEncodeError:
            log.exception("record_not_encoded", seq=record.seq)
            return
        self._write(line, record.time)
        self._recent.append(line)
        if len(self._recent) > 2 * RECENT:
            del self._recent[:RECENT]
        self.last_seq = line.seq
        self.subscribers.news()

    def reopen(self) -> None:
        """Go on in a file of the same name: somebody may have moved the old one away (SIGHUP)."""
        old = self._fd
        try:
            self._open()
        except (OSError, FileRefused) as error:
            self._fd = old
            log.warning("journal_not_reopened", why=str(error))
        else:
            os.close(old)

    def _open(self) -> None:
        path = self._folder / CURRENT
        self._fd = files.open_append(path)
        self._torn = is_torn(path)
        self._size = path.stat().st_size
        with path.open("rb") as file:
            first = parse(file.readline().rstrip(b"\n"))
        self._first_seq = first.seq if first else None
        self._since = msgspec.json.decode(first.data)["time"] if first else self._clock.wall()

    def _write(self, line: RecordLine, time: float) -> None:
        if self._size and (self._size >= SEGMENT_BYTES or time - self._since >= SEGMENT_SECONDS):
            self._rotate(time)
        if self._first_seq is None:
            self._first_seq, self._since = line.seq, time
        data = b"\n" * self._torn + line.data + b"\n"
        try:
            written = os.write(self._fd, data)
        except OSError as error:
            self._fail(str(error))
            return
        self._size += written
        self._torn = written < len(data)
        if self._torn:
            self._fail("the disk took half a line")
        elif self.lost:
            log.warning("journal_written_again", lost=self.lost)
            self.lost = 0

    def _fail(self, why: str) -> None:
        """The engine goes on without its audit log, and says so once."""
        if not self.lost:
            log.error("journal_not_written", why=why)
        self.lost += 1

    def _rotate(self, time: float) -> None:
        old, path = self._fd, self._folder / CURRENT
        try:
            os.fsync(old)
            os.utime(path, (time, time))  # its age by our clock, which pruning goes by
            path.rename(self._folder / segment_name(self._first_seq or self.last_seq))
            self._open()
            os.close(old)
            self._prune()
        except (OSError, FileRefused) as error:
            log.warning("journal_not_rotated", why=str(error))
            self._size, self._since = 0, time  # go on in this file, and try again when it is twice as full

    def _prune(self) -> None:
        """Remove full files that are too old, then see to it that the rest leaves room for the written one."""
        for path, status in self._full():
            if self._clock.wall() - status.st_mtime > KEPT_SECONDS:
                path.unlink(missing_ok=True)
        full = self._full()
        if _excess(full) > 0 or len(full) > MOST_FILES:
            if self._crowded is None:
                self._make_room()
            else:
                self._crowded.set()

    def _full(self) -> list[tuple[Path, os.stat_result]]:
        """The files that are written no more, oldest first."""
        found = []
        for path in segments(self._folder)[:-1]:
            with suppress(FileNotFoundError):  # removed just now
                found.append((path, path.stat()))
        return found

    def _make_room(self) -> None:
        """Take refusals and renewals out of full files, the oldest first; then remove whole files. Reads 8 MiB or so,
        and may be called in a thread: full files are nobody else's to change."""
        full = self._full()
        excess = _excess(full)
        for path, _ in full:
            if excess > 0 and path.name not in self._sifted:
                excess -= self._sift(path)
        full = self._full()
        self._sifted &= {path.name for path, _ in full}
        for number, (path, status) in enumerate(full):
            if excess > 0 or len(full) - number > MOST_FILES:
                excess -= status.st_size
                path.unlink(missing_ok=True)

    def _sift(self, path: Path) -> int:
        """Bytes that were gained."""
        self._sifted.add(path.name)
        try:
            return sift(path)
        except (OSError, FileRefused) as error:
            log.warning("journal_not_sifted", why=str(error))
            return 0

    async def run(self) -> None:
        """Wake the subscribers, and prune full files in a thread, for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.subscribers.run)
            nursery.start_soon(self._keep_room)

    async def _keep_room(self) -> None:
        self._crowded = trio.Event()
        try:
            while True:
                await self._crowded.wait()
                self._crowded = trio.Event()
                await trio.to_thread.run_sync(self._make_room)
        finally:
            self._crowded = None

    def subscribe(self, after: int, look: Callable[[], bool] | None = None) -> Subscriber:
        """A subscriber that reads on behind record number `after`; `look` is the subscriber's."""
        return Subscriber(self, self.subscribers, after, look)

    def remembers(self, after: int) -> bool:
        """Whether every record after number `after` is still in memory."""
        return after >= self.last_seq or (bool(self._recent) and self._recent[0].seq <= after + 1)

    def recent(self, after: int) -> list[RecordLine]:
        """The records after number `after` that are in memory."""
        return self._recent[bisect_right(self._recent, after, key=attrgetter("seq")) :]

    def older(self, after: int) -> Iterator[list[RecordLine]]:
        """The records after number `after` that are in the files, a piece at a time."""
        return read_after(self._folder, after)


def _excess(full: list[tuple[Path, os.stat_result]]) -> int:
    """Bytes by which these leave too little room for the written file."""
    return sum(status.st_size for _, status in full) - (KEPT_BYTES - SEGMENT_BYTES)
