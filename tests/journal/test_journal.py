"""The journal keeps every record, numbers none twice, and is never the reason that anything else stands still."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import structlog
import trio
import trio.testing
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hatchway.engine.access.tokens import Tokens
from hatchway.engine.base import files
from hatchway.engine.base.clock import SystemClock
from hatchway.engine.base.errors import FileRefused
from hatchway.engine.journal import journal as journal_module
from hatchway.engine.journal.files import (
    CURRENT,
    RecordLine,
    fold,
    hash_of,
    is_empty,
    last_seq,
    parse,
    read_after,
    segments,
    sift,
    sifted,
)
from hatchway.engine.journal.heads import Heads, heads_in
from hatchway.engine.journal.journal import KEPT_BYTES, SEGMENT_BYTES
from hatchway.engine.runtime.records import NOBODY, Origin
from tests.support.generated_journal import Generated
from tests.support.journals import Host, folder

__all__ = ["folder"]


def seqs(folder: Path, after: int = 0) -> list[int]:
    return [line.seq for lines in read_after(folder, after) for line in lines]


async def test_a_record_is_one_line(folder: Path) -> None:
    """Each record is one line of JSON, whole as soon as it is published, in a file of our own (600)."""
    host = Host(folder)
    host.records.refusal("session", "-", "start", "wrong_signature", Origin(None, "192.0.2.1", "ab-2"))
    path = folder / CURRENT
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {
            "time": pytest.approx(host.clock.wall(), abs=5),
            "seq": 1,
            "kind": "refusal",
            "chart": "session",
            "actor": "-",
            "event": "start",
            "source": None,
            "target": None,
            "effects": [],
            "identity": None,
            "address": "192.0.2.1",
            "request_id": "ab-2",
            "cause": "wrong_signature",
            "schema": 3,
            "prev": "",
            "hash": hash_of(path.read_bytes().rstrip(b"\n")),
        }
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


async def test_values_never_make_a_second_line(folder: Path) -> None:
    """RecordLine ends, control bytes and quotes in a value are escaped: nobody writes a line but us."""
    host = Host(folder)
    host.records.notice("engine", 'x\n{"seq":99}\r\x1b[2J"\x00', "start")
    assert len((folder / CURRENT).read_bytes().splitlines()) == 1
    assert seqs(folder) == [1]


async def test_half_a_surrogate_harms_nobody(folder: Path) -> None:
    """A text that no encoding takes costs its own record alone."""
    host = Host(folder)
    host.records.notice("engine", "\ud800", "start")
    host.tell()
    assert seqs(folder) == [2]


async def test_the_next_engine_goes_on_counting(folder: Path) -> None:
    """Numbers never repeat on one engine, whatever the number of its starts."""
    host = Host(folder)
    host.tell(3)
    host = host.again()
    host.tell(2)
    host = host.again().again()
    host.tell()
    assert seqs(folder) == [1, 2, 3, 4, 5, 6]


CUT_AT_A_BRACE = b'{"time":1.0,"seq":3,"saw":{"permissions":["SHELL"]}'


@pytest.mark.parametrize("torn", [b'{"time":1.0,"seq":3', b"{", b"\x00\x00\x00", b'"seq":999', CUT_AT_A_BRACE])
async def test_a_torn_last_line_is_left_behind(folder: Path, torn: bytes) -> None:
    """Where the writer was killed inside a line, that line is passed over, and the next is a line of its own."""
    host = Host(folder)
    host.tell(2)
    with (folder / CURRENT).open("ab") as file:
        file.write(torn)
    host = host.again()
    host.tell(2)
    assert seqs(folder) == [1, 2, 3, 4]


async def test_a_damaged_first_line(folder: Path) -> None:
    """Blocks that a power loss has zeroed stop no start and no reopening, where the line's end is still its end."""
    folder.mkdir(0o700)
    (folder / CURRENT).write_bytes(b'{"time":1.0,"seq":1,' + bytes(20) + b'"x":1,"hash":"AAAAAAAAAAAAAAAAAAAA"}\n')
    (folder / CURRENT).chmod(0o600)
    host = Host(folder)
    host.tell(2)
    host.journal.reopen()
    host.tell()
    assert seqs(folder)[-3:] == [2, 3, 4]


async def test_a_record_after_the_end_goes_into_no_other_file(folder: Path, tmp_path: Path) -> None:
    """The number of a closed file's descriptor is soon another's."""
    host = Host(folder)
    host.tell()
    host.journal.close()
    with (tmp_path / "other").open("wb"):
        host.tell()
    assert (tmp_path / "other").read_bytes() == b""


def test_a_head_that_a_full_disk_cut(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes no other one with it: the next is a line of its own, and it is written itself once there is room."""
    folder.mkdir(0o700)
    write, told = os.write, list[str]()
    tokens = Tokens("urn:uuid:x", Ed25519PrivateKey.generate())
    heads = Heads(folder, SystemClock(), "urn:uuid:x", tokens.sign)
    heads.subscribers.append(told.append)
    first = heads.sign(1, "hash", 1, "minute")
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda fd, data: write(fd, data[: len(data) // 2]))
        second = heads.sign(2, "hash", 1, "minute")
    assert Heads(folder, SystemClock(), "urn:uuid:x", tokens.sign).first == 1
    assert heads.sign(2, "hash", 1, "minute") == second
    third = heads.sign(3, "hash", 2, "stop")
    assert [head for head in heads_in(folder) if head in told] == [first, second, third] == told
    assert Heads(folder, SystemClock(), "urn:uuid:x", tokens.sign).first == 2


def test_files_that_somebody_has_taken(tmp_path: Path) -> None:
    """While they are written that is told, once; and no number is given out twice, as far as heads tell which were."""
    made = Generated(tmp_path / "log")
    made.work(20)
    made.journal.seal("minute")
    with structlog.testing.capture_logs() as lines:
        made.journal._look_for_file()
        (tmp_path / "log" / CURRENT).rename(tmp_path / "elsewhere")
        made.journal._look_for_file()
        made.journal._look_for_file()
        made.journal.reopen()
        made.journal._look_for_file()
    assert [line["event"] for line in lines] == ["journal_moved"]
    (tmp_path / "log" / CURRENT).unlink()
    assert Generated(tmp_path / "log").journal.last_seq == made.journal.last_seq == 20


async def test_a_file_that_begins_with_a_torn_line(folder: Path) -> None:
    """It is passed over, and stops no start."""
    folder.mkdir(0o700)
    (folder / CURRENT).write_bytes(CUT_AT_A_BRACE)
    (folder / CURRENT).chmod(0o600)
    Host(folder).tell(2)
    assert seqs(folder) == [1, 2]


async def test_foreign_lines_are_passed_over(folder: Path) -> None:
    """Empty lines and lines of others stop no reader and no start."""
    host = Host(folder)
    host.tell()
    with (folder / CURRENT).open("ab") as file:
        file.write(b"\n\nhello\n{}\n" + b"\xff" * 100 + b"\n")
    host = host.again()
    host.tell()
    assert seqs(folder) == [1, 2]


@pytest.mark.parametrize("spoil", [lambda path: path.chmod(0o644), lambda path: (path.unlink(), path.symlink_to("/x"))])
async def test_an_open_log_is_refused(folder: Path, spoil: Callable[[Path], object]) -> None:
    """A file that others may read, or a link, is not written; the refusal says what mends it."""
    host = Host(folder)
    host.tell()
    spoil(folder / CURRENT)
    with pytest.raises(FileRefused, match="mend it with"):
        host.again()


async def test_a_full_file_makes_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Full files are set aside under their first record's number; reading goes through all of them, in order."""
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 1000)
    host = Host(folder)
    host.tell(20)
    names = [path.name for path in segments(folder)]
    assert names[0] == "events-0000000000000001.jsonl"
    assert names[-1] == CURRENT
    assert len(names) >= 4
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in segments(folder))
    for after in range(21):
        assert seqs(folder, after) == list(range(after + 1, 21))
    assert host.again().journal.last_seq == 20


async def test_a_day_is_a_file(folder: Path) -> None:
    """The file is set aside once it holds a day, also where that day began under another engine."""
    host = Host(folder)
    host.tell()
    host.clock.skew += 86_300
    host = host.again()
    host.tell()
    assert len(segments(folder)) == 1
    host.clock.skew += 200
    host.tell()
    assert [path.name for path in segments(folder)] == ["events-0000000000000001.jsonl", CURRENT]
    assert seqs(folder) == [1, 2, 3]


async def test_the_oldest_files_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After seven days, or where all together would pass 64 MiB, the oldest go and the newest stay."""
    assert (KEPT_BYTES, SEGMENT_BYTES) == (64 * 1024 * 1024, 8 * 1024 * 1024)
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 1000)
    monkeypatch.setattr(journal_module, "KEPT_BYTES", 5000)
    host = Host(folder)
    host.tell(100)
    assert sum(path.stat().st_size for path in segments(folder)) <= 5000 + 300
    assert seqs(folder)[-1] == 100
    assert seqs(folder)[0] > 70
    old = segments(folder)[0]
    for age, kept in ((6.9, True), (7.1, False)):
        when = host.clock.wall() - age * 86_400
        for path in segments(folder)[:-1]:
            os.utime(path, (host.clock.wall(), host.clock.wall()))
        os.utime(old, (when, when))
        host = host.again()
        assert old.exists() == kept
    assert seqs(folder)[-1] == 100


@pytest.mark.parametrize("ahead", [-50 * 365 * 86_400, 10 * 365 * 86_400])
async def test_a_wrong_clock_makes_no_file_old(folder: Path, monkeypatch: pytest.MonkeyPatch, ahead: float) -> None:
    """After a boot without a battery, or a slip: records that went could not be got back. Once the clock is right,
    files go after their seven days as they did."""
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 1000)
    host = Host(folder)
    host.tell(10)
    host.clock.skew += ahead
    host = host.again()
    host.tell(2)
    host.clock.skew -= ahead
    host = host.again()
    host.tell(10)
    assert seqs(folder) == list(range(1, 23))
    for _ in range(10):
        host.clock.skew += 86_400
        host.tell()
    assert 23 <= seqs(folder)[0] <= 26


def size_of(folder: Path) -> int:
    """Bytes of the journal, while a thread may remove files."""
    found = 0
    for path in segments(folder):
        with suppress(FileNotFoundError):
            found += path.stat().st_size
    return found


def kinds(folder: Path) -> Counter[str]:
    """What the journal holds: notices by event, other records by event too."""
    lines = [json.loads(line.data) for lines in read_after(folder, 0) for line in lines]
    return Counter(line["event"] if line["kind"] != "refusal" else "refusal" for line in lines)


@pytest.mark.parametrize("running", [False, True])
async def test_a_flood_takes_nothing_from_an_operator(
    folder: Path, monkeypatch: pytest.MonkeyPatch, running: bool
) -> None:
    """What strangers, or a small session, can cause without end makes room for all else: refusals and renewals go.

    Whether the room is made beside the running engine, or as the journal is opened.
    """
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 4000)
    monkeypatch.setattr(journal_module, "KEPT_BYTES", 20_000)
    host = Host(folder)
    bob = Origin("SHA256:bob", "192.0.2.1", "ab-1")
    async with trio.open_nursery() as nursery:
        if running:
            nursery.start_soon(host.journal.run)
            await trio.testing.wait_all_tasks_blocked()
        host.records.notice("key", "SHA256:bob", "register")
        host.records.transition("session", "s1", "start", "none", "active", ("issue_token",), bob)
        for number in range(1000):
            host.records.refusal("session", "-", "start", "wrong_signature", Origin(None, f"10.0.0.{number % 256}"))
            host.records.transition("session", "s1", "renew", "active", "active", ("issue_token",), bob)
            if number % 100 == 0:
                host.records.transition("session", f"t{number}", "start", "none", "active", ("issue_token",), bob)
            if running and number % 5 == 0:
                await trio.sleep(0.002)
        host.records.transition("session", "s1", "logout", "active", "ended", (), bob)
        if running:
            with trio.fail_after(20):
                while size_of(folder) > 20_300:
                    await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert kinds(folder).keys() == {"register", "start", "logout", "refusal", "renew"}
    assert (kinds(folder)["register"], kinds(folder)["start"], kinds(folder)["logout"]) == (1, 11, 1)
    assert size_of(folder) <= 20_300
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in segments(folder))
    told = seqs(folder)
    assert told == sorted(set(told))
    assert host.again().journal.last_seq == told[-1] == 2013


async def test_a_sifted_file_keeps_its_age(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of a file goes after its seven days, not after seven more; it says what has made room."""
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 1000)
    host = Host(folder)
    host.tell()
    for _ in range(20):
        host.records.refusal("session", "-", "start", "wrong_signature", Origin(None, "192.0.2.1"))
    first, second, *_ = segments(folder)
    os.utime(first, (1000.0, 1000.0))
    assert sift(first) > 0
    _, stub = first.read_bytes().splitlines()
    assert (seqs(folder)[0], sifted(stub).sifted, first.stat().st_mtime) == (1, (2, 4), 1000.0)  # type: ignore[union-attr]
    assert sift(second) > 0
    assert is_empty(second)
    fold(first, second)
    assert not second.exists()
    assert [sifted(line) is None for line in first.read_bytes().splitlines()] == [True, False]


async def test_refusals_without_end_have_few_records(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand of them, and ten a second after that, have records of their own; sums tell of the others.

    From however many addresses they come: ten are told one by one in a second. What no stranger causes is never cut.
    """
    host = Host(folder)
    monkeypatch.setattr(host.clock, "elapsed", lambda: 100.0)
    for number in range(5000):
        host.records.refusal("session", "-", "start", "wrong_signature", Origin(None, f"2001:db8::{number:x}"))
    host.records.tell_surplus()
    host.records.refusal("session", "s1", "renew", "late", NOBODY)
    host.records.notice("engine", "e", "reload")
    lines = [json.loads(line.data) for lines in read_after(folder, 0) for line in lines]
    sums = [line for line in lines if "count" in line]
    assert len(lines) == 1000 + 11 + 2
    assert len(sums) == 11
    assert sum(line["count"] for line in sums) == 4000
    assert sums[-1] | {"time": 0} == lines[1010] | {"time": 0}
    assert (sums[-1]["address"], sums[-1]["cause"], sums[-1]["count"]) == (None, "too_many_requests", 3990)
    assert [line["cause"] for line in lines[-2:]] == ["late", None]
    monkeypatch.setattr(host.clock, "elapsed", lambda: 101.0)
    before = host.journal.last_seq
    for _ in range(100):
        host.records.refusal("pairing", "-", "claim", "used_code", Origin(None, "192.0.2.1"))
    assert host.journal.last_seq - before == 10


@pytest.mark.parametrize(
    "name",
    [
        "events-backup.jsonl",
        "events-.jsonl",
        "events-2026-11-28.jsonl",
        "events-1.jsonl",
        "events-00000000000000001.jsonl",
        f"events-{chr(0x0661) * 16}.jsonl",
        "events-0000000000000001.jsonl.jsonl",
        "events-0000000000000007.jsonl/",
        "events-0000000000000007.jsonl@",
    ],
)
async def test_a_foreign_file_is_its_owners(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an operator lays into the folder under a name like ours (also as a folder, or as a link) is neither read nor
    removed, however old it is, and the records before and after it are read as without it."""
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 1000)
    host = Host(folder)
    host.tell(20)
    kept = folder / name.rstrip("/@")
    target = folder.parent / "elsewhere"
    target.write_text('{"seq":5}\n')
    if name.endswith("/"):
        kept.mkdir()
    elif name.endswith("@"):
        kept.symlink_to(target)
    else:
        kept.write_text('{"seq":5}\nnot ours\n')
    os.utime(kept, (1, 1), follow_symlinks=False)
    for path in segments(folder)[:-1]:
        os.utime(path, (host.clock.wall(), host.clock.wall()))
    host = host.again()
    host.tell(20)
    assert kept.is_symlink() or kept.exists()
    for after in (0, 4, 19, 39):
        assert seqs(folder, after) == list(range(after + 1, 41))


async def test_reopening_follows_a_moved_file(folder: Path) -> None:
    """Somebody else's rotation: the moved file is let go at SIGHUP, a new one of the same name takes over."""
    host = Host(folder)
    host.tell()
    (folder / CURRENT).rename(folder / "moved")
    host.tell()
    host.journal.reopen()
    host.tell()
    assert len((folder / "moved").read_text().splitlines()) == 2
    assert seqs(folder) == [3]


async def test_a_failing_reopen_keeps_the_old_file(folder: Path) -> None:
    """Where no new file can be had, records still go where they went, and the log says so."""
    host = Host(folder)
    (folder / CURRENT).rename(folder / "moved")
    (folder / CURRENT).symlink_to("/nowhere")
    with structlog.testing.capture_logs() as lines:
        host.journal.reopen()
    host.tell()
    assert [line["event"] for line in lines] == ["journal_not_reopened"]
    assert len((folder / "moved").read_text().splitlines()) == 1


async def test_a_full_disk_stops_nobody_and_is_told_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records go on to subscribers while the disk is full; one line says so, one says when it is over."""
    host = Host(folder)
    host.tell()
    real, room = os.write, 0

    def write(fd: int, data: bytes) -> int:
        if room:
            return real(fd, data[:room])
        raise OSError(errno.ENOSPC, "No space left on device")

    with structlog.testing.capture_logs() as lines:
        monkeypatch.setattr(os, "write", write)
        host.tell(50)
        room = 10
        host.tell()
        monkeypatch.undo()
        host.tell(2)
    assert [line["event"] for line in lines] == ["journal_not_written", "journal_written_again"]
    assert lines[1]["lost"] == 51
    assert host.journal.last_seq == 54
    assert seqs(folder) == [1, 53, 54]


async def test_a_real_full_disk(folder: Path) -> None:
    """The same with a device that is really full."""
    host = Host(folder)
    full = os.open("/dev/full", os.O_WRONLY)
    with structlog.testing.capture_logs() as lines:
        os.dup2(full, host.journal._fd)
        host.tell(3)
        host.journal.reopen()
        host.tell()
    os.close(full)
    assert [line["event"] for line in lines] == ["journal_not_written", "journal_written_again"]
    assert seqs(folder) == [4]


async def test_a_number_is_never_given_out_twice(folder: Path) -> None:
    """Nor where an engine ends while the disk is full: the next one tells how many records were lost."""
    host = Host(folder)
    host.tell()
    with open("/dev/full", "wb") as full, structlog.testing.capture_logs():
        os.dup2(full.fileno(), host.journal._fd)
        host.tell(3)
    later = Host(folder)
    assert later.journal.last_seq == 4
    later.tell(2)
    told = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert [(line["seq"], line.get("lost")) for line in told] == [(1, None), (5, 3), (6, None)]


@pytest.mark.parametrize(("whose", "name"), [(Path, "rename"), (files, "open_append"), (journal_module, "is_torn")])
async def test_a_rotation_that_fails_loses_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, whose: object, name: str
) -> None:
    """Where the full file can't be set aside, or no new one begun, it just grows on, until it can."""
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 1000)
    host = Host(folder)
    host.tell()
    with structlog.testing.capture_logs() as lines, monkeypatch.context() as broken:
        broken.setattr(whose, name, _refuse)
        host.tell(10)
        assert [path.name for path in segments(folder)] == [CURRENT]
    assert {line["event"] for line in lines} == {"journal_not_rotated"}
    assert len(lines) < 5
    assert seqs(folder) == list(range(1, 12))
    host.tell(10)
    assert seqs(folder) == list(range(1, 22))
    assert len(segments(folder)) > 1


async def test_a_full_file_that_cannot_be_removed_stops_nobody(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An auditor may have made it immutable (chattr +i): it is told, and others go; a start comes to pass as well."""
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 1000)
    host = Host(folder)
    host.tell(40)
    first, second, *_ = segments(folder)
    unlink = Path.unlink
    monkeypatch.setattr(Path, "unlink", lambda path, **more: _refuse(path) if path == first else unlink(path, **more))
    host.clock.skew += 8 * 86_400
    with structlog.testing.capture_logs() as lines:
        host = host.again()
        host.tell()
        host.clock.skew += 86_400
        host.tell()
    assert {(line["event"], line["file"]) for line in lines} == {("journal_not_pruned", first.name)}
    assert first.exists()
    assert not second.exists()


def _refuse(path: Path, *_: object) -> None:
    raise PermissionError(errno.EACCES, "Permission denied")


def test_numbers_are_found_by_halves(tmp_path: Path) -> None:
    """In a large file the place to read from is found without reading it all, for every number, holes or not."""
    lines = [b'{"time":1.0,"seq":%d,"pad":"%s"}\n' % (number, b"x" * (number % 700)) for number in range(3, 9000, 3)]
    (tmp_path / CURRENT).write_bytes(b"".join(lines))
    for after in (0, 1, 2, 3, 4, 2000, 2001, 5555, 8996, 8997, 10_000):
        assert seqs(tmp_path, after) == [number for number in range(3, 9000, 3) if number > after]
    assert last_seq(tmp_path) == 8997


def test_only_whole_records_count() -> None:
    """A line is a record if it is an object with a number; its bytes are kept as they are."""
    assert parse(b'{"time":1.0,"seq":7,"kind":"notice"}') == RecordLine(7, b'{"time":1.0,"seq":7,"kind":"notice"}')
    assert [parse(line) for line in (b"", b"{}", b'{"seq":7', b'"seq":7}', b'{"seq":"7"}')] == [None] * 5
