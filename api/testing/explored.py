"""What an exploration has found: the states of a world, the choices in each, and what came of them."""

from __future__ import annotations

import random
from collections.abc import Hashable

END = -1
"""The number of the state in which a run is over."""

LOOSE = "the state does not tell all that the future depends on"


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
        self._ends: dict[tuple[int, int], Hashable] = {}
        """What came of it, by the last state and the way taken from it."""
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
        """Note that not every order will be followed, and why."""
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

    def ended(self, path: list[tuple[int, int]], outcome: Hashable, *, at_the_end: bool) -> None:
        """A run is over that went this path: states, and the ways taken from them. Not `at_the_end`, the rest of it was
        known before."""
        self.runs += 1
        self.outcomes.add(outcome)
        if at_the_end and path:
            state, way = path[-1]
            assert self.ways[state][way] in (None, END), LOOSE
            self.ways[state][way] = END
            self._ends[state, way] = outcome
        for state, _ in reversed(path):
            if not self._open(state):
                self.followed.add(state)

    def check_commuting(self) -> int:
        """Check, after a search that was not reduced, what the world says of tasks that commute: whatever may come of a
        state may still come of it once such a task has gone first. Returns in how many states that was a choice."""
        reached = self._reached()
        choices = 0
        for state, tasks in enumerate(self.tasks):
            for first in self.commuting[state]:
                after = self.ways[state][tasks.index(first)]
                kept = self._comes_of(reached, state, tasks.index(first), after)
                assert kept == reached[state], (
                    f"{first} loses {reached[state] - kept} where {', '.join(tasks)} may go on"
                )
                choices += len(tasks) > 1
        return choices

    def _reached(self) -> list[frozenset[Hashable]]:
        """For each state, what may come of it."""
        reached: list[frozenset[Hashable]] = [frozenset()] * len(self.ways)
        grows = True
        while grows:  # more than once around only where states come back
            grows = False
            for state in reversed(range(len(self.ways))):
                ways = enumerate(self.ways[state])
                found = frozenset().union(*(self._comes_of(reached, state, way, to) for way, to in ways))
                grows, reached[state] = grows or found != reached[state], found
        return reached

    def _comes_of(
        self, reached: list[frozenset[Hashable]], state: int, way: int, to: int | None
    ) -> frozenset[Hashable]:
        assert to is not None
        return frozenset((self._ends[state, way],)) if to == END else reached[to]
