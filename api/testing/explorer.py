"""Every order in which trio could run the tasks of a small world: one task's stretch between two awaits at a time.

Where several tasks can run, any of them may be next; and where somebody sleeps, the clock may jump to the end of that
first. Each run begins anew and goes where some order has not been followed to its end, until none is left. A state that
two orders reach is one: what its future depends on is compared, by the world's own `state`, or by a walk through all
that its tasks hold. Were a state told too roughly, its choices would differ between visits, which is an error here.

A world may say that a task's next stretch commutes with all that the others may still do: then that one goes first,
alone (a persistent set of one). `Explored.check_commuting` holds that against every state of an unreduced search.
"""

from __future__ import annotations

import gc
import inspect
import random
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterator
from hashlib import blake2b
from math import inf
from typing import Any, TypeVar

import trio
from trio.testing import MockClock

from hatchway.api.testing.run_states import StateTooLarge, Watching, state_of_run
from hatchway.api.testing.trio_inside import is_trios_own, jumping_clock, ordered_by, put_off, runner, wakes_by_error

END = -1
"""The number of the state in which a run is over."""

CLOCK = "clock"
"""What an order calls a jump of the clock."""

LONGEST = 100_000
"""Stretches of one run, past which it is taken to be endless."""

SHRINKING, SHRINKING_SECONDS = 300, 5.0
"""Runs, and seconds, that may be spent on a shorter order that fails in the same way."""

LOOSE = "the state does not tell all that the future depends on"


class World:
    """A small world of tasks, made anew for every run. A plain async function is one too."""

    waits_only = False
    """Whether `main` only waits for the other tasks: then it is not worth an order of its own."""

    clock_jumps = True
    """Whether the clock may jump while tasks could run. Where nobody can, it jumps anyhow."""

    async def main(self) -> None:
        """Starts the tasks, waits for them, and checks what they did."""

    def state(self) -> Hashable:
        """All that the future depends on, but for where the tasks stand; None has everything looked at."""
        return None

    def outcome(self) -> Hashable:
        """What came of it, at the end."""
        return None

    def idle(self, task: Any) -> bool:
        """Whether the task's next stretch is seen by nobody, and may as well be done now."""
        return False

    def commutes(self, task: Any) -> bool:
        """Whether the task's next stretch and all that others do until it runs may change places."""
        return False


class _FunctionWorld(World):
    def __init__(self, main: Awaitable[None]) -> None:
        self._main = main

    async def main(self) -> None:
        await self._main


Make = Callable[[], Any]
"""Makes a world: an async function, or what returns a `World`."""


class Deadlock(Exception):
    """Every task waits, and no time will wake one of them."""


class Endless(Exception):
    """A run came to no end."""


class Explored:
    """What was found: for each state, by number, what may go on in it, and the state that each choice leads to."""

    def __init__(self) -> None:
        self.runs = 0
        self.stopped: str | None = None
        """Why not every order was followed."""
        self.outcomes: set[Hashable] = set()
        self.tasks: list[tuple[str, ...]] = []
        self.ways: list[list[int | None]] = []
        self.commuting: list[frozenset[str]] = []
        self.followed = {END}
        """States from which every order was followed to its end."""
        self._numbers: dict[bytes, int] = {}
        self._back: set[tuple[int, int]] = set()
        self._dice = random.Random(1)  # noqa: S311 - no secret

    def __str__(self) -> str:
        what = f"{self.orders} orders ({self.runs} runs, {len(self.ways)} states)"
        return f"all of {what} were followed" if self.complete else f"not all were followed, {self.stopped}: {what}"

    @property
    def complete(self) -> bool:
        """Whether every order was followed to its end."""
        return self.stopped is None

    @property
    def orders(self) -> int:
        """How many ways lead from the beginning to the end, loops left out. Far more than runs: states are shared."""
        counts: dict[int, int] = {END: 1}
        stack = [0] if self.ways else []
        while stack:
            state = stack[-1]
            after = [to for way, to in enumerate(self.ways[state]) if to is not None and (state, way) not in self._back]
            missing = [to for to in after if to not in counts and to not in stack]
            if missing:
                stack.append(missing[0])
            else:
                counts[state] = sum(counts.get(to, 0) for to in after)
                stack.pop()
        return counts.get(0, 1)

    def stop(self, why: str) -> None:
        """Not every order will be followed."""
        self.stopped = why

    def number(self, key: bytes, tasks: tuple[str, ...], commuting: frozenset[str]) -> int:
        """The number of a state, new or seen before."""
        number = self._numbers.setdefault(key, len(self.ways))
        if number == len(self.ways):
            self.tasks.append(tasks)
            self.ways.append([None] * len(tasks))
            self.commuting.append(commuting)
        return number

    def _open(self, state: int) -> list[int]:
        ways = enumerate(self.ways[state])
        return [at for at, to in ways if to not in self.followed and (state, at) not in self._back]

    def follow(self, state: int) -> int | None:
        """The way to take from a state: any that was not followed to its end; None where all were. Dice find a fault
        sooner than an order does."""
        ways = self._open(state)
        if not ways:
            self.followed.add(state)
        return self._dice.choice(ways) if ways else None

    def lead_back(self, state: int, way: int) -> None:
        """This way leads to a state that the run has been in: whatever follows from there is followed from there."""
        self._back.add((state, way))

    def ended(self, path: list[tuple[int, int]], *, at_the_end: bool) -> None:
        """A run is over that went this path: states, and the ways taken from them. Not `at_the_end`, the rest of it was
        known before."""
        self.runs += 1
        if at_the_end and path:
            state, way = path[-1]
            assert self.ways[state][way] in (None, END), LOOSE
            self.ways[state][way] = END
        for state, _ in reversed(path):
            if not self._open(state):
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


class _OneRun(Watching, ABC):
    """Stands in for trio's dice in one run, and tells which task goes on."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.story: list[tuple[str, str]] = []
        """What went on, and where it stood before, at each choice."""
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
        """Nobody can run: time passes."""
        if not jump(clock):
            waiting = [f"{self.label(task)} at {place(task.coro)}" for task in self._tasks()]
            self._give_up(Deadlock("every task waits: " + ", ".join(waiting)))

    def _tasks(self) -> list[Any]:
        return sorted((task for task in runner().tasks if not is_trios_own(task)), key=self.label)

    def _options(self, tasks: list[Any]) -> list[Any]:
        """Those that can run, and None for the clock."""
        asleep = trio.lowlevel.current_statistics().seconds_to_next_deadline
        return [*tasks, None] if self.world.clock_jumps and 0 < asleep < inf else tasks

    def _name(self, option: Any) -> str:
        return CLOCK if option is None else self.label(option)

    def _take(self, option: Any) -> Any:
        self._last = self._name(option)
        self.story.append((self._last, "" if option is None else place(option.coro)))
        if option is None:
            jump(trio.lowlevel.current_clock())
        return option

    @abstractmethod
    def _choose(self, tasks: list[Any]) -> Any:
        """The task that goes on, or None where the clock jumps."""

    def _plain(self, options: list[Any]) -> Any:
        """The task that ran last, where it can go on; else the first by name."""
        return next((option for option in options if self._name(option) == self._last), options[0])


class _Search(_OneRun):
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
                return forced or options[0]
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
        return self._take(options[way])

    def _fair(self, options: list[Any]) -> Any:
        """Each in its turn, so that the run ends."""
        later = [option for option in options if self._name(option) > self._last]
        return self._take((later or options)[0])

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


class _Replay(_OneRun):
    """Follows an order, as far as it goes; after that, whoever ran last goes on."""

    def __init__(self, world: World, order: list[str]) -> None:
        super().__init__(world)
        self._order = iter(order)

    def _choose(self, tasks: list[Any]) -> Any:
        options = self._options(tasks)
        if len(options) == 1:
            return options[0]
        wanted = next(self._order, None)
        named = [option for option in options if self._name(option) == wanted]
        return self._take(named[0] if named else self._plain(options))


def jump(clock: Any) -> bool:
    """Set the clock to the next time that somebody waits for; whether there is one."""
    seconds = trio.lowlevel.current_statistics().seconds_to_next_deadline
    if 0 < seconds < inf:
        clock.jump(seconds)
    return seconds < inf


def _made(make: Make) -> World:
    made = make()
    return _FunctionWorld(made) if inspect.isawaitable(made) else made


def where(awaiting: Any) -> tuple[Hashable, ...]:
    """Where a task stands: each frame of its stack with its next instruction, and what an engine is about to do."""
    frames: list[Hashable] = []
    for frame in _stack(awaiting):
        ours = "/engine/" in frame.f_code.co_filename
        frames.append((frame.f_code.co_name, frame.f_lasti, *(_choices(frame.f_locals) if ours else ())))
    return tuple(frames)


def place(awaiting: Any) -> str:
    """Where a task stands, for people: the innermost line that is not trio's."""
    told = ""
    for frame in _stack(awaiting):
        if f"trio{'/'}_" not in frame.f_code.co_filename:
            told = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
    return told


def _stack(awaiting: Any) -> Iterator[Any]:
    while awaiting is not None:
        frame = _first(awaiting, "cr_frame", "ag_frame", "gi_frame")
        if frame is None:
            # What awaits the next item of an asynchronous generator has no frame, but refers to the generator.
            awaiting = next(filter(inspect.isasyncgen, gc.get_referents(awaiting)), None)
            continue
        yield frame
        awaiting = _first(awaiting, "cr_await", "ag_await", "gi_yieldfrom")


def _first(awaiting: Any, *names: str) -> Any:
    return next((found for name in names if (found := getattr(awaiting, name, None))), None)


def _choices(variables: dict[str, Any]) -> Iterator[Hashable]:
    for name, value in variables.items():
        if hasattr(value, "target") and hasattr(value, "source"):  # a step that is not stored yet
            yield name, value.source, value.target
        elif name in ("due", "event", "deadline") and not isinstance(value, list):
            yield name, value


T = TypeVar("T")


def explore(make: Make, *, runs: int | None = None, seconds: float | None = None, reduced: bool = True) -> Explored:
    """Run every order of a world's tasks, or as many as `runs` or `seconds` allow.

    What fails is raised, with the order that led to it, made short, in its notes. Not `reduced`, each state and each
    way from it is looked at, even where only one task can go on.
    """
    explored, until = Explored(), None if seconds is None else time.monotonic() + seconds
    while 0 not in explored.followed:
        if runs is not None and explored.runs >= runs:
            explored.stop(f"{runs} runs were allowed")
            break
        if until is not None and time.monotonic() >= until:
            explored.stop(f"{seconds:g} s were allowed")
            break
        search = _Search(_made(make), explored, reduced=reduced)
        try:
            search.run()
        except BaseException as error:
            _explain(make, error, [name for name, _ in search.story])
            raise
        explored.outcomes.add(search.world.outcome())
        explored.ended(search.path, at_the_end=not search.known)
        if not explored.ways:
            break  # nobody ever had a choice
    return explored


def replay(make: Make, order: str) -> None:
    """Run a world in one order, as `explore` told it. Raises what fails in it."""
    run = _Replay(_made(make), order.split())
    try:
        run.run()
    except BaseException as error:
        error.add_note(_told(run))
        raise


def _told(run: _OneRun) -> str:
    steps = [f"  {name:<12} {at}" for name, at in run.story]
    return "in this order:\n" + "\n".join(steps)


def _explain(make: Make, error: BaseException, order: list[str]) -> None:
    """Note the shortest order that was found to fail in the same way, and how to run it again."""
    shrunk, run = _shrunk(make, error, order)
    error.add_note(_told(run) if run is not None else "in this order: " + " ".join(order))
    error.add_note(f"again: replay(world, {' '.join(shrunk)!r}), or pytest --explore-order='{' '.join(shrunk)}'")


def _shrunk(make: Make, error: BaseException, order: list[str]) -> tuple[list[str], _OneRun | None]:
    kind, tries, best = _kind(error), 0, None
    at, size = 0, max(1, len(order) // 2)
    until = time.monotonic() + SHRINKING_SECONDS
    while tries < SHRINKING and size and time.monotonic() < until:
        shorter = order[:at] + order[at + size :]
        tries += 1
        run = _fails(make, shorter, kind) if at < len(order) else None
        if run is not None:
            order, best = shorter, run
        else:
            at += size
        if at >= len(order):
            at, size = 0, size // 2
    return order, best or _fails(make, order, kind)


def _fails(make: Make, order: list[str], kind: set[str]) -> _OneRun | None:
    run = _Replay(_made(make), order)
    try:
        run.run()
    except BaseException as error:
        return run if _kind(error) & kind else None
    return None


def _kind(error: BaseException) -> set[str]:
    """The types of what went wrong, in whatever groups."""
    if isinstance(error, BaseExceptionGroup):
        return {kind for inner in error.exceptions for kind in _kind(inner)}
    return {type(error).__name__}
