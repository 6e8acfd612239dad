"""Authorized keys by the thousand: work by what changed and by what is used, never by how many there are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatchway.engine.base.permissions import FIVE
from hatchway.engine.keys import key_index, key_lines, weak_keys
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.keys.key_index import KeyIndex
from hatchway.engine.keys.key_lines import known_lines
from tests.support.authorized_keys import LINE, A, keys, put
from tests.support.fakes import key
from tests.support.key_data import line_of
from tests.support.timing import kept

__all__ = ["keys"]

MANY = 5000
"""Past the 4,096 places that a memory of judged keys once had."""


@cache
def lines() -> list[bytes]:
    """Keys that are nobody's, all of 2048 bits."""
    return [line_of(number).encode() for number in range(MANY)]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The lines that were read since the test began."""
    seen: list[bytes] = []
    real = key_lines.read_line

    def noted(raw: bytes, number: int) -> key_lines.KeyLine:
        seen.append(raw)
        return real(raw, number)

    monkeypatch.setattr(key_index, "read_line", noted)
    return seen


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The moduli that were looked at for weak kinds."""
    seen: list[int] = []
    real = weak_keys.weakness

    def noted(n: int, e: int) -> str | None:
        seen.append(n)
        return real(n, e)

    monkeypatch.setattr(weak_keys, "weakness", noted)
    return seen


def whole(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


EDITS: list[tuple[str, Callable[[list[bytes]], list[bytes]], int]] = [
    ("a remark at the end", lambda lines: [*lines, b"# a remark"], 1),
    ("a remark at the top", lambda lines: [b"# a remark", *lines], 1),
    ("a remark here and there", lambda lines: [b"# a", *lines[:99], b"# b", *lines[99:], b"# c"], 3),
    ("a key added", lambda lines: [*lines[:2000], line_of(-1).encode(), *lines[2000:]], 1),
    ("a key removed", lambda lines: [*lines[:2000], *lines[2001:]], 1),
    ("a permission changed", lambda lines: [*lines[:9], b'permissions="SHELL" ' + lines[9], *lines[10:]], 2),
    ("everything sorted", sorted, 0),
]


@pytest.mark.parametrize(("edit", "most"), [edit[1:] for edit in EDITS], ids=[edit[0] for edit in EDITS])
def test_an_edit_costs_what_it_changes(
    keys: AuthorizedKeys, read: list[bytes], judged: list[int], edit: Callable[[list[bytes]], list[bytes]], most: int
) -> None:
    """Of five thousand lines those are read that changed, and no key is looked at that nobody uses."""
    put(keys, whole(lines()))
    assert keys.version() == 1
    assert len(read) == MANY
    read.clear()
    put(keys, whole(edit(lines())))
    assert keys.version() == 2
    assert len(read) <= most
    assert judged == []
    assert len(keys.of_length(256)) == len([line for line in edit(lines()) if b"ssh-rsa" in line])


def test_a_key_is_looked_at_once_when_it_is_used(keys: AuthorizedKeys, judged: list[int]) -> None:
    """The one that signs in, whoever else is in the file; and an edit of other lines brings no second look."""
    put(keys, whole([*lines(), LINE.encode()]))
    for _ in range(3):
        assert keys.find(A.identity) is not None
    assert judged == [A.rsa.public_numbers().n]
    put(keys, whole([*lines(), LINE.encode(), b"# a remark"]))
    assert keys.find(A.identity) is not None
    assert len(judged) == 1


def test_a_weak_key_is_found_out_when_it_is_used(keys: AuthorizedKeys) -> None:
    """One whose modulus has a small factor stands among the candidates, and grants nothing."""
    weak = next(line for line in lines()[:50] if _is_weak(line))
    put(keys, whole([weak, *lines()[50:60]]))
    (line, *_) = known_lines(weak)
    assert line.key is not None
    assert keys.candidate(line.key.identity) is not None
    assert keys.find(line.key.identity) is None
    assert keys.faults()[0].line == 1


def _is_weak(line: bytes) -> bool:
    (read,) = known_lines(line)
    return read.key is not None and read.key.weakness() is not None


def test_registering_looks_at_no_other_key(
    keys: AuthorizedKeys, judged: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even at its line; unregistering, which may go by a comment, reads the lines, and judges no key."""
    put(keys, whole(lines()))
    with monkeypatch.context() as patch:
        patch.setattr(key_lines, "read_line", None)
        keys.register(key().public, FIVE)
    keys.register(key().public, FIVE)
    keys.unregister(key().identity)
    assert keys.path.read_bytes() == whole(lines())
    assert judged == []


def test_a_remark_holds_nobody_up(keys: AuthorizedKeys) -> None:
    """The look that finds the changed file, 2 MB of it, takes 20 ms at most."""
    put(keys, whole(lines()))
    keys.check()
    remarks: Iterator[int] = iter(range(100))

    def look() -> float:
        with keys.path.open("ab") as file:
            file.write(b"# remark %d\n" % next(remarks))
        before = time.perf_counter()
        keys.check()
        return time.perf_counter() - before

    kept(0.02, look)


ONE, TWO, THREE = (line.partition(b" user")[0] for line in (line_of(number).encode() for number in range(3)))
CHOICE = st.sampled_from(
    [
        ONE,
        TWO,
        THREE,
        b'permissions="SHELL" ' + ONE,
        b'permissions="AGENT"\t' + ONE + b" again",
        b'command="x" ' + ONE,
        b"\xef\xbb\xbf" + TWO,
        b'command="x" ' + TWO,
        THREE[:-9],
        b"# a remark",
        b"",
        b"\xff",
        b"ssh-rsa " + ONE[8:] + b"=",
    ]
)
CONTENT = st.builds(
    lambda lines, end: b"\n".join(lines) + end, st.lists(CHOICE, max_size=12), st.sampled_from([b"\n", b"", b"\r\n"])
)


@given(st.lists(CONTENT, max_size=6), st.sampled_from([0, 1, 100]))
def test_whatever_is_edited_the_keys_are_those_of_the_file(contents: list[bytes], searched: int) -> None:
    """Content after content, the index is as if each had been read whole: lines added, gone, moved, repeated, torn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_index, "SEARCHED", searched)
        _edit(contents)


def _edit(contents: list[bytes]) -> None:
    index, before = KeyIndex(), b""
    for content in contents:
        index.update(before, content)
        before = content
        lines = [line for line in known_lines(content) if line.entry]
        held = {name: (entry.permissions, entry.comment) for name, entry in index.entries.items()}
        assert held == {
            line.entry.identity: (line.entry.permissions, line.entry.comment) for line in lines if line.entry
        }
        assert {entry.identity for entry in index.of_length(256)} == held.keys()
