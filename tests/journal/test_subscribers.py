"""Following the journal: nothing missed, nothing twice, and the slow let go without harm to anybody."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest
import trio

from hatchway.engine.journal.journal import RECENT, FileJournal
from hatchway.engine.journal.subscribers import TOLD_AT_ONCE, SubscriberDropped
from tests.support.journals import Host, folder

__all__ = ["folder"]


async def take(journal: FileJournal, after: int, count: int) -> list[int]:
    """The numbers that a subscriber gets, until it has `count` of them."""
    found: list[int] = []
    with journal.subscribe(after) as subscriber:
        while len(found) < count:
            found += [line.seq for line in await subscriber.read()]
    return found


async def test_subscribers_get_the_old_and_the_new(
    folder: Path, autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    """A subscriber that comes back with its last number misses nothing and gets nothing twice, restart or not."""
    host = Host(folder)
    host.tell(3000)
    host = host.again()
    nursery.start_soon(host.journal.run)
    found: list[int] = []

    async def follow() -> None:
        found.extend(await take(host.journal, 10, 3990))

    async with trio.open_nursery() as following:
        following.start_soon(follow)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(100):
            host.tell(10)
            await trio.sleep(0.01)
    assert found == list(range(11, 4001))
    assert len(host.journal.subscribers) == 0


async def test_a_subscriber_without_news_is_asked_twice_a_second(
    folder: Path, autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    """Twice a second it may say that it has something to do: then it reads nothing. News come a moment after."""
    host, asked = Host(folder), list[float]()
    nursery.start_soon(host.journal.run)
    started = trio.current_time()

    def look() -> bool:
        asked.append(trio.current_time() - started)
        return len(asked) % 2 == 0

    with host.journal.subscribe(0, look) as subscriber:
        assert await subscriber.read() == []
        assert asked == pytest.approx([0.5, 1])
        nursery.start_soon(tell_later, host)
        assert [line.seq for line in await subscriber.read()] == [1]
        assert trio.current_time() - started == pytest.approx(1.1, abs=0.05)


async def tell_later(host: Host) -> None:
    await trio.sleep(0.1)
    host.tell()


async def test_many_subscribers_hold_nobody_up(folder: Path, nursery: trio.Nursery) -> None:
    """However many are told of one record, no tick of the event loop serves more than a few of them."""
    host, served, most = Host(folder), 0, 0
    nursery.start_soon(host.journal.run)

    async def follow() -> None:
        nonlocal served
        await take(host.journal, 0, 1)
        served += 1

    async with trio.open_nursery() as following:
        for _ in range(200):
            following.start_soon(follow)
        await trio.testing.wait_all_tasks_blocked()
        host.tell()
        while following.child_tasks:
            before = served
            await trio.lowlevel.checkpoint()
            most = max(most, served - before)
    assert served == 200
    assert most <= 2 * TOLD_AT_ONCE


async def test_a_slow_subscriber_is_dropped_alone(folder: Path) -> None:
    """Who falls too far behind is let go; the others, and memory, don't notice. It may come back and miss nothing."""
    host = Host(folder)
    host.tell()
    with host.journal.subscribe(0) as slow, host.journal.subscribe(0) as quick:
        for subscriber in (slow, quick):
            assert [line.seq for line in await subscriber.read()] == [1]
        for _ in range(12):
            host.tell(RECENT // 4)
            assert len(await quick.read()) == RECENT // 4
        with pytest.raises(SubscriberDropped):
            await slow.read()
    assert len(host.journal.subscribers) == 0
    assert await take(host.journal, 1, 3 * RECENT) == list(range(2, 3 * RECENT + 2))


async def test_a_slow_reader_of_old_files_is_not_dropped(folder: Path) -> None:
    """While it reads what lies in the files, a subscriber may take its time, whatever happens meanwhile."""
    host = Host(folder)
    host.tell(RECENT)
    host = host.again()
    found: list[int] = []
    with host.journal.subscribe(0) as subscriber:
        while len(found) < 4 * RECENT:
            if host.journal.last_seq < 4 * RECENT:
                host.tell(RECENT // 2)
            found += [line.seq for line in await subscriber.read()]
    assert found == list(range(1, 4 * RECENT + 1))


async def test_memory_is_bounded(folder: Path) -> None:
    """However many records there were, a bounded number of lines is kept."""
    host = Host(folder)
    host.tell(2 * RECENT)
    tracemalloc.start()
    host.tell(4 * RECENT)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 6_000_000


async def test_a_subscriber_reads_past_what_the_disk_did_not_take(folder: Path) -> None:
    """Records that never reached the file are a hole in what is replayed, not an endless wait."""
    host = Host(folder)
    host.tell(2)
    fd = os.open("/dev/full", os.O_WRONLY)
    os.dup2(fd, host.journal._fd)
    host.tell(2)
    host.journal.reopen()
    host.tell(2)
    host.journal._recent.clear()
    host.tell(1)
    assert await take(host.journal, 0, 5) == [1, 2, 5, 6, 7]
