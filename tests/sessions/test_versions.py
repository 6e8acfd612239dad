"""The counters of memory by which a worker knows that what it keeps still holds."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from hatchway.engine.runtime.records import Records
from hatchway.engine.sessions import versions
from hatchway.engine.sessions.versions import VersionCounters, VersionSnapshot
from tests.support.fakes import SetClock


@pytest.fixture
def counters() -> Iterator[VersionCounters]:
    """Memory that the test writes as the engine would."""
    fd = versions.create()
    yield VersionCounters(fd, write=True)
    os.close(fd)


def test_what_one_process_writes_the_other_sees() -> None:
    """A step ends what was marked before it, and nothing of other counters; the reader can't write."""
    fd = versions.create()
    looking = versions.readable(fd)
    writer, reader = VersionCounters(fd, write=True), VersionCounters(looking)
    writer.extend_validity()
    snapshots = {name: reader.snapshot(name) for name in ("one", "two")}
    assert all(reader.is_current(snapshot, 5.0) for snapshot in snapshots.values())
    writer.invalidate("one")
    assert [reader.is_current(snapshot, 5.0) for snapshot in snapshots.values()] == [False, True]
    writer.invalidate_all()
    assert not reader.is_current(snapshots["two"], 5.0)
    with pytest.raises(TypeError):
        reader.invalidate("one")
    with pytest.raises(PermissionError):
        VersionCounters(looking, write=True)
    os.close(fd)
    os.close(looking)


def test_nothing_is_kept_past_what_the_engine_has_heard(counters: VersionCounters) -> None:
    """Where others write to the store too, a snapshot holds as long as the engine says; at first not at all."""
    snapshot = counters.snapshot("one")
    assert not counters.is_current(snapshot, 0.0)
    counters.extend_validity(10.0)
    assert counters.is_current(snapshot, 9.9)
    assert not counters.is_current(snapshot, 10.0)
    assert not counters.is_current(snapshot, 1000.0)


def test_the_counter_of_a_session_is_one_of_many(counters: VersionCounters) -> None:
    """Counters are spread: a thousand sessions share few."""
    assert len({counters.snapshot(f"session {number}").counter for number in range(1000)}) > 950
    assert isinstance(counters.snapshot("x"), VersionSnapshot)


async def test_a_step_of_a_session_moves_its_counter(counters: VersionCounters) -> None:
    """Taken from the records and told by other engines alike; refusals and other charts' steps end nothing."""
    counters.extend_validity()
    records = Records(SetClock(), counters.observe)
    snapshot = counters.snapshot("one")
    records.refusal("session", "one", "renew", "ended")
    records.transition("pairing", "one", "claim", "issued", "claimed", ())
    counters.observe_move("instance", "one")
    assert counters.is_current(snapshot, 5.0)
    records.transition("session", "one", "renew", "active", "active", ())
    assert not counters.is_current(snapshot, 5.0)
    snapshot = counters.snapshot("one")
    counters.observe_move("session", "one")
    assert not counters.is_current(snapshot, 5.0)


@pytest.mark.parametrize(("name", "counter"), [("66143", 0), ("16236", 1), ("9720", versions.COUNTERS - 1)])
def test_no_counter_is_in_another_s_place(counters: VersionCounters, name: str, counter: int) -> None:
    """The first counters and the last are apart from the two counters that stand for all sessions."""
    counters.extend_validity(10.0)
    assert counters.snapshot(name) == VersionSnapshot(counter, 0, 0)
    counters.invalidate(name)
    assert counters.snapshot(name) == VersionSnapshot(counter, 1, 0)
    counters.invalidate_all()
    assert counters.snapshot(name) == VersionSnapshot(counter, 1, 1)
    assert counters.is_current(counters.snapshot(name), 9.9)
    assert not counters.is_current(counters.snapshot(name), 10.0)


def test_the_memory_is_as_large_as_its_words_and_goes_to_no_program() -> None:
    """Half a MiB; a program that is started gets no descriptor of it unless it is handed one."""
    written = versions.create()
    looking = versions.readable(written)
    assert os.fstat(looking).st_size == 8 * (2 + versions.COUNTERS)
    assert not os.get_inheritable(written)
    assert not os.get_inheritable(looking)
    os.close(written)
    os.close(looking)
