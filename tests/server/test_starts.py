"""One request begins in a tick of the event loop, and each address in its turn."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from hatchway.api.server.starts import Starts
from hatchway.engine.base.ticks import loop_ticks


async def test_one_begins_in_a_tick_and_all_in_the_end() -> None:
    """Whoever comes begins at once while there is room; of many at once none waits for ever."""
    starts, begun = Starts(loop_ticks()), list[int]()

    async def begin(number: int) -> None:
        await starts.turn("one")
        begun.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(begin, number)
        await trio.lowlevel.checkpoint()
        assert len(begun) <= 1
    assert sorted(begun) == list(range(6))


async def test_addresses_take_turns(autojump_clock: MockClock) -> None:
    """A thousand requests of one address hold another's up by a tick or two."""
    starts, begun = Starts(loop_ticks()), list[str]()

    async def begin(address: str) -> None:
        await starts.turn(address)
        begun.append(address)

    async with trio.open_nursery() as nursery:
        for _ in range(1000):
            nursery.start_soon(begin, "greedy")
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        nursery.start_soon(begin, "other")
    assert begun.index("other") < 6
    assert len(begun) == 1001


async def test_who_leaves_takes_no_turn(autojump_clock: MockClock) -> None:
    """A client that goes while it waits is forgotten, and the next one gets its turn."""
    starts, begun = Starts(loop_ticks()), list[str]()
    await starts.turn("first")
    with trio.move_on_after(0):
        await starts.turn("gone")
    await starts.turn("next")
    begun.append("next")
    assert begun == ["next"]
    assert not starts._waiting


@pytest.mark.parametrize("times", [1, 50])
async def test_what_comes_one_by_one_never_waits(times: int) -> None:
    """A server that is not busy keeps nobody back."""
    starts = Starts(loop_ticks())
    for _ in range(times):
        with trio.testing.assert_no_checkpoints():
            await starts.turn("one")
        await trio.testing.wait_all_tasks_blocked()
