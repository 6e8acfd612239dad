"""Timers: one heap, one task; early, late, re-armed, jumped."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from trio.testing import MockClock

from hatchway.engine.base.clock import TrioClock
from hatchway.engine.runtime.timers import BATCH, Timers


class Item:
    """What is armed here: a name, and the heap's number."""

    def __init__(self, name: str) -> None:
        self.name, self.timer = name, 0


class Fired(list[tuple[str, float]]):
    """Names as they fire, with the time."""

    async def fire(self, item: Item) -> None:
        self.append((item.name, trio.current_time()))


@pytest.fixture
def fired() -> Fired:
    return Fired()


async def test_each_fires_on_its_second(autojump_clock: MockClock, nursery: trio.Nursery, fired: Fired) -> None:
    """Whatever the order of arming, each timer fires at its own deadline."""
    timers = Timers(TrioClock(), fired.fire)
    start = trio.current_time()
    nursery.start_soon(timers.run)
    for name, after in (("c", 30.0), ("a", 1.5), ("b", 2.0)):
        timers.arm(Item(name), start + after)
    await trio.sleep(40)
    assert fired == [("a", start + 1.5), ("b", start + 2.0), ("c", start + 30.0)]


async def test_an_earlier_one_wakes_the_sleeper(autojump_clock: MockClock, nursery: trio.Nursery, fired: Fired) -> None:
    """A timer armed while the task sleeps for a later one is not late."""
    timers = Timers(TrioClock(), fired.fire)
    nursery.start_soon(timers.run)
    timers.arm(Item("late"), trio.current_time() + 100)
    await trio.sleep(0.1)
    due = trio.current_time() + 0.25
    timers.arm(Item("early"), due)
    await trio.sleep(1)
    assert fired == [("early", due)]


async def test_disarmed_and_rearmed(autojump_clock: MockClock, nursery: trio.Nursery, fired: Fired) -> None:
    """A disarmed timer never fires, a re-armed one fires once, at its new deadline."""
    timers = Timers(TrioClock(), fired.fire)
    nursery.start_soon(timers.run)
    start = trio.current_time()
    gone, moved = Item("gone"), Item("moved")
    timers.arm(gone, start + 1)
    timers.arm(moved, start + 1)
    timers.disarm(gone)
    timers.disarm(gone)  # which changes nothing
    timers.disarm(Item("never armed"))
    timers.arm(moved, start + 5)
    assert len(timers) == 1
    await trio.sleep(10)
    assert fired == [("moved", start + 5)]
    timers.disarm(moved)  # it has fired
    assert len(timers) == 0
    timers.arm(moved, start + 99)
    assert len(timers) == 1


async def test_a_jump_of_the_wall_clock_is_seen_within_a_tick(
    autojump_clock: MockClock, nursery: trio.Nursery, fired: Fired, clock: TrioClock
) -> None:
    """A wall deadline passed by a clock set forward fires at the next look; elapsed ones are not moved."""
    timers = Timers(clock, fired.fire)
    nursery.start_soon(timers.run)
    timers.arm(Item("session"), clock.wall() + 3600, "wall")
    timers.arm(Item("window"), clock.elapsed() + 30)
    await trio.sleep(1)
    clock.skew = 7200
    await trio.sleep(clock.tick)
    assert [name for name, _ in fired] == ["session"]


async def test_many_at_once(autojump_clock: MockClock, nursery: trio.Nursery, fired: Fired) -> None:
    """More than a batch due at one moment all fire, and others get their turn between the batches."""
    timers = Timers(TrioClock(), fired.fire)
    nursery.start_soon(timers.run)
    for number in range(BATCH * 5 + 3):
        timers.arm(Item(str(number)), trio.current_time() + 1)
    await trio.sleep(2)
    assert len(fired) == BATCH * 5 + 3


async def test_stale_entries_do_not_pile_up(fired: Fired) -> None:
    """A timer renewed for ever takes no more room than its neighbours do, nor do those that never fired."""
    timers = Timers(TrioClock(), fired.fire)
    item = Item("renewed")
    for _ in range(10_000):
        timers.arm(item, trio.current_time() + 60)
    assert len(timers) == 1
    assert len(timers.snapshot("elapsed").entries) < 2_100
    ended = [Item("ended") for _ in range(10_000)]
    for one in ended:
        timers.arm(one, trio.current_time() + 60)
    for one in ended:
        timers.disarm(one)
    assert len(timers.snapshot("elapsed").entries) < 2_100


async def test_lateness_is_told(autojump_clock: MockClock, nursery: trio.Nursery, fired: Fired) -> None:
    """Whoever observes hears how late each one was."""
    late: list[float] = []
    timers = Timers(TrioClock(), fired.fire, late.append)
    timers.arm(Item("overdue"), trio.current_time() - 3)
    nursery.start_soon(partial(timers.run))
    await trio.sleep(0.1)
    assert late == [3.0]
