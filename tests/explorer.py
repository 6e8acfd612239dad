"""Every order in which trio could run the tasks of a small world: one task's stretch between two awaits at a time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from unittest.mock import patch

import trio
from trio._core._run import GLOBAL_RUN_CONTEXT
from trio.testing import MockClock


class World(Protocol):
    """A small world of named tasks, made anew for every run."""

    async def main(self) -> None:
        """Starts the tasks, waits for them, and checks what they did."""

    def state(self) -> Hashable:
        """All that the future depends on, but for where the tasks stand."""

    def idle(self, name: str) -> bool:
        """Whether the task's next stretch changes nothing that others can see: then its order does not matter."""


class Schedule:
    """Stands in for trio's dice. Follows `prefix`, then takes the first choice everywhere and notes the others."""

    def __init__(self, prefix: tuple[int, ...], seen: set[Hashable], world: World) -> None:
        self.prefix, self.seen, self.world = prefix, seen, world
        self.taken: list[int] = []
        self.others: list[tuple[int, ...]] = []
        self.story: list[str] = []
        self.known = False
        self.deepest = 0

    def random(self) -> float:
        return 1.0

    def shuffle(self, batch: list[Any]) -> None:
        """Let one task of the batch run, and put the others off to the next."""
        main = GLOBAL_RUN_CONTEXT.runner.main_task
        system = [task for task in batch if task.name[0] == "<" or task is main or self.world.idle(task.name)]
        chosen = system[0] if system else self._choose(sorted(batch, key=lambda task: str(task.name)))
        GLOBAL_RUN_CONTEXT.runner.runq.extend(task for task in batch if task is not chosen)
        batch[:] = [chosen]

    def _choose(self, tasks: list[Any]) -> Any:
        if len(tasks) == 1 or self.known:
            return tasks[0]
        at = len(self.taken)
        if at < len(self.prefix):
            choice = self.prefix[at]
        else:
            choice = 0
            state = (self.world.state(), tuple((str(task.name), where(task.coro)) for task in tasks))
            self.known = state in self.seen
            if self.known:
                return tasks[0]  # whatever follows from here has been followed
            self.seen.add(state)
            self.others += [(*self.taken, other) for other in range(1, len(tasks))]
        self.taken.append(choice)
        self.story.append(str(tasks[choice].name))
        return tasks[choice]


def where(awaiting: Any) -> tuple[Hashable, ...]:
    """Where a task stands: each frame of its stack with its next instruction, and what ours are about to do."""
    frames: list[Hashable] = []
    while awaiting is not None:
        frame = _first(awaiting, "cr_frame", "ag_frame", "gi_frame")
        if frame is None:
            break
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


class Explored:
    """How much there was: runs, and different states at which something was chosen."""

    def __init__(self) -> None:
        self.runs = 0
        self.seen: set[Hashable] = set()


def explore(make: Callable[[], World]) -> Explored:
    """Run every order of a world's tasks.

    A state is left once all that can follow from it has been seen. An error tells the order that led to it.
    """
    explored = Explored()
    open_prefixes: list[tuple[int, ...]] = [()]
    while open_prefixes:
        world = make()
        schedule = Schedule(open_prefixes.pop(), explored.seen, world)
        with _scheduled(schedule):
            try:
                trio.run(world.main, clock=MockClock(autojump_threshold=5))
            except BaseException as error:
                error.add_note("in this order: " + ", ".join(schedule.story))
                raise
        open_prefixes += schedule.others
        explored.runs += 1
    return explored
