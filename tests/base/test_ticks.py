"""The ticks of trio's loop: what is left for the end of one runs behind all its tasks, and before the loop waits."""

import logging
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from hatchway.engine.base.ticks import loop_ticks


async def test_the_end_of_a_tick_comes_behind_all_its_tasks() -> None:
    """Ten tasks that are ready together leave something each: none of it is done before the last has had its turn."""
    done: list[str] = []
    go = trio.Event()

    async def leave(number: int) -> None:
        await go.wait()
        done.append("turn")
        loop_ticks().at_end(lambda: done.append("end"))

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(leave, number)
        await trio.testing.wait_all_tasks_blocked()
        go.set()
    assert done == ["turn"] * 10 + ["end"] * 10


async def test_the_loop_does_not_wait_before_it(autojump_clock: MockClock) -> None:
    """Nothing else is to happen for an hour: what was left is done now; so is what that leaves in its turn."""
    done: list[float] = []

    def again() -> None:
        done.append(trio.current_time())
        if len(done) < 3:
            loop_ticks().at_end(again)

    began = trio.current_time()
    loop_ticks().at_end(again)
    await trio.sleep(3600)
    assert done == [began] * 3


async def test_it_may_wake_a_task_by_the_token() -> None:
    """The way for whatever has more to do than it may at the end of a tick."""
    woken, token = trio.Event(), trio.lowlevel.current_trio_token()
    loop_ticks().at_end(lambda: token.run_sync_soon(woken.set))
    with trio.fail_after(5):
        await woken.wait()


async def test_an_error_keeps_no_other_from_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """It is a line in the log, and the ticks go on: also those after it."""
    done: list[int] = []

    def fail() -> None:
        raise ZeroDivisionError

    for number in range(2):
        loop_ticks().at_end(fail)
        loop_ticks().at_end(partial(done.append, number))
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        assert done == list(range(number + 1))
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2


def test_each_run_has_ticks_of_its_own() -> None:
    """One for all who ask in it, whose number grows by one a tick."""

    async def look() -> object:
        ticks, before = loop_ticks(), loop_ticks().number
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        assert loop_ticks() is ticks
        assert ticks.number == before + 2
        return ticks

    assert trio.run(look) is not trio.run(look)
