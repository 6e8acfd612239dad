"""The lock of one actor, in every order of those who want it: explorations of services need not try all of those."""

from __future__ import annotations

import pytest
import trio

from hatchway.api.testing.explorer import explore
from hatchway.engine.runtime import ActorLocks


@pytest.mark.parametrize(("tasks", "leaves"), [(2, True), (3, True), (4, False)])
def test_one_at_a_time_in_the_order_they_came(tasks: int, leaves: bool) -> None:
    """Whoever comes has the lock alone, in the order of coming, also where one of them is cancelled at any moment; in
    the end nobody holds it, and nothing is kept of it."""

    async def world() -> None:
        locks, scope = ActorLocks(), trio.CancelScope()
        came: list[int] = []
        had: list[int] = []
        inside: list[int] = []
        gone: list[int] = []

        async def take(number: int) -> None:
            with scope if number == 0 else trio.CancelScope():
                came.append(number)
                try:
                    await locks.acquire("actor")
                except trio.Cancelled:
                    gone.append(number)
                    raise
                assert not inside
                inside.append(number)
                had.append(number)
                try:
                    await trio.lowlevel.checkpoint()
                finally:
                    inside.remove(number)
                    locks.release("actor")

        async def leave() -> None:
            scope.cancel()

        async with trio.open_nursery() as nursery:
            for number in range(tasks):
                nursery.start_soon(take, number, name=f"take {number}")
            if leaves:
                nursery.start_soon(leave)
        assert had == [number for number in came if number not in gone]
        assert len(locks) == 0

    explored = explore(world)
    assert explored.orders > tasks
