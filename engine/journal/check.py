"""Checks a journal: every line's hash and number, every step by its chart, and the heads that were signed over it.

The files are read one after the other, a line at a time. What is held in memory is the actors that live at that point
of the journal, and its heads: so it does not grow with the number of records.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from hashlib import sha256
from pathlib import Path
from typing import IO

import msgspec
from msgspec import UNSET

from hatchway.engine.journal.files import (
    HASH_BYTES,
    SCHEMA,
    SEAL,
    TAIL,
    SealedRecord,
    named_by,
    parse,
    segments,
    sifted,
)
from hatchway.engine.journal.findings import BadLine, Findings
from hatchway.engine.journal.heads import Head, HeadRefused, Keys, check_sifted, claimed, heads_in, last_true, read_head
from hatchway.engine.journal.replay import NotSo, Replay

UNSEALED_SECONDS, MINUTE = 180.0, 60.0
"""How much time may pass from the first record after the last head to the last record; each pause between two records
counts as a minute at most. A running engine signs a head a minute, so records of a longer time without a head mean that
heads were removed. The engine may have been killed before it signed the last, hence more than one minute."""

BUFFER = 1 << 18

BEGINS = b'{"time":'
"""How a record begins. A line that was cut as the engine was killed begins so, too, or is less than that."""

_MARK = b',"hash":"'


class Check:
    """One run over the files of one journal."""

    def __init__(self, heads: Sequence[str] = (), witness: str | None = None, keys: Keys | None = None) -> None:
        """`heads` are those that lie with the journal, `witness` one that somebody else has kept. Without `keys` no
        signature is looked at. Raises HeadRefused where the witness's is none of ours."""
        self._counts: Counter[str] = Counter()
        self._first, self._until = 0, 0.0
        self._since: float | None = None
        self._witnessed = False
        self._keys = keys
        self._heads = {head.seq: (head, signed) for head, signed in claimed(heads)} if keys is not None else {}
        self._witness = read_head(witness, keys or {}) if witness else None
        self._last_head = last_true(heads, keys) if keys else None
        self._replay: Replay | None = None
        self._seq: int | None = None
        self._named: int | None = None
        """The number of the record that the file is named by; None once its first record was looked at."""
        self._prev: bytes | None = None
        self._torn = 0
        self._head_seen = self._last_head is None and not self._keys
        """Whether the record of the last head was there; without a head, whether any line had a hash."""
        self._unsealed: tuple[Path, int, int] | None = None
        self._unsealed_seconds = 0.0
        self._decode = msgspec.json.Decoder(SealedRecord).decode

    def run(self, files: Iterable[tuple[Path, IO[bytes]]], *, whole: bool = True) -> Findings:
        """Check these files, oldest first. `whole` says that they are all there are: then what was removed by others
        is missed. Raises BadLine, OSError."""
        path = Path()
        with closing(files) if isinstance(files, Generator) else nullcontext():
            for path, file in files:
                with file:
                    self._file(path, file)
        found = self._found()
        fault = self._missing(path, found, whole=whole)
        if fault is not None:
            raise fault
        return found

    def _file(self, path: Path, file: IO[bytes]) -> None:
        sealed, number, data = False, 0, b""
        self._named = named_by(path)
        for number, data in enumerate(file, 1):
            try:
                if data.startswith(BEGINS):
                    self._record(data, path, number)
                elif data.startswith(SEAL):
                    sealed = self._seal_of_file(data, file, number)
                elif (gone := sifted(data)) is not None:
                    self._take_gone(*gone.sifted, gone.hash, sealed=sealed)
                elif text := data.strip(b"\n\0 "):
                    self._cut_line(text)
            except NotSo as fault:
                line = parse(data.rstrip(b"\n"))
                raise BadLine(path, number, line.seq if line else None, str(fault)) from None

    def _cut_line(self, text: bytes) -> None:
        if not BEGINS.startswith(text[: len(BEGINS)]):
            raise NotSo("no engine writes such a line: this is no journal, or somebody has changed it")
        self._torn += 1

    def _record(self, data: bytes, path: Path, number: int) -> None:
        try:
            record = self._decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._torn += 1
            return
        if not data.endswith(b"\n"):
            return  # it is being written just now, or was when the engine was killed
        if record.schema is not UNSET or record.lost is not UNSET or self._torn:
            self._told_once(record)
        if record.hash is not UNSET:
            self._chained(record, data)
        elif self._prev:
            raise NotSo("a line without a hash, after lines that have one")
        self._number(record)
        if self._replay is None:
            self._replay = Replay(complete=record.seq == 1)
        self._replay.take(record)
        self._count(record, path, number)

    def _told_once(self, record: SealedRecord) -> None:
        """What the first record after a start tells, or after a fault."""
        if record.schema is not UNSET:
            if record.schema > SCHEMA:
                raise NotSo(f"it is of form {record.schema}, which a later version of hatchway writes: check it there")
            told = (record.prev or "").encode()
            if self._prev is not None and told != self._prev:
                raise NotSo("the line before it is not the one that the engine wrote: something is gone, or another's")
            self._prev = told
        if record.schema is UNSET and record.lost is UNSET and record.hash is not UNSET:
            raise NotSo("a line before it is none that an engine writes")
        self._counts["torn"] += self._torn
        self._torn = 0

    def _chained(self, record: SealedRecord, data: bytes) -> None:
        end = len(data) - TAIL - 1
        if data[end : end + len(_MARK)] != _MARK:
            raise NotSo("its hash does not stand at its end")
        told = data[end + len(_MARK) : -3]
        if self._prev is not None:
            made = b2a_base64(sha256(self._prev + data[:end]).digest()[:HASH_BYTES], newline=False)
            if made != told:
                raise NotSo("its hash is not that of this line after the one before it: one of the two was changed")
        self._prev = told
        if self._last_head is None or self._last_head.seq == record.seq:
            self._head_seen = True
        head = self._heads.get(record.seq)
        if head is not None and head[0].hash.encode() != told:
            self._unlike(head)
        witness = self._witness
        if witness is not None and record.seq == witness.seq:
            if witness.hash.encode() != told:
                raise NotSo("it is not the record that was witnessed: the journal was rewritten")
            self._witnessed = True

    def _unlike(self, head: tuple[Head, str]) -> None:
        """The head of a record says otherwise: the record is false, unless the head is."""
        try:
            read_head(head[1], self._keys or {})
        except HeadRefused:
            return
        raise NotSo("it is not the record that was signed: the journal was rewritten from here or from before")

    def _named_rightly(self, first: int) -> None:
        """A full file is named by its first record."""
        if self._named not in (None, first):
            raise NotSo(
                f"its file is named by record {self._named}: records were moved between files, or it was renamed"
            )
        self._named = None

    def _number(self, record: SealedRecord) -> None:
        self._named_rightly(record.seq)
        lost = 0 if record.lost is UNSET else record.lost
        expected = None if self._seq is None else self._seq + 1 + lost
        if expected is not None and record.seq != expected and (record.hash is not UNSET or record.seq < expected):
            raise NotSo(f"its number must be {expected}")
        self._counts["lost"] += lost
        self._seq = record.seq

    def _take_gone(self, first: int, last: int, digest: str, *, sealed: bool) -> None:
        """A line that stands for records `first` to `last`, which made room; `digest` is the hash of the last of them,
        `sealed` says that the engine has signed the file."""
        if self._keys is not None and digest and not sealed:
            raise NotSo(f"records {first} to {last} were taken out, and no engine has signed that")
        self._named_rightly(first)
        if self._seq is not None and last <= self._seq and sealed:
            return  # the engine was killed as it moved this from one file to the one before
        if self._seq is not None and first != self._seq + 1:
            raise NotSo(f"its number must be {self._seq + 1}")
        self._seq, self._prev = last, digest.encode() or None
        self._head_seen = self._head_seen or (self._last_head is not None and first <= self._last_head.seq <= last)
        self._first = self._first or first
        self._counts["sifted"] += last - first + 1
        if self._replay is None:
            self._replay = Replay()
        self._replay.miss()

    def _seal_of_file(self, data: bytes, file: IO[bytes], number: int) -> bool:
        """Whether a line that claims to be the engine's signature over the rest of its file is one: it must be the
        first. Raises NotSo."""
        if number != 1 or self._keys is None:
            return number == 1
        signed, kept = data[len(SEAL) : -3].decode("latin-1"), file.read()
        file.seek(len(data))
        try:
            check_sifted(signed, kept, self._keys)
        except HeadRefused as refused:
            raise NotSo(refused.detail) from None
        return True

    def _count(self, record: SealedRecord, path: Path, number: int) -> None:
        sealed, counts = self._last_head, self._counts
        if not counts["records"]:
            self._first, self._since = self._first or record.seq, record.time
        if self._keys is not None and record.hash is not UNSET and (sealed is None or record.seq > sealed.seq):
            if self._unsealed is None:
                self._unsealed = (path, number, record.seq)
            else:
                self._unsealed_seconds += min(max(record.time - self._until, 0.0), MINUTE)
            counts["unsealed"] += 1
        counts["records"] += 1
        self._until = record.time

    def _found(self) -> Findings:
        counts, replay, head, witness = self._counts, self._replay or Replay(), self._last_head, self._witness
        charts = replay.charts.values()
        sealed = head if head is not None and head.seq >= self._first else None
        seen = witness if self._witnessed else None
        return Findings(
            records=counts["records"],
            actors=sum(chart.actors + chart.unknown for chart in charts),
            steps={chart.chart.name: chart.steps for chart in charts},
            refusals=replay.refusals,
            notices=replay.notices,
            first=self._first,
            last=self._seq or 0,
            since=self._since,
            until=self._until if counts["records"] else None,
            unknown={chart.chart.name: chart.unknown for chart in charts if chart.unknown},
            lost=counts["lost"],
            torn=counts["torn"] + self._torn,
            sifted=counts["sifted"],
            sealed=sealed.seq if sealed else None,
            sealed_at=sealed.iat if sealed else None,
            unsealed=counts["unsealed"],
            witnessed=seen.seq if seen else None,
            witnessed_at=seen.iat if seen else None,
            skipped=dict(replay.skipped),
        )

    def _missing(self, path: Path, found: Findings, *, whole: bool) -> BadLine | None:
        """What should be there, as heads say, and is not."""
        head = self._last_head
        for seen, what in ((self._witness, "witnessed"), (head, "signed")):
            if seen is not None and seen.seq > found.last:
                return BadLine(
                    path, 0, seen.seq, f"was {what}, and the journal ends at {found.last}: its end is cut off"
                )
        if not found.records or not whole:
            return None
        if head is not None and head.first < found.first:
            return BadLine(path, 0, head.first, f"is kept, and the journal begins at {found.first}: files are missing")
        if self._unsealed is not None and self._unsealed_seconds > UNSEALED_SECONDS:
            return BadLine(*self._unsealed, "it and those after it have no head: the heads were taken away")
        if self._keys and not self._head_seen:
            return BadLine(
                path, 0, head.seq if head else None, "no line has a hash, though this engine seals its journal"
            )
        return None


def open_all(paths: Sequence[Path]) -> Iterator[tuple[Path, IO[bytes]]]:
    """The files, the last opened first: an engine may set it aside while the others are read. Raises OSError."""
    if paths:
        with paths[-1].open("rb", buffering=BUFFER) as last:
            for path in paths[:-1]:
                yield path, path.open("rb", buffering=BUFFER)
            yield paths[-1], last


def check_folder(folder: Path, keys: Keys | None = None, witness: str | None = None) -> Findings:
    """Check the journal in `folder`. Raises BadLine, HeadRefused, OSError."""
    heads = heads_in(folder)
    return Check(heads, witness, keys).run(open_all(segments(folder)))
