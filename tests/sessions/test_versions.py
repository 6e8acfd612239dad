"""The words of memory by which a worker knows that what it keeps still holds."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from hatchway.engine.runtime.records import Records
from hatchway.engine.sessions import versions
from hatchway.engine.sessions.versions import VersionCounters, VersionMark
from tests.support.fakes import SetClock


@pytest.fixture
def words() -> Iterator[VersionCounters]:
    """Memory that the test writes as the engine would."""
    fd = versions.create()
    yield VersionCounters(fd, write=True)
    os.close(fd)


def test_what_one_process_writes_the_other_sees() -> None:
    """A step ends what was marked before it, and nothing of other counters; the reader can't write."""
    fd = versions.create()
    looking = versions.readable(fd)
    writer, reader = VersionCounters(fd, write=True), VersionCounters(looking)
    writer.hold_until()
    marks = {name: reader.mark(name) for name in ("one", "two")}
    assert all(reader.holds(mark, 5.0) for mark in marks.values())
    writer.moved("one")
    assert [reader.holds(mark, 5.0) for mark in marks.values()] == [False, True]
    writer.moved_all()
    assert not reader.holds(marks["two"], 5.0)
    with pytest.raises(TypeError):
        reader.moved("one")
    with pytest.raises(PermissionError):
        VersionCounters(looking, write=True)
    os.close(fd)
    os.close(looking)


def test_nothing_is_kept_past_what_the_engine_has_heard(words: VersionCounters) -> None:
    """Where others write to the store too, a mark holds as long as the engine says; at first not at all."""
    mark = words.mark("one")
    assert not words.holds(mark, 0.0)
    words.hold_until(10.0)
    assert words.holds(mark, 9.9)
    assert not words.holds(mark, 10.0)
    assert not words.holds(mark, 1000.0)


def test_the_mark_of_a_session_is_one_of_many(words: VersionCounters) -> None:
    """Counters are spread: a thousand sessions share few."""
    assert len({words.mark(f"session {number}").counter for number in range(1000)}) > 950
    assert isinstance(words.mark("x"), VersionMark)


async def test_a_step_of_a_session_is_one_of_its_words(words: VersionCounters) -> None:
    """Taken from the records and told by other engines alike; refusals and other charts' steps end nothing."""
    words.hold_until()
    records = Records(SetClock(), words.take)
    mark = words.mark("one")
    records.refusal("session", "one", "renew", "ended")
    records.transition("pairing", "one", "claim", "issued", "claimed", ())
    words.take_moved("instance", "one")
    assert words.holds(mark, 5.0)
    records.transition("session", "one", "renew", "active", "active", ())
    assert not words.holds(mark, 5.0)
    mark = words.mark("one")
    words.take_moved("session", "one")
    assert not words.holds(mark, 5.0)


@pytest.mark.parametrize(("name", "counter"), [("66143", 0), ("16236", 1), ("9720", versions.COUNTERS - 1)])
def test_no_word_is_in_another_s_place(words: VersionCounters, name: str, counter: int) -> None:
    """The first counters and the last are apart from the two words that stand for all sessions."""
    words.hold_until(10.0)
    assert words.mark(name) == VersionMark(counter, 0, 0)
    words.moved(name)
    assert words.mark(name) == VersionMark(counter, 1, 0)
    words.moved_all()
    assert words.mark(name) == VersionMark(counter, 1, 1)
    assert words.holds(words.mark(name), 9.9)
    assert not words.holds(words.mark(name), 10.0)


def test_the_memory_is_as_large_as_its_words_and_goes_to_no_program() -> None:
    """Half a MiB; a program that is started gets no descriptor of it unless it is handed one."""
    written = versions.create()
    looking = versions.readable(written)
    assert os.fstat(looking).st_size == 8 * (2 + versions.COUNTERS)
    assert not os.get_inheritable(written)
    assert not os.get_inheritable(looking)
    os.close(written)
    os.close(looking)
