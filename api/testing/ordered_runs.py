"""One run of a world, whose order of tasks is chosen stretch by stretch: a run that searches, and one that repeats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from hashlib import blake2b
from math import inf
from typing import Any

import trio
from trio.testing import MockClock

from hatchway.api.testing.explored import END, LOOSE, Explored
from hatchway.api.testing.run_states import StateTooLarge, Watching, state_of_run
from hatchway.api.testing.task_places import place, where
from hatchway.api.testing.trio_inside import is_trios_own, jumping_clock, ordered_by, put_off, runner, wakes_by_error
from hatchway.api.testing.world import World

CLOCK = "clock"
"""What an order calls a jump of the clock."""

LONGEST = 100_000
"""Stretches of one run, past which it is taken to be endless."""


class Deadlock(Exception):
    """Every task waits, and no time will wake one of them."""


class Endless(Exception):
    """A run came to no end."""


class OrderMisfit(Exception):
    """An order that is not one of this world: it names who can't go on there, or more choices than there are."""


class TaskRun(Watching, ABC):
    """Stands in for trio's dice in one run, and tells which task goes on."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.order: list[str] = []
        """What went on, at each choice."""
        self.fault: Exception | None = None
        self._labels: dict[Any, str] = {}
        self._names: Counter[str] = Counter()
        self._scope = trio.CancelScope()
        self._stretches = 0
        self._last = ""

    def random(self) -> float:
        return 1.0

    def shuffle(self, batch: list[Any]) -> None:
        """Let one task of the batch run, and put the others off to the next."""
        if not batch:
            return
        self._stretches += 1
        if self._stretches > LONGEST:
            self._give_up(Endless(f"a run took more than {LONGEST} stretches: some task never waits for another"))
        chosen = next((task for task in batch if self._goes_first(task)), None)
        if chosen is None:
            chosen = self._choose(sorted(batch, key=self.label))
        put_off([task for task in batch if task is not chosen])
        batch[:] = [] if chosen is None else [chosen]

    def _goes_first(self, task: Any) -> bool:
        waits = self.world.waits_only and task is runner().main_task
        return is_trios_own(task) or waits or self.world.idle(task)

    def label(self, task: Any) -> str:
        """A task's name in orders: the same in every run, and no other's."""
        if task not in self._labels:
            name = "main" if task is runner().main_task else str(task.name).rpartition(".")[2]
            self._names[name] += 1
            self._labels[task] = name if self._names[name] == 1 else f"{name}#{self._names[name]}"
        return self._labels[task]

    def run(self) -> None:
        """The whole run. Raises what the world does, Deadlock, Endless."""
        clock = jumping_clock(self._idle, 0)
        with ordered_by(self):
            trio.run(self._main, clock=clock)
        if self.fault is not None:
            raise self.fault

    async def _main(self) -> None:
        with self._scope:
            await self.world.main()

    def _give_up(self, fault: Exception) -> None:
        self.fault = self.fault or fault
        self._scope.cancel()

    def _idle(self, clock: MockClock) -> None:
        """Set the clock forward, since no task can run."""
        if not jump(clock):
            waiting = [f"{self.label(task)} at {place(task.coro)}" for task in self._tasks()]
            self._give_up(Deadlock("every task waits: " + ", ".join(waiting)))

    def _tasks(self) -> list[Any]:
        return sorted((task for task in runner().tasks if not is_trios_own(task)), key=self.label)

    def _options(self, tasks: list[Any]) -> list[Any]:
        """The tasks that can run, and None where the clock may jump instead."""
        asleep = trio.lowlevel.current_statistics().seconds_to_next_deadline
        return [*tasks, None] if self.world.clock_jumps and 0 < asleep < inf else tasks

    def _name(self, option: Any) -> str:
        return CLOCK if option is None else self.label(option)

    def _take(self, option: Any, options: list[Any]) -> Any:
        self._last = self._name(option)
        if len(options) > 1:
            self.order.append(self._last)
        if option is None:
            jump(trio.lowlevel.current_clock())
        return option

    @abstractmethod
    def _choose(self, tasks: list[Any]) -> Any:
        """The task that goes on, or None where the clock jumps."""

    def _plain(self, options: list[Any]) -> Any:
        """The task that ran last, where it can go on; else the first by name."""
        return next((option for option in options if self._name(option) == self._last), options[0])


class SearchingRun(TaskRun):
    """Goes where not everything has been followed yet."""

    def __init__(self, world: World, explored: Explored, *, reduced: bool) -> None:
        super().__init__(world)
        self._explored, self._reduced = explored, reduced
        self.path: list[tuple[int, int]] = []
        self._been: set[int] = set()
        self.known = False
        """Whether all that may follow was followed before."""

    def _choose(self, tasks: list[Any]) -> Any:
        options = self._options(tasks)
        if self.known or self.fault is not None:
            return self._fair(options)
        if self._reduced:
            forced = next((task for task in tasks if self.world.commutes(task)), None)
            if forced is not None or len(options) == 1:
                return self._take(forced or options[0], options)
        try:
            state = self._stand(options, tasks)
        except (AssertionError, StateTooLarge) as fault:
            self._give_up(fault)  # trio's loop, in which this is, must not be broken
            return tasks[0]
        way = self._explored.follow(state)
        if way is None:
            self.known = True
            return self._fair(options)
        self.path.append((state, way))
        return self._take(options[way], options)

    def _fair(self, options: list[Any]) -> Any:
        """Each in its turn, so that the run ends."""
        later = [option for option in options if self._name(option) > self._last]
        return self._take((later or options)[0], options)

    def _stand(self, options: list[Any], tasks: list[Any]) -> int:
        """The state we are in. It is looked at only where nobody came this way before."""
        explored, names = self._explored, tuple(map(self._name, options))
        state = self._foreseen()
        if state is None:
            commuting = frozenset(self.label(task) for task in tasks if not self._reduced and self.world.commutes(task))
            state = explored.number(self._key(tasks), names, commuting)
            if self.path:
                before, way = self.path[-1]
                explored.ways[before][way] = state
                if state in self._been:
                    explored.lead_back(before, way)
        self._been.add(state)
        assert state != END, LOOSE
        assert explored.tasks[state] == names, LOOSE
        return state

    def _foreseen(self) -> int | None:
        if self.path:
            before, way = self.path[-1]
            return self._explored.ways[before][way]
        return 0 if self._explored.ways else None

    def _key(self, tasks: list[Any]) -> bytes:
        own = self.world.state()
        if own is None:
            return state_of_run(tasks, self.label)
        stand = [
            (self.label(task), str(where(task.coro)), task in tasks, wakes_by_error(task))
            for task in self._tasks()
            if not (self.world.waits_only and task is runner().main_task)
        ]
        return blake2b(repr((own, stand)).encode(), digest_size=16).digest()


class RepeatedRun(TaskRun):
    """Runs the tasks in the order that it is given. Where that ends, the task that ran last goes on."""

    def __init__(self, world: World, order: list[str]) -> None:
        super().__init__(world)
        self._wanted = order
        self._places: list[str] = []
        self._misfits: list[str] = []

    def __str__(self) -> str:
        """What went on, and where it stood before."""
        return "".join(f"\n  {name:<12} {at}" for name, at in zip(self.order, self._places, strict=True))

    def _take(self, option: Any, options: list[Any]) -> Any:
        if len(options) > 1:
            self._places.append("" if option is None else place(option.coro))
        return super()._take(option, options)

    def _choose(self, tasks: list[Any]) -> Any:
        options, at = self._options(tasks), len(self.order)
        if len(options) == 1 or at >= len(self._wanted):
            return self._take(self._plain(options), options)
        named = [option for option in options if self._name(option) == self._wanted[at]]
        if not named:
            can = ", ".join(map(self._name, options))
            self._misfits.append(f"choice {at + 1} is '{self._wanted[at]}', and {can} can go on there")
        return self._take(named[0] if named else self._plain(options), options)

    def misfit(self) -> OrderMisfit | None:
        """What of the order this world could not do, once it has run."""
        spare = self._wanted[len(self.order) :]
        found = self._misfits or ([f"the run was over before '{spare[0]}'"] if spare else [])
        return OrderMisfit(f"this is no order of this world: {found[0]}") if found else None


def jump(clock: Any) -> bool:
    """Set the clock to the next time that somebody waits for; whether there is one."""
    seconds = trio.lowlevel.current_statistics().seconds_to_next_deadline
    if 0 < seconds < inf:
        clock.jump(seconds)
    return seconds < inf
