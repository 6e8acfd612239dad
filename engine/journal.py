"""The journal: every record in `log/events.jsonl`, for 7 days or 64 MiB, and in memory for those who follow it."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import msgspec
import structlog
import trio

from engine import files
from engine.clock import Clock
from engine.errors import FileRefused
from engine.journal_files import CURRENT, Line, is_torn, last_seq, parse, read_after, segment_name, segments
from engine.records import Record

log = structlog.get_logger(__name__)

MIB = 1024 * 1024
KEPT_SECONDS, KEPT_BYTES = 7 * 86_400, 64 * MIB
SEGMENT_SECONDS, SEGMENT_BYTES = 86_400, 8 * MIB
"""A file is full after a day or 8 MiB; full ones go once they are too old, or all together too large."""

RECENT = 4096
"""Records that a follower may fall behind before it is dropped."""

WOKEN_AT_ONCE = 1
"""Followers on their way to a new record: the others follow, a turn of the event loop each."""

GATHERED = 0.02
"""Seconds before the first follower is woken: the records of one sign-in are told together, once it is answered."""

PATIENCE = 1.0
"""Seconds that a follower waits for news, before it may look whether it still is to follow."""


class FollowerDropped(Exception):
    """The follower read more slowly than records came. It may come back and go on from the last it saw."""


class FileJournal:
    """A sink of records. Publishing writes one line, waits for nobody and never raises."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        """Raises FileRefused where the folder or file isn't private."""
        files.make_private_dir(folder)
        self._folder, self._clock = folder, clock
        self._encode = msgspec.json.Encoder().encode
        self._recent: list[Line] = []
        self._waiting: dict[Follower, trio.Event] = {}
        self._woken, self._gathering = 0, False
        self.last_seq = last_seq(folder)
        """The number of the last record; the next engine goes on from it."""
        self.lost = 0
        """Records that could not be written."""
        self.followers = 0
        self._fd = -1
        self._open()
        self._prune()

    def close(self) -> None:
        os.close(self._fd)

    def __call__(self, record: Record) -> None:
        """Publish one record."""
        try:
            line = Line(record.seq, self._encode(record))
        except UnicodeEncodeError:
            log.exception("record_not_encoded", seq=record.seq)
            return
        self._write(line, record.time)
        self._recent.append(line)
        if len(self._recent) > 2 * RECENT:
            del self._recent[:RECENT]
        self.last_seq = line.seq
        self._wake(gather=True)

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

    def _write(self, line: Line, time: float) -> None:
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
        """Remove full files that are too old, then the oldest until the rest leaves room for the written one."""
        left = KEPT_BYTES - SEGMENT_BYTES
        for path in reversed(segments(self._folder)[:-1]):
            status = path.stat()
            left -= status.st_size
            if left < 0 or self._clock.wall() - status.st_mtime > KEPT_SECONDS:
                path.unlink()

    def follow(self, after: int) -> Follower:
        """Read on from record number `after`. Use as a context manager."""
        return Follower(self, after)

    def remembers(self, after: int) -> bool:
        """Whether every record after number `after` is still in memory."""
        return after >= self.last_seq or (bool(self._recent) and self._recent[0].seq <= after + 1)

    def recent(self, after: int) -> list[Line]:
        """The records after number `after` that are in memory."""
        return self._recent[bisect_right(self._recent, after, key=attrgetter("seq")) :]

    def older(self, after: int) -> Iterator[list[Line]]:
        """The records after number `after` that are in the files, a piece at a time."""
        return read_after(self._folder, after)

    async def wait_news(self, follower: Follower) -> None:
        """Until there is a record after the follower's last."""
        event = self._waiting[follower] = trio.Event()
        try:
            await event.wait()
            if self._gathering:
                await trio.sleep(GATHERED)
                self._gathering = False
        finally:
            if self._waiting.pop(follower, None) is None:
                self._woken -= 1
                self._wake()

    def _wake(self, *, gather: bool = False) -> None:
        """Wake the one behind that waits longest; it wakes the next when its turn comes.

        Two thousand woken at once would hold a sign-in up for as long as it takes to serve them all.
        """
        while self._woken < WOKEN_AT_ONCE:
            behind = next((one for one in self._waiting if one.after < self.last_seq), None)
            if behind is None:
                return
            self._woken += 1
            self._gathering = gather
            self._waiting.pop(behind).set()


class Follower:
    """Somebody's place in the journal: first what the files hold, then what comes."""

    def __init__(self, journal: FileJournal, after: int) -> None:
        self._journal, self.after = journal, after
        self._older = journal.older(after)
        self._live = False

    def __enter__(self) -> Follower:
        self._journal.followers += 1
        return self

    def __exit__(self, *error: object) -> None:
        self._journal.followers -= 1

    async def read(self) -> list[Line]:
        """The next records; none after a second without news. Where the log no longer reaches, the oldest there are.

        Raises FollowerDropped, once the files were read and memory has moved on.
        """
        lines = self._next()
        if not lines:
            with trio.move_on_after(PATIENCE):
                await self._journal.wait_news(self)
            lines = self._next()
        if lines:
            self.after = lines[-1].seq
        return lines

    def _next(self) -> list[Line]:
        if not self._journal.remembers(self.after):
            if self._live:
                raise FollowerDropped
            if lines := next(self._older, None):
                return lines
            self._older = self._journal.older(self.after)  # written while we read, or never written
            if lines := next(self._older, None):
                return lines
        self._live = True
        return self._journal.recent(self.after)
