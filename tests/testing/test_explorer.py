"""The explorer: planted races are found and told so that they happen again, whole worlds are followed to their end."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import trio

from hatchway.api.testing import trio_inside
from hatchway.api.testing.explorer import Deadlock, Endless, OrderMisfit, World, explore, replay
from hatchway.api.testing.run_states import StateTooLarge
from tests.readme import CHAPTERS
from tests.support.planted_races import RACES, WHOLE, Main, checkpoint, websocket_writer
from tests.testing.test_pytest_plugin import run


@pytest.mark.parametrize("world", [*RACES, websocket_writer], ids=lambda world: world.__name__)
def test_a_planted_race_is_found(world: Main) -> None:
    """And the order that is told, run by itself, fails again in the same way."""
    with pytest.raises((AssertionError, Deadlock, BaseExceptionGroup)) as found:
        explore(world, runs=10_000)
    again = re.search(r"replay\(world, '([^']*)'\)", "\n".join(found.value.__notes__))
    assert again is not None
    with pytest.raises((AssertionError, Deadlock, BaseExceptionGroup)) as repeated:
        replay(world, again[1])
    assert type(repeated.value) is type(found.value)
    assert len(again[1].split()) <= 8


@pytest.mark.parametrize("world", WHOLE, ids=lambda world: world.__name__)
def test_a_whole_world_is_followed_to_its_end(world: Main) -> None:
    """No order of it fails, and it is said that all were followed."""
    explored = explore(world, runs=10_000)
    assert explored.complete
    assert str(explored).startswith(f"all of {explored.orders} orders")


@pytest.mark.parametrize(("tasks", "steps"), [(2, 1), (2, 2), (3, 1), (3, 2)])
def test_every_order_is_one(tasks: int, steps: int) -> None:
    """Of tasks that note each of their steps every interleaving comes up, and no other; their number is told."""
    seen: set[str] = set()

    async def world() -> None:
        told: list[str] = []

        async def step(name: str) -> None:
            for _ in range(steps):
                told.append(name)
                await checkpoint()

        async with trio.open_nursery() as nursery:
            for number in range(tasks):
                nursery.start_soon(step, str(number), name=str(number))
        seen.add("".join(told))

    explored = explore(world, runs=10_000)
    letters = "".join(str(number) * steps for number in range(tasks))
    assert seen == {"".join(order) for order in itertools.permutations(letters)}
    assert explored.orders >= len(seen)


def test_the_clock_may_jump_while_tasks_could_run() -> None:
    """A timeout strikes at any await of what it is for."""
    struck: set[int] = set()

    async def world() -> None:
        done = 0
        with trio.move_on_after(1):
            for _ in range(3):
                done += 1
                await checkpoint()
        struck.add(done)

    assert explore(world).complete
    assert struck == {1, 2, 3}


def test_half_done_expressions_are_part_of_the_state() -> None:
    """A value that only an expression holds tells two states apart: nothing is taken for seen before."""
    ends: set[int] = set()

    async def world() -> None:
        numbers = [0]

        async def one() -> int:
            await checkpoint()
            return 1

        async def add() -> None:
            numbers[0] = numbers[0] + await one()

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(add)
        ends.add(numbers[0])

    assert explore(world).complete
    assert ends == {1, 2, 3}


def test_states_are_not_entered_twice() -> None:
    """What two tasks do that share nothing comes together again: far fewer runs than orders."""

    async def world() -> None:
        async def walk() -> None:
            for _ in range(6):
                await checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(walk)
            nursery.start_soon(walk)

    explored = explore(world, runs=10_000)
    assert explored.complete
    assert explored.runs < explored.orders / 5


def test_bounds_are_told() -> None:
    """In runs and in seconds: what was not followed is not said to be."""

    async def world() -> None:
        async def walk() -> None:
            for _ in range(5):
                await checkpoint()

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(walk)

    for bounds, words in (({"runs": 3}, "3 runs were allowed"), ({"seconds": 0.0}, "0 s were allowed")):
        explored = explore(world, **bounds)
        assert not explored.complete
        assert words in str(explored)


def test_a_deadlock_is_told() -> None:
    """With where each task waits."""

    async def world() -> None:
        await trio.Event().wait()

    with pytest.raises(Deadlock, match=r"every task waits: main at test_explorer.py:\d+"):
        explore(world)


def test_an_endless_run_is_told() -> None:
    """One that waits for nobody has no end."""

    async def world() -> None:
        while True:
            await checkpoint()

    with patch("hatchway.api.testing.ordered_runs.LONGEST", 500), pytest.raises(Endless):
        explore(world)


def test_a_world_may_tell_its_state() -> None:
    """Then that is what is compared, beside where its tasks stand."""

    class Counting(World):
        count = 0

        async def main(self) -> None:
            async def add() -> None:
                for _ in range(self.count + 1):
                    await checkpoint()
                    self.count += 1

            async with trio.open_nursery() as nursery:
                nursery.start_soon(add, name="a")
                nursery.start_soon(add, name="b")

        def state(self) -> Any:
            return self.count

        def outcome(self) -> int:
            return self.count

    explored = explore(Counting)
    assert explored.complete
    assert explored.outcomes == {2, 3}


class _Writers(World):
    """Two that set one value: what comes of it depends on who is last."""

    first_is_first = False

    def __init__(self) -> None:
        self.value = ""

    async def main(self) -> None:
        async def write(name: str) -> None:
            await checkpoint()
            self.value = name

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, "a", name="a")
            nursery.start_soon(write, "b", name="b")

    def state(self) -> Any:
        return self.value

    def outcome(self) -> str:
        return self.value

    def commutes(self, task: Any) -> bool:
        return bool(task.name == "a") and self.first_is_first


class _Wrong(_Writers):
    """It says that `a` may as well go first, which is not so."""

    first_is_first = True


def test_a_wrong_word_of_commuting_is_found() -> None:
    """By what may come of each state: an exploration that goes by it would lose an outcome."""
    assert explore(_Wrong).outcomes == {"b"}
    whole = explore(_Wrong, reduced=False)
    assert whole.outcomes == {"a", "b"}
    with pytest.raises(AssertionError, match=r"a loses .*'a'.* where a, b"):
        whole.check_commuting()
    assert explore(_Writers, reduced=False).check_commuting() == 0


class _Late(_Writers):
    """`a` goes first, and fails where `b` is last."""

    async def main(self) -> None:
        await super().main()
        assert self.value == "a"

    def commutes(self, task: Any) -> bool:
        return bool(task.name == "a")


@pytest.mark.parametrize("reduced", [True, False])
def test_an_order_is_told_by_its_choices(reduced: bool) -> None:
    """One that was found may be repeated, whether or not tasks were sent first, or had nobody beside them."""
    with pytest.raises(AssertionError) as found:
        explore(_Late, reduced=reduced)
    again = re.search(r"replay\(world, '([^']*)'\)", "\n".join(found.value.__notes__))
    assert again is not None
    with pytest.raises(AssertionError):
        replay(_Late, again[1])


@pytest.mark.parametrize(
    ("order", "words"),
    [("c a", "choice 1 is 'c', and a, b can go on there"), ("a b a b a b a", "the run was over before")],
)
def test_an_order_of_another_world(order: str, words: str) -> None:
    """It proves nothing that such a run passes: it went otherwise."""
    with pytest.raises(OrderMisfit, match=f"no order of this world: {words}"):
        replay(_Writers, order)


def test_an_order_of_another_world_that_fails_as_well() -> None:
    """The failure is told, and that it is not that order's."""
    with pytest.raises(AssertionError) as found:
        replay(_Late, "c")
    assert "but this is no order of this world: choice 1 is 'c'" in "\n".join(found.value.__notes__)


def test_a_state_that_is_too_large_is_told() -> None:
    """In words that say what to do."""

    async def world() -> None:
        held = [[number] for number in range(30_000)]

        async def walk() -> None:
            await checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(walk)
            nursery.start_soon(walk)
        assert held

    with pytest.raises((StateTooLarge, BaseExceptionGroup)) as told:
        explore(world)
    assert "give the world a state()" in repr(told.value)


def test_the_handbooks_test_passes(tmp_path: Path) -> None:
    """As it stands in the chapter; without its lock it fails as is told there."""
    (text,) = re.findall(r"^```python explored\n(.*?)^```", CHAPTERS["explorer"].read_text(), re.DOTALL | re.MULTILINE)
    (orders,) = re.findall(r"`(all of \d+ orders) ", CHAPTERS["explorer"].read_text())
    assert orders in run(tmp_path, text)
    told = run(tmp_path, text.replace("async with lock:", "if True:"))
    assert "--explore-order=''" in told
    assert "deposit#2" in told


MARKED = """
import pytest, trio

@pytest.mark.explore
async def test_whole(tmp_path):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.lowlevel.checkpoint)
        nursery.start_soon(trio.lowlevel.checkpoint)

@pytest.mark.explore
async def test_race():
    told = []
    async def add(name):
        await trio.lowlevel.checkpoint()
        told.append(name)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(add, "a", name="a")
        nursery.start_soon(add, "b", name="b")
    assert told == ["a", "b"]

@pytest.mark.explore(runs=1)
async def test_bound():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 1)
        nursery.start_soon(trio.sleep, 1)

@pytest.mark.explore(runs=1, partial=True)
async def test_partial():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 1)
        nursery.start_soon(trio.sleep, 1)

@pytest.mark.explore
def test_plain():
    pass
"""


@pytest.mark.parametrize("trio_mode", [True, False])
def test_the_marker(tmp_path: Path, trio_mode: bool) -> None:
    """Told in the summary: how many orders there were, and whether all were followed; a bound fails unless it may."""
    told = run(tmp_path, MARKED, trio=trio_mode)
    assert re.search(r"test_whole: all of \d+ orders .* were followed", told), told
    assert "test_bound: not all were followed, 1 runs were allowed" in told
    assert "FAILED test_theirs.py::test_race" in told
    assert "@pytest.mark.explore wants an async test" in told
    assert re.search(r"^3 failed, 2 passed", told, re.MULTILINE), told
    order = re.search(r"--explore-order='([^']+)'", told)
    assert order is not None
    again = run(tmp_path, MARKED, "-k", "race", f"--explore-order={order[1]}", trio=trio_mode)
    assert "1 failed" in again
    assert "1 passed" in run(tmp_path, MARKED, "-k", "race", "--explore-order=", trio=trio_mode)


def test_another_trio_is_refused_in_words() -> None:
    """At import: by its version, and by what it lacks."""
    with patch.object(trio, "__version__", "9.9.0"), pytest.raises(ImportError, match=r"this is trio 9\.9\.0"):
        trio_inside.check_trio()
    with (
        patch.dict(trio_inside.NAMES, {"Task": ("_gone",)}),
        pytest.raises(ImportError, match=r"it lacks Task\._gone"),
    ):
        trio_inside.check_trio()
    probe = "import trio; trio.__version__ = '9.9.0'; import hatchway.api.testing.explorer"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
    assert "install a trio that it knows" in done.stderr
