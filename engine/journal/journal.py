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
from hatchway.engine.journal import last_number
from hatchway.engine.journal.files import (
    CURRENT,
    SCHEMA,
    RecordLine,
    chain,
    first_seq,
    fold,
    hash_of,
    is_empty,
    is_torn,
    last_line,
    parse,
    read_after,
    segment_name,
    segments,
    sift,
    time_of,
)
from hatchway.engine.journal.heads import Heads, Sign
from hatchway.engine.journal.subscribers import Subscriber, Subscribers
from hatchway.engine.runtime.records import Record

log = structlog.get_logger(__name__)

MIB = 1024 * 1024
KEPT_SECONDS, KEPT_BYTES = 7 * 86_400, 64 * MIB
SEGMENT_SECONDS, SEGMENT_BYTES = 86_400, 8 * MIB
"""A file is full a day after its first record, or at 8 MiB; full ones go once too old, or all together too large."""

SET_BACK = 3600.0
"""Seconds by which the clock may go back within a file: where it goes further, a new one is begun."""

SIGN_INTERVAL = 60.0
"""Seconds between two looks whether there is something new to sign."""

MOST_FILES = 1000
"""However small they are."""

RECENT = 4096
"""Records that a subscriber may fall behind before it is dropped."""


class FileJournal:
    """A sink of records. Publishing writes one line, waits for nobody and never raises."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        issuer: str = "",
        sign: Sign | None = None,
        kept: Callable[[], tuple[int, int]] = lambda: (KEPT_SECONDS, KEPT_BYTES),
    ) -> None:
        """`sign` makes the signatures of the engine `issuer`; without it nothing is signed. `kept` tells for how many
        seconds records are kept, and in how many bytes at most.

        Raises FileRefused where the folder or file isn't private."""
        files.make_private_dir(folder)
        self.folder, self._clock, self.issuer = folder, clock, issuer
        self._encode = msgspec.json.Encoder().encode
        self._recent: list[RecordLine] = []
        self.subscribers = Subscribers(self)
        self.heads = Heads(folder, clock, issuer, sign) if sign else None
        last, signed = last_line(folder), self.heads.seq if self.heads else 0
        self.last_seq = max(last.seq, last_number.take_up(folder), signed)
        """The number of the last record; the next engine goes on from it, also where somebody has taken the files."""
        self._end = last.seq, hash_of(last.data)
        """Number and hash of the last record that is in the files."""
        self.lost = 0
        """Records that could not be written."""
        self._latest = time_of(last.data)
        """When the last record was written."""
        self._highest = 0.0
        """The latest time of a record in the file that is written."""
        self._kept = kept
        self._fd, self._anew, self._is_moved = -1, True, False
        self._first = (self.heads.first if self.heads else 0) or first_seq(folder)
        """Number of the first record that is kept, by the engine's own word: files that others remove are missed."""
        self._sifted: set[str] = set()
        self._crowded: trio.Event | None = None
        self._open()
        self._prune()

    def close(self) -> None:
        """Sign what there is, and close the file: no record may come after."""
        self.seal("stop")
        os.close(self._fd)
        self._fd = -1  # what comes all the same is told to be lost, and in no other file that gets this number

    def seal(self, why: str) -> str | None:
        """A signature over all that is written, None where nothing is signed; the last one, where there is no news."""
        return self.heads.sign(*self._end, self._first, why) if self.heads is not None and self._end[1] else None

    def __call__(self, record: Record) -> None:
        """Publish one record."""
        try:
            text = self._encode(record)[:-1]
        except UnicodeEncodeError:
            log.exception("record_not_encoded", seq=record.seq)
            return
        self._make_way(record.time)
        written, prev = self._end
        if self._anew or record.seq != written + 1:
            text += self._told_once(record.seq)
        made = chain(prev, text)
        line = RecordLine(record.seq, b'%b,"hash":"%b"}' % (text, made.encode()))
        if self._write(line, record.time):
            self._end, self._anew, self._latest = (record.seq, made), False, record.time
            self._highest = max(self._highest, record.time)
        else:
            last_number.note(self.folder, line.seq)
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
            self._first = first_seq(self.folder) or self._end[0] + 1  # who moves files and says so may do it

    def _open(self) -> None:
        path = self.folder / CURRENT
        fd = files.open_append(path)
        try:
            torn, size = is_torn(path), path.stat().st_size
            with path.open("rb") as file:
                first = next(filter(None, (parse(data.rstrip(b"\n")) for data in file)), None)  # a line may be torn
        except OSError:
            os.close(fd)
            raise
        now = self._clock.wall()
        self._fd, self._torn, self._size, self._anew = fd, torn, size, True
        self._first_seq = first.seq if first else None
        self._since = (time_of(first.data) if first else 0.0) or now
        self._highest = max(self._since, self._latest) if first else 0.0

    def _told_once(self, seq: int) -> bytes:
        """What the first record of a file tells, and one before which others were lost."""
        written, prev = self._end
        told = b',"schema":%d,"prev":"%b"' % (SCHEMA, prev.encode()) if self._anew else b""
        lost = seq - written - 1
        return told + b',"lost":%d' % lost if lost else told

    def _make_way(self, time: float) -> None:
        set_back = self._highest - time >= SET_BACK
        if self._size and (self._size >= SEGMENT_BYTES or time - self._since >= SEGMENT_SECONDS or set_back):
            self._rotate(time)

    def _write(self, line: RecordLine, time: float) -> bool:
        """Whether the whole line is in the file."""
        if self._first_seq is None:
            self._first_seq, self._since = line.seq, time
            self._first = self._first or line.seq
        data = b"\n" * self._torn + line.data + b"\n"
        try:
            written = os.write(self._fd, data)
        except OSError as error:
            self._fail(str(error))
            return False
        self._size += written
        self._torn = written < len(data)
        if self._torn:
            self._fail("the disk took half a line")
        elif self.lost:
            log.warning("journal_written_again", lost=self.lost)
            self.lost = 0
        return not self._torn

    def _fail(self, why: str) -> None:
        """The engine goes on without its audit log, and says so once."""
        if not self.lost:
            log.error("journal_not_written", why=why)
        self.lost += 1

    def _rotate(self, time: float) -> None:
        old, path = self._fd, self.folder / CURRENT
        try:
            os.fsync(old)
            self._date(path, time)
            self.seal("rotation")
            full = path.rename(self.folder / segment_name(self._first_seq or self.last_seq))
            try:
                self._open()
            except (OSError, FileRefused):
                full.rename(path)  # it is written on, so it has the name by which the next try finds it
                raise
            os.close(old)
            self._prune()
        except (OSError, FileRefused) as error:
            log.warning("journal_not_rotated", why=str(error))
            # Go on in this file, and try again when it is twice as full.
            self._size, self._since, self._highest = 0, time, time

    def _date(self, path: Path, time: float) -> None:
        """Have a full file's time say when its last record was written: it is pruned by that. It is never before the
        time of the file ahead of it, nor in the future, also where the clock was wrong for a while."""
        full, latest = self._full(), self._latest or time
        ended = max(min(latest, time), full[-1][1].st_mtime if full else latest)
        os.utime(path, (ended, ended))

    def _prune(self) -> None:
        """Remove full files that are too old, then see to it that the rest leaves room for the written one."""
        full = self._full()
        oldest = self._oldest_kept(full)
        is_old = any(status.st_mtime < oldest for _, status in full)
        if self._excess(full) > 0 or len(full) > MOST_FILES or is_old:
            if self._crowded is None:
                self._make_room()
            else:
                self._crowded.set()

    def _oldest_kept(self, full: list[tuple[Path, os.stat_result]]) -> float:
        """Files that ended before that moment are too old. Where the clock is years ahead for a while, none is that was
        not before: records can't be got back."""
        newest = full[-1][1].st_mtime if full else 0.0
        return min(self._clock.wall(), newest + SEGMENT_SECONDS) - self._kept()[0]

    def _full(self) -> list[tuple[Path, os.stat_result]]:
        """The files that are written no more, oldest first."""
        found = []
        for path in segments(self.folder)[:-1]:
            with suppress(FileNotFoundError):  # removed just now
                found.append((path, path.stat()))
        return found

    def _excess(self, full: list[tuple[Path, os.stat_result]]) -> int:
        """Bytes that full files have too many, where the written one may grow to its size."""
        return sum(status.st_size for _, status in full) - (self._kept()[1] - SEGMENT_BYTES)

    def _make_room(self) -> None:
        """Take refusals and renewals out of full files, the oldest first; then remove whole files."""
        self._remove_excess(self._sift_full())

    def _sift_full(self) -> int:
        """Bytes that are still too many. Reads 8 MiB or so, and may be called in a thread: full files are nobody else's
        to change."""
        full = self._full()
        excess, before = self._excess(full), None
        for path, _ in full:
            if excess > 0 and path.name not in self._sifted:
                excess -= self._sift(path, before)
            before = path if path.exists() else before
        return excess

    def _remove_excess(self, excess: int) -> None:
        full = self._full()
        oldest = self._oldest_kept(full)
        self._sifted &= {path.name for path, _ in full}
        going: list[Path] = []
        for number, (path, status) in enumerate(full):
            nothing_left = len(going) == number and is_empty(path)
            too_many = excess > 0 or len(full) - number > MOST_FILES
            if not (too_many or nothing_left or status.st_mtime < oldest):
                break  # only ever from the front: a file that lacks in between was taken by somebody else
            excess -= status.st_size
            going.append(path)
        self._remove(going)

    def _remove(self, going: list[Path]) -> None:
        """Remove the oldest files. That is signed first: files that somebody else removes are missed."""
        if not going:
            return
        self._first = first_seq(self.folder, len(going))
        self.seal("pruning")
        for path in going:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:  # an auditor may have made it immutable
                log.warning("journal_not_pruned", file=path.name, why=files.reason(error))

    def _sift(self, path: Path, before: Path | None) -> int:
        """Bytes that were gained. Where no record is left, the file goes up in the one `before` it."""
        self._sifted.add(path.name)
        seal = self.heads.seal_file if self.heads else None
        try:
            gained = sift(path, seal)
            if gained and before is not None and is_empty(path):
                gained += path.stat().st_size
                fold(before, path, seal)
        except (OSError, FileRefused) as error:
            log.warning("journal_not_sifted", why=str(error))
            return 0
        return gained

    async def run(self) -> None:
        """Wake the subscribers, and prune full files in a thread, for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.subscribers.run)
            nursery.start_soon(self._keep_room)
            nursery.start_soon(self._seal_news)

    async def _seal_news(self) -> None:
        while True:
            await trio.sleep(SIGN_INTERVAL)
            self.seal("minute")
            self._look_for_file()

    def _look_for_file(self) -> None:
        """Say once that the written file is no longer where it was: its records go where nobody looks for them."""
        moved = True
        with suppress(OSError):
            moved = not os.path.samestat(os.stat(self.folder / CURRENT), os.fstat(self._fd))
        if moved and not self._is_moved:
            log.warning(
                "journal_moved", path=str(self.folder / CURRENT), cure="hatchway engine reload begins a new one"
            )
        self._is_moved = moved

    async def _keep_room(self) -> None:
        self._crowded = trio.Event()
        try:
            while True:
                await self._crowded.wait()
                self._crowded = trio.Event()
                self._remove_excess(await trio.to_thread.run_sync(self._sift_full))
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
        return read_after(self.folder, after)
