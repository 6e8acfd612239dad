"""A check replays what the journal says: a step that no chart has is found, and what is no fault is none."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import structlog

from hatchway.engine.journal import journal as journal_module
from hatchway.engine.journal.check import Check, check_folder, open_all
from hatchway.engine.journal.files import CURRENT, segments
from hatchway.engine.journal.findings import BadLine, Findings
from hatchway.engine.journal.heads import HEADS, HeadRefused, heads_in, read_keys, remember_keys
from hatchway.engine.journal.journal import FileJournal
from hatchway.engine.journal.replay import RULES, charts_digest
from hatchway.engine.runtime.records import NOBODY, UNPROVEN, Origin, Records, Saw
from hatchway.statecharts.catalogue import CHARTS
from hatchway.statecharts.chart import Delay
from hatchway.statecharts.pairing import CHART as PAIRING
from tests.support.fakes import ROOT, effort
from tests.support.generated_journal import ISSUER, SIGNED_IN, Generated

TOKEN, BOB = ("issue_token",), Origin("SHA256:bob", "192.0.2.1", "ab-1")


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Generated]:
    """A journal of an engine that has started."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    generated = Generated(tmp_path / "home" / "log")
    generated.start()
    yield generated
    structlog.reset_defaults()


def check(made: Generated) -> Findings:
    return check_folder(made.folder, made.keys)


def again(made: Generated, *, killed: bool = False) -> None:
    """The next life of the engine."""
    if killed:
        os.close(made.journal._fd)
    else:
        made.stop()
    made.journal = FileJournal(made.folder, made.clock, ISSUER, made.tokens.sign)
    made.records = Records(made.clock, made.journal, last_seq=made.journal.last_seq)
    made.start()


def sign_in(made: Generated, name: str = "s1", saw: Saw = SIGNED_IN) -> None:
    made.records.transition("session", name, "start", "none", "active", TOKEN, BOB, None, saw)


def out(made: Generated, name: str = "s1", left: float = 3000) -> None:
    saw = Saw(deadline=int(made.clock.now + left))
    made.records.transition("session", name, "logout", "active", "ended", ("end_session",), BOB, None, saw)


def claim(made: Generated, *, after: float, target: str = "claimed", window: float = 30.0) -> None:
    made.records.transition("pairing", "p1", "issue", "none", "issued", ("print_code",), BOB)
    saw, effects = Saw(at=after, of=window), ("confirm_claim", "ask_operator")
    made.records.transition("pairing", "p1", "claim", "issued", target, effects, BOB, None, saw)


def claim_in_form_2(made: Generated, *, after: float, window: float = 30.0) -> None:
    """As engines before form 3 told it: by the host's elapsed time."""
    now = made.clock.elapsed()
    told, effects = made.records.transition, ("confirm_claim", "ask_operator")
    told("pairing", "p2", "issue", "none", "issued", ("print_code",), BOB, None, Saw(now=now))
    told("pairing", "p2", "claim", "issued", "claimed", effects, BOB, None, Saw(now=now + after, deadline=now + window))


def elapse(made: Generated, *, after: float) -> None:
    sign_in(made)
    saw = Saw(deadline=int(made.clock.now + 600))
    made.clock.now = int(made.clock.now + 600) + after
    made.records.transition(
        "session", "s1", "lifetime_elapsed", "active", "expired", ("clean_up_tokens",), NOBODY, None, saw
    )


def refuse(made: Generated, event: str, cause: str, source: str | None, saw: Saw = SIGNED_IN) -> None:
    sign_in(made)
    made.records.refusal("session", "s1", event, cause, BOB, source, saw)


def each(made: Generated, *does: Callable[[Generated], object]) -> None:
    for do in does:
        do(made)


WRONG: dict[str, tuple[Callable[[Generated], object], str]] = {
    "a proof that is none": (lambda made: sign_in(made, saw=Saw(proof="hearsay")), "must be refused"),
    "a proof that is not told": (lambda made: sign_in(made, saw=Saw(at=1.0, of=30)), "lacks 'proof'"),
    "a second logout": (lambda made: each(made, sign_in, out, out), "has no beginning"),
    "a session of nobody": (lambda made: out(made, "s2"), "has no beginning"),
    "a second start": (lambda made: each(made, sign_in, sign_in), "was in 'active'"),
    "a logout after the end": (lambda made: each(made, sign_in, partial(out, left=-5)), "lifetime_elapsed' was due"),
    "a lifetime of two days": (lambda made: each(made, sign_in, partial(out, left=2 * 86_400)), "and not 86400"),
    "an early end": (lambda made: elapse(made, after=-10), "early"),
    "a late claim": (lambda made: claim(made, after=30.0), "must be refused in 'issued' \\(within_claim_window\\)"),
    "another target": (lambda made: claim(made, after=1.0, target="approved"), "leads from 'issued' to 'claimed'"),
    "a longer window": (lambda made: claim(made, after=40.0, window=60.0), "and not 30 s"),
    "a late claim in form 2": (lambda made: claim_in_form_2(made, after=30.0), "must be refused in 'issued'"),
    "a longer window in form 2": (lambda made: claim_in_form_2(made, after=40.0, window=60.0), "and not 30 s"),
    "a refusal of what is there": (lambda made: refuse(made, "renew", "no_row", "active"), "wrongly"),
    "a refusal of a live one": (lambda made: refuse(made, "renew", "no_actor", None), "was not found"),
    "a refusal in another state": (lambda made: refuse(made, "renew", "no_row", "ended"), "not in 'ended'"),
    "an unknown chart": (
        lambda made: made.records.transition("house", "x", "open", "none", "open", ()),
        "there is no chart",
    ),
    "an unknown event": (
        lambda made: made.records.transition("session", "x", "fly", "none", "active", (), saw=SIGNED_IN),
        "no_row",
    ),
    "other effects": (
        lambda made: made.records.transition("session", "x", "start", "none", "active", (), saw=SIGNED_IN),
        "with issue_token",
    ),
    "a permission that was not held": (
        lambda made: made.records.transition(
            "instance", "i", "request", "none", "requested", ("queue_start",), Origin("a", asked="RUNTIME")
        ),
        "needs RUNTIME",
    ),
    "a permission that was held": (
        lambda made: made.records.refusal(
            "instance", "-", "request", "permission_denied", Origin("a", asked="RUNTIME", held=("RUNTIME",))
        ),
        "was held, and was refused",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_no_chart_allows_is_found(made: Generated, name: str) -> None:
    """Though the engine itself has written it, with its hash and under its head."""
    wrong, why = WRONG[name]
    wrong(made)
    made.stop()
    with pytest.raises(BadLine, match=why):
        check(made)


def test_what_is_right_is_no_fault(made: Generated) -> None:
    """Sign-ins, refusals, windows that were kept to the last moment, an end in time."""
    sign_in(made, "s0")
    made.records.refusal("session", "-", "start", "wrong_signature", BOB, saw=UNPROVEN)
    made.records.refusal("session", "s9", "renew", "no_actor", BOB)
    made.records.refusal("session", "s0", "start", "no_row", BOB, "active", SIGNED_IN)
    claim(made, after=29.999)
    claim_in_form_2(made, after=29.999)
    elapse(made, after=0.5)
    out(made, "s0")
    made.stop()
    found = check(made)
    assert (found.steps["session"], found.steps["pairing"], found.refusals) == (4, 4, 3)
    assert found.sealed == found.last


@pytest.mark.parametrize("killed", [False, True])
def test_counts_go_on_over_starts(made: Generated, killed: bool) -> None:
    """Whether the engine was stopped or killed: numbers and hashes go on, sessions outlive it."""
    sign_in(made)
    again(made, killed=killed)
    out(made)
    sign_in(made, "s2")
    again(made, killed=killed)
    made.stop()
    found = check(made)
    assert (found.first, found.records, found.actors, found.unknown) == (1, found.last, 2, {})


def test_a_kill_may_cost_one_record(made: Generated) -> None:
    """What was stored as the engine died has no record: the next step of its actor is no fault, yet must be one that
    can follow; without a kill it is a fault."""
    again(made, killed=True)
    out(made, "s7")
    again(made)
    made.records.transition("session", "s8", "renew", "active", "active", TOKEN, BOB, None, Saw(deadline=2**31))
    made.stop()
    assert check(made).unknown == {"session": 2}


def test_what_is_no_journal(tmp_path: Path) -> None:
    """A file of other lines is not one of which nothing bad can be said."""
    foreign = tmp_path / "passwd"
    foreign.write_text("root:x:0:0\nada:x:1:1\n")
    with pytest.raises(BadLine, match="this is no journal"):
        Check([]).run(open_all([foreign]))


def test_what_follows_the_last_record_is_no_engines(made: Generated) -> None:
    """A line that somebody has appended is none that a kill has cut; one that was cut is told, and no fault."""
    made.stop()
    path = made.folder / CURRENT
    whole = path.read_bytes()
    for cut in (b"{", b'{"tim', b'{"time":1790000000.5,"seq":3,"ki', b"\0\0\0"):
        path.write_bytes(whole + cut)
        assert check(made).records == 2
    path.write_bytes(whole + b"the end\n")
    with pytest.raises(BadLine, match="no engine writes such a line"):
        check(made)


def test_torn_and_lost_lines_are_told(made: Generated, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that a kill cut, and records that a full disk did not take: the journal says so itself, and goes on."""
    sign_in(made)
    os.close(made.journal._fd)
    with (made.folder / CURRENT).open("ab") as file:
        file.write(b'{"time":1.0,"seq":3,"kind":"tran')
    made.journal = FileJournal(made.folder, made.clock, ISSUER, made.tokens.sign)
    made.records = Records(made.clock, made.journal, last_seq=made.journal.last_seq)
    made.start()
    write = os.write
    full = True

    def writes(fd: int, data: bytes) -> int:
        if full and fd == made.journal._fd:
            raise OSError(errno.ENOSPC, "no space")
        return write(fd, data)

    monkeypatch.setattr(os, "write", writes)
    made.records.notice("engine", ISSUER, "reload")
    made.records.notice("engine", ISSUER, "reload")
    full = False
    out(made)
    made.stop()
    found = check(made)
    assert (found.torn, found.lost, found.last) == (1, 2, found.records + 2)


def test_what_came_before_is_unknown(made: Generated, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where old files made room, or some are looked at alone, actors that began before are no fault."""
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 4000)
    monkeypatch.setattr(journal_module, "KEPT_BYTES", 40_000)
    made.work(600)
    made.stop()
    found = check(made)
    assert found.first > 1
    assert found.sifted > 2
    assert found.sealed == found.last
    some = segments(made.folder)[-3:-1]
    assert Check(heads_in(made.folder), None, None).run(open_all(some), whole=False).unknown["session"] > 0
    segments(made.folder)[0].unlink()
    with pytest.raises(BadLine, match="files are missing"):
        check(made)


@pytest.mark.parametrize("back", [False, True])
def test_records_keep_to_their_files(made: Generated, monkeypatch: pytest.MonkeyPatch, back: bool) -> None:
    """One that is moved to the neighbouring file is missed where it was, though the lines are all there, in order."""
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 4000)
    made.work(100)
    made.stop()
    check(made)
    one, two = (path.read_bytes().splitlines(keepends=True) for path in segments(made.folder)[2:4])
    moved = ([*one, two[0]], two[1:]) if back else (one[:-1], [one[-1], *two])
    for path, lines in zip(segments(made.folder)[2:4], moved, strict=True):
        path.write_bytes(b"".join(lines))
    with pytest.raises(BadLine, match="moved between files"):
        check(made)


def test_a_torn_first_line_names_no_file(made: Generated, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is killed as it begins a file, and started twice: the file is named by its first whole record."""
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 4000)
    made.work(20)
    made.journal._rotate(made.clock.now)
    os.close(made.journal._fd)
    (made.folder / CURRENT).write_bytes(b'{"time":1.0,"seq":99,"kind":"tran')
    for _ in range(2):
        made.journal = FileJournal(made.folder, made.clock, ISSUER, made.tokens.sign)
        made.records = Records(made.clock, made.journal, last_seq=made.journal.last_seq)
        made.start()
        made.work(3)
        made.journal.seal("asked")
    made.work(20)
    made.stop()
    assert check(made).torn == 1


def test_a_removed_file_is_missed_for_good(made: Generated, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the engine signs on, and is started again: only what it removed itself, or was told of, may lack."""
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 4000)
    made.work(200)
    segments(made.folder)[0].unlink()
    made.work(20)
    made.journal.seal("minute")
    again(made)
    made.journal.seal("minute")
    with pytest.raises(BadLine, match="files are missing"):
        check(made)
    made.journal.reopen()
    made.stop()
    assert check(made).first > 1


def test_a_sifted_file_is_signed(made: Generated, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else can take lines out and say that they made room."""
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 4000)
    monkeypatch.setattr(journal_module, "KEPT_BYTES", 40_000)
    made.work(600)
    made.stop()
    path = next(path for path in segments(made.folder) if path.read_bytes().startswith(b'{"seal":'))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[1:]))
    with pytest.raises(BadLine, match=r"no engine has signed|begins at|must be"):
        check(made)
    path.write_bytes(b"".join([lines[0], *lines[2:]]))
    with pytest.raises(BadLine, match="not what was signed"):
        check(made)


def test_heads_outlive_a_rotated_key(made: Generated) -> None:
    """The public key stays, and a head of before is still one; a stranger's is none."""
    sign_in(made)
    first = made.journal.seal("asked")
    stranger = Generated(made.folder.with_name("stranger") / "log", seed=5)
    made.tokens.use(stranger.tokens._key)
    remember_keys(made.keys_path, made.tokens.jwks())
    out(made)
    made.stop()
    keys = read_keys(made.keys_path.read_bytes())
    assert len(keys) == 2
    found = check_folder(made.folder, keys, first)
    assert (found.witnessed, found.sealed) == (2, found.last)
    stranger.start()
    other = stranger.journal.seal("asked")
    with pytest.raises(HeadRefused):
        check_folder(made.folder, made.keys, other)


def test_a_later_witness_sees_a_cut(made: Generated) -> None:
    """Though the heads that lie with the journal were cut with it."""
    sign_in(made)
    out(made)
    made.stop()
    *heads, last = heads_in(made.folder)
    (made.folder / HEADS).write_text("\n".join(heads))
    path = made.folder / CURRENT
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-2]))
    check(made)
    with pytest.raises(BadLine, match="its end is cut off"):
        check_folder(made.folder, made.keys, last)


def test_an_older_form_is_readable(made: Generated) -> None:
    """A journal without hashes is replayed as far as it tells; one of a later form is left to a later version."""
    made.stop()
    old = b'{"time":1.0,"seq":1,"kind":"transition","chart":"session","actor":"s","event":"start","source":"none",'
    old += b'"target":"active","effects":["issue_token"],"identity":null,"address":null,"request_id":null,"cause":null}'
    path = made.folder / CURRENT
    path.write_bytes(old + b"\n")
    found = Check().run([(path, path.open("rb"))])
    assert (found.records, found.sealed, found.steps["session"]) == (1, None, 1)
    path.write_bytes(old.replace(b'"active"', b'"ended"') + b"\n")
    with pytest.raises(BadLine, match="leads from"):
        Check().run([(path, path.open("rb"))])
    path.write_bytes(old[:-1] + b',"schema":4,"prev":"","hash":"AAAAAAAAAAAAAAAAAAAA"}\n')
    with pytest.raises(BadLine, match="later version"):
        Check().run([(path, path.open("rb"))])


def test_another_window_makes_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """As another row does: steps within a window of their version are not judged by that of this one."""
    digests = {charts_digest.__wrapped__()}
    delays = {**PAIRING.delays, "issued": Delay(45.0, "claim_elapsed")}
    monkeypatch.setitem(CHARTS, "pairing", replace(PAIRING, delays=delays))
    digests.add(charts_digest.__wrapped__())
    monkeypatch.setitem(CHARTS, "pairing", replace(PAIRING, rows=PAIRING.rows[:-2] + PAIRING.rows[-1:]))
    digests.add(charts_digest.__wrapped__())
    monkeypatch.setitem(RULES, "session_lifetime", (0.0, 1.0))
    digests.add(charts_digest.__wrapped__())
    assert len(digests) == 4


def test_other_charts_are_left_to_their_version(made: Generated) -> None:
    """Steps of an engine with other tables are counted, and not judged."""
    made.records.notice("engine", ISSUER, "stop")
    made.records.notice("engine", ISSUER, "start", saw=Saw(charts="0123456789ab"))
    made.records.transition("session", "x", "fly", "none", "flown", ())
    made.records.notice("engine", ISSUER, "stop")
    made.start()
    out(made, "x")
    made.stop()
    found = check(made)
    assert (found.skipped, found.unknown) == ({"0123456789ab": 1}, {"session": 1})


COUNT = int(100_000 * effort())

MEASURED = """
import json, resource, sys, time
from pathlib import Path
from hatchway.engine.journal.check import check_folder
from hatchway.engine.journal.heads import read_keys
home = Path(sys.argv[1])
keys = read_keys((home / "head-keys.json").read_bytes())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
began = time.process_time()
found = check_folder(home / "log", keys)
spent = time.process_time() - began
held = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
lines = [line for path in (home / "log").glob("events*.jsonl") for line in path.read_bytes().splitlines()]
assert len(lines) == found.records
began = time.process_time()
for line in lines:
    json.loads(line)
print(spent / (time.process_time() - began), held)
"""


@pytest.mark.bench
def test_a_year_is_checked_in_two_minutes(tmp_path: Path) -> None:
    """A record takes 2.2 times as long as Python's own parser of JSON at most: of ten million that is two minutes of a
    core, where that parser takes 5.5 us for one. The memory of a long journal is that of a short one."""
    ratios, held = [], []
    for number, count in enumerate((COUNT // 10, COUNT)):
        home = tmp_path / f"{number}"
        maker = [sys.executable, "-m", "tests.support.generated_journal", str(home), str(count)]
        subprocess.run(maker, cwd=ROOT, check=True)
        told = subprocess.run([sys.executable, "-c", MEASURED, str(home)], check=True, capture_output=True, text=True)
        ratio, memory = map(float, told.stdout.split())
        ratios.append(ratio)
        held.append(memory)
    assert min(ratios) < 2.2
    assert held[1] < held[0] + 64
