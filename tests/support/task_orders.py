"""Every order in which trio could run the tasks of a small world: one task's stretch between two awaits at a time.

Why nothing is lost. A state is all that the future depends on: what the world tells of itself, and where each task
stands. Each run starts anew and goes where some order has not been followed to its end, until from the start none is
left; a state that two orders reach is one. Were a state told too roughly, its choices would differ between visits,
which is an error here. A task whose next stretch commutes with all that the others may still do goes first, alone: any
order with that stretch later ends where the one with it first does (a persistent set of one; there are no cycles).
Whether it does commute is not believed: `Explored.check_commuting` looks at every state of an unreduced search.
"""

from __future__ import annotations

import gc
import inspect
import random
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, Protocol
from unittest.mock import patch

import trio
from outcome import Error
from trio._core._run import GLOBAL_RUN_CONTEXT
from trio.testing import MockClock

END = -1
"""The number of the state in which a run is over."""

LOOSE = "the state does not tell all that the future depends on"


class World(Protocol):
    """A small world of named tasks, made anew for every run."""

    async def main(self) -> None:
        """Starts the tasks, waits for them, and checks what they did."""

    def state(self) -> Hashable:
        """All that the future depends on, but for where the tasks stand."""

    def outcome(self) -> Hashable:
        """What came of it, at the end."""

    def idle(self, task: Any) -> bool:
        """Whether the task's next stretch is seen by nobody, and may as well be done now."""

    def commutes(self, task: Any) -> bool:
        """Whether the task's next stretch and all that others do until it runs may change places."""


class Explored:
    """What was found: for each state, by number, which tasks may go on in it, and the state each leads to."""

    def __init__(self) -> None:
        self.runs = 0
        self.outcomes: set[Hashable] = set()
        self.tasks: list[tuple[str, ...]] = []
        self.ways: list[list[int | None]] = []
        self.commuting: list[frozenset[str]] = []
        self.followed = {END}
        """States from which every order was followed to its end."""
        self._numbers: dict[bytes, int] = {}
        self._dice = random.Random(1)

    def number(self, key: bytes, tasks: tuple[str, ...], commuting: frozenset[str]) -> int:
        """The number of a state, new or seen before."""
        number = self._numbers.setdefault(key, len(self.ways))
        if number == len(self.ways):
            self.tasks.append(tasks)
            self.ways.append([None] * len(tasks))
            self.commuting.append(commuting)
        return number

    def follow(self, state: int) -> int:
        """The way to take from a state: any that was not followed to its end. Dice find a bug sooner than an order."""
        return self._dice.choice([at for at, to in enumerate(self.ways[state]) if to not in self.followed] or [0])

    def ended(self, path: list[tuple[int, int]]) -> None:
        """A run is over that went this path: states, and the ways taken from them."""
        state, way = path[-1]
        assert self.ways[state][way] in (None, END), LOOSE
        self.ways[state][way] = END
        for state, _ in reversed(path):
            if all(to in self.followed for to in self.ways[state]):
                self.followed.add(state)

    def check_commuting(self) -> int:
        """Of an unreduced search: what was said to commute does, in every state; in how many pairs."""
        pairs = 0
        for state, tasks in enumerate(self.tasks):
            for first in self.commuting[state]:
                for other in set(tasks) - {first}:
                    after = self._after(state, other)
                    assert first in self.commuting[after], f"{first} no longer commutes after {other}"
                    assert self._after(after, first) == self._after(self._after(state, first), other), (first, other)
                    pairs += 1
        return pairs

    def _after(self, state: int, task: str) -> int:
        to = self.ways[state][self.tasks[state].index(task)]
        assert to is not None
        return to


class Schedule:
    """Stands in for trio's dice: goes where not everything has been followed yet."""

    def __init__(self, explored: Explored, world: World, reduced: bool) -> None:
        self.explored, self.world, self.reduced = explored, world, reduced
        self.path: list[tuple[int, int]] = []
        self.story: list[str] = []
        self.fault: AssertionError | None = None

    def random(self) -> float:
        return 1.0

    def shuffle(self, batch: list[Any]) -> None:
        """Let one task of the batch run, and put the others off to the next."""
        runner = GLOBAL_RUN_CONTEXT.runner
        chosen = next((task for task in batch if _is_trios(task, runner) or self.world.idle(task)), None)
        if chosen is None:
            chosen = self._choose(sorted(batch, key=lambda task: str(task.name)))
        runner.runq.extend(task for task in batch if task is not chosen)
        batch[:] = [chosen]

    def check(self) -> None:
        """Raises what was found wrong on the way, where trio's loop must not be broken."""
        if self.fault is not None:
            raise self.fault

    def _choose(self, tasks: list[Any]) -> Any:
        if self.reduced:
            forced = next((task for task in tasks if self.world.commutes(task)), tasks[0] if len(tasks) == 1 else None)
            if forced is not None:
                return forced
        try:
            state = self._stand(tasks)
        except AssertionError as fault:
            self.fault = self.fault or fault
            return tasks[0]
        way = self.explored.follow(state)
        self.path.append((state, way))
        self.story.append(str(tasks[way].name))
        return tasks[way]

    def _stand(self, tasks: list[Any]) -> int:
        """The state we are in. It is looked at only where nobody came this way before."""
        explored, names = self.explored, tuple(str(task.name) for task in tasks)
        state = self._foreseen()
        if state is None:
            commuting = frozenset(str(task.name) for task in tasks if not self.reduced and self.world.commutes(task))
            state = explored.number(self._key(tasks), names, commuting)
            if self.path:
                before, way = self.path[-1]
                explored.ways[before][way] = state
        assert state != END, LOOSE
        assert explored.tasks[state] == names, LOOSE
        return state

    def _foreseen(self) -> int | None:
        if self.path:
            before, way = self.path[-1]
            return self.explored.ways[before][way]
        return 0 if self.explored.ways else None

    def _key(self, tasks: list[Any]) -> bytes:
        runner = GLOBAL_RUN_CONTEXT.runner
        stand = sorted(
            (str(task.name), str(where(task.coro)), task in tasks, type(task._next_send) is Error)
            for task in runner.tasks
            if not _is_trios(task, runner)
        )
        return blake2b(repr((self.world.state(), stand)).encode(), digest_size=16).digest()


def _is_trios(task: Any, runner: Any) -> bool:
    """Trio's own tasks, and the one that waits for all others."""
    return task.name[0] == "<" or task is runner.main_task


def where(awaiting: Any) -> tuple[Hashable, ...]:
    """Where a task stands: each frame of its stack with its next instruction, and what ours are about to do."""
    frames: list[Hashable] = []
    while awaiting is not None:
        frame = _first(awaiting, "cr_frame", "ag_frame", "gi_frame")
        if frame is None:
            # What awaits the next item of an asynchronous generator has no frame, but refers to the generator.
            awaiting = next(filter(inspect.isasyncgen, gc.get_referents(awaiting)), None)
            continue
        ours = "/engine/" in frame.f_code.co_filename
        frames.append((frame.f_code.co_name, frame.f_lasti, *(_choices(frame.f_locals) if ours else ())))
        awaiting = _first(awaiting, "cr_await", "ag_await", "gi_yieldfrom")
    return tuple(frames)


def _first(awaiting: Any, *names: str) -> Any:
    return next((found for name in names if (found := getattr(awaiting, name, None))), None)


def _choices(variables: dict[str, Any]) -> Iterator[Hashable]:
    for name, value in variables.items():
        if hasattr(value, "target") and hasattr(value, "source"):  # a step that is not stored yet
            yield name, value.source, value.target
        elif name in ("due", "event", "deadline") and not isinstance(value, list):
            yield name, value


@contextmanager
def _scheduled(schedule: Schedule) -> Iterator[None]:
    with (
        patch.object(trio._core._run, "_r", schedule),
        patch.object(trio._core._run, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
    ):
        yield


def explore(make: Callable[[], World], *, reduced: bool = True) -> Explored:
    """Run every order of a world's tasks. An error tells the order that led to it.

    Not `reduced`, each state and each way from it is looked at, even where only one task can go on.
    """
    explored = Explored()
    while 0 not in explored.followed:
        world = make()
        schedule = Schedule(explored, world, reduced)
        with _scheduled(schedule):
            try:
                trio.run(world.main, clock=MockClock(autojump_threshold=5))
                schedule.check()
            except BaseException as error:
                error.add_note("in this order: " + ", ".join(schedule.story))
                raise
        explored.outcomes.add(world.outcome())
        explored.ended(schedule.path)
        explored.runs += 1
    return explored
