"""Whoever changes the journal is caught: ten kinds of tampering, a thousand each, at random places.

What is not caught stands in the handbook's table of what is outside, and here as such.
"""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from hatchway.engine.journal import journal as journal_module
from hatchway.engine.journal.check import Check
from hatchway.engine.journal.files import HASH_CHARS, TAIL, chain, segments
from hatchway.engine.journal.findings import BadLine, Findings
from hatchway.engine.journal.heads import Keys, heads_in
from tests.support.generated_journal import Generated, kept_whole

TIMES = 1000


class Copy:
    """A journal's files in memory, to be spoilt: lines of each file, with the heads that lie beside it."""

    def __init__(self, files: list[list[bytes]], heads: list[str], keys: Keys) -> None:
        self.files, self.heads, self.keys = files, heads, keys

    def copy(self) -> Copy:
        return Copy([list(lines) for lines in self.files], list(self.heads), self.keys)

    def check(self, witness: str | None = None) -> Findings:
        """Raises BadLine."""
        files = [(Path(f"{number}"), io.BytesIO(b"".join(lines))) for number, lines in enumerate(self.files)]
        return Check(self.heads, witness, self.keys).run(files)

    def places(self) -> list[tuple[int, int]]:
        return [(file, line) for file, lines in enumerate(self.files) for line in range(len(lines))]


def made(folder: Path, *, seed: int, stopped: bool = True) -> Copy:
    """A journal of some dozens of records in several files; an engine that still runs has a tail without head."""
    patch = pytest.MonkeyPatch()
    patch.setattr(journal_module, "SEGMENT_BYTES", 9000)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    generated = Generated(folder / "log", seed=seed)
    generated.start()
    generated.work(90)
    if stopped:
        generated.stop()
    patch.undo()
    structlog.reset_defaults()
    files = [path.read_bytes().splitlines(keepends=True) for path in segments(folder / "log")]
    assert len(files) > 2
    return Copy(files, heads_in(folder / "log"), generated.keys)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    for _ in kept_whole():
        yield made(tmp_path_factory.mktemp("tampering"), seed=1)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    """Another engine's."""
    for _ in kept_whole():
        yield made(tmp_path_factory.mktemp("other"), seed=2)


Tamper = Callable[[Copy, random.Random], None]


def drop(copy: Copy, dice: random.Random) -> None:
    file, line = dice.choice(copy.places())
    del copy.files[file][line]


def double(copy: Copy, dice: random.Random) -> None:
    file, line = dice.choice(copy.places())
    copy.files[file].insert(line, copy.files[file][line])


def swap(copy: Copy, dice: random.Random) -> None:
    (file, line), (there, other_line) = dice.sample(copy.places(), 2)
    one, two = copy.files[file][line], copy.files[there][other_line]
    copy.files[file][line], copy.files[there][other_line] = two, one


def replace(pattern: bytes, values: Callable[[random.Random], bytes]) -> Tamper:
    """Change the field of that pattern, in a random line that has it."""

    def change(copy: Copy, dice: random.Random) -> None:
        places = [(f, n) for f, n in copy.places() if re.search(pattern, copy.files[f][n])]
        file, line = dice.choice(places)
        before = copy.files[file][line]
        while copy.files[file][line] == before:
            copy.files[file][line] = re.sub(pattern, lambda _: values(dice), before, count=1)

    return change


target = replace(rb'"target":"[a-z]+"', lambda dice: b'"target":"%b"' % dice.choice((b"active", b"ended", b"approved")))
guard_input = replace(
    rb'"(deadline|at)":[0-9.]+|"proof":"[a-z]+"',
    lambda dice: dice.choice((b'"deadline":%d' % dice.randrange(2**31), b'"proof":"approval"', b'"proof":"signature"')),
)
identity = replace(rb'"identity":"[^"]+"', lambda dice: b'"identity":"SHA256:%d"' % dice.randrange(10**6))
address_or_time = replace(
    rb'"address":"[^"]+"|^\{"time":[0-9.]+',
    lambda dice: dice.choice((b'"address":"10.0.0.%d"' % dice.randrange(256), b'{"time":%d.5' % dice.randrange(2**31))),
)


def cut(copy: Copy, dice: random.Random) -> None:
    file, line = dice.choice(copy.places())
    if dice.random() < 0.3:
        copy.files[file][line] = copy.files[file][line][: dice.randrange(1, 20)]
        line += 1
    del copy.files[file][line:]
    del copy.files[file + 1 :]


def forge(copy: Copy, dice: random.Random) -> None:
    """A line changed, and all hashes from there on made anew: everything but the signatures."""
    file, line = dice.choice(copy.places())
    text = copy.files[file][line]
    copy.files[file][line] = re.sub(rb'"request_id":[^,]+', b'"request_id":"forged-%d"' % dice.randrange(10**6), text)
    rehash(copy, file, line)


def rehash(copy: Copy, file: int, line: int) -> None:
    prev = hash_before(copy, file, line)
    for where, number in [place for place in copy.places() if place >= (file, line)]:
        text = copy.files[where][number].rstrip(b"\n")[:-TAIL]
        text = re.sub(rb'"prev":"[^"]*"', b'"prev":"%b"' % prev.encode(), text)
        prev = chain(prev, text)
        copy.files[where][number] = b'%b,"hash":"%b"}\n' % (text, prev.encode())


def hash_before(copy: Copy, file: int, line: int) -> str:
    places = [place for place in copy.places() if place < (file, line)]
    if not places:
        return ""
    where, number = places[-1]
    return copy.files[where][number][-HASH_CHARS - 3 : -3].decode()


KINDS = {
    "dropped": drop,
    "doubled": double,
    "swapped": swap,
    "target": target,
    "guard's input": guard_input,
    "identity": identity,
    "address or time": address_or_time,
    "tail cut": cut,
    "forged": forge,
}


def test_the_journal_checks(journal: Copy) -> None:
    """Untouched it is in order, up to its last record under a head."""
    found = journal.check()
    assert found.sealed == found.last == found.records
    assert found.unsealed == 0
    assert journal.check(journal.heads[0]).witnessed


@pytest.mark.parametrize("kind", KINDS)
def test_tampering_is_caught(journal: Copy, kind: str) -> None:
    """Each of a thousand, wherever it was done."""
    dice = random.Random(kind)
    for _ in range(TIMES):
        spoilt = journal.copy()
        KINDS[kind](spoilt, dice)
        if spoilt.files == journal.files:
            continue  # the end was cut at the end
        with pytest.raises(BadLine):
            spoilt.check()


def test_an_exchanged_file_is_caught(journal: Copy, other: Copy) -> None:
    """Another engine's in its place, an older state of itself, one left out, or two in each other's place."""
    dice = random.Random(0)
    for _ in range(TIMES):
        spoilt = journal.copy()
        number = dice.randrange(len(spoilt.files))
        match dice.randrange(4):
            case 0:
                spoilt.files[number] = list(dice.choice(other.files))
            case 1:
                spoilt.files[number] = spoilt.files[number][: dice.randrange(len(spoilt.files[number]))]
            case 2:
                del spoilt.files[number]
            case 3:
                there = (number + 1) % len(spoilt.files)
                spoilt.files[number], spoilt.files[there] = spoilt.files[there], spoilt.files[number]
        with pytest.raises(BadLine):
            spoilt.check()


def test_another_engines_whole_journal_is_caught(journal: Copy, other: Copy) -> None:
    """Its heads are signed by another key, and so cover nothing here."""
    spoilt = Copy(other.files, other.heads, journal.keys)
    with pytest.raises(BadLine, match=r"no line has a hash|no head"):
        spoilt.check()


def test_heads_that_are_taken_away_are_missed(journal: Copy) -> None:
    """Whoever rewrites the journal and removes the heads leaves minutes that nobody has signed."""
    spoilt = journal.copy()
    forge(spoilt, random.Random(1))
    spoilt.heads = []
    with pytest.raises(BadLine, match="heads were taken away"):
        spoilt.check()


def test_after_the_last_head_only_a_witness_helps(tmp_path: Path) -> None:
    """Outside: what came after the last head can be cut or forged, by at most as much as a minute holds. Who has kept a
    later head sees it."""
    for _ in kept_whole():
        whole = made(tmp_path, seed=3, stopped=False)
        found = whole.check()
        assert 0 < found.unsealed < 60
        cut_off = whole.copy()
        del cut_off.files[-1][-1]
        assert cut_off.check().last == found.last - 1
        forged = whole.copy()
        forged.files[-1][-1] = forged.files[-1][-1].replace(b"192.0.2.", b"192.0.9.")
        rehash(forged, len(forged.files) - 1, len(forged.files[-1]) - 1)
        forged.check()
        for kept in whole.heads:
            assert whole.check(kept).witnessed
