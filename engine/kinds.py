"""What the runtime knows of each chart: actors, what every name stands for, and how delays are reckoned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
import trio

from engine.actor_index import ActorIndex
from engine.clock import Clock
from engine.store.protocol import Store, is_uncancellable
from statecharts.chart import Chart, ChartFault, Delay
from statecharts.interpreter import Interpreter


class Actor(msgspec.Struct, gc=False, eq=False):
    """One pairing, session or instance. Only the runtime sets `state`, and only to what a step says.

    `deadline` is on its delay's clock, None where no delay runs; `timer` is the number of the heap's live entry.
    """

    chart: str
    id: str
    state: str
    version: int
    deadline: float | None
    facts: Any
    timer: int = 0
    used: float = 0.0
    """When it was used last, in epoch seconds, as far as its service notes that: in memory only."""


Data = dict[str, Any]
Effect = Callable[[Actor, Data], Any]
"""Runs after the state is stored, told the actor and what the event brought. May return an awaitable; must not send an
event to its own actor and wait for it."""

Rule = Callable[[Any, float], float]
"""A named delay: from an actor's facts and the time now, on the delay's clock, to the deadline."""


class Timing:
    """The delay of one state: the event it sends, whose seconds it counts, and when they end."""

    __slots__ = ("clock", "deadline", "event", "now")

    def __init__(self, delay: Delay, clock: Clock, rules: Mapping[str, Rule]) -> None:
        self.event = delay.event
        self.clock: Literal["elapsed", "wall"] = delay.clock
        self.now: Callable[[], float] = clock.wall if delay.clock == "wall" else clock.elapsed
        self.deadline: Rule = rules[delay.seconds] if isinstance(delay.seconds, str) else _after(delay.seconds)


def _after(seconds: float) -> Rule:
    return lambda facts, now: now + seconds


class Kind:
    """A chart with everything its names stand for. Raises ChartFault for a name without a handler, or the reverse."""

    def __init__(
        self,
        chart: Chart,
        facts: type,
        store: Store,
        clock: Clock,
        effects: Mapping[str, Effect],
        rules: Mapping[str, Rule],
        keep: bool,
        owner: Callable[[Any], str] | None = None,
    ) -> None:
        wanted = {delay.seconds for delay in chart.delays.values() if isinstance(delay.seconds, str)}
        for kind, named, given in (("effect", chart.effects, set(effects)), ("delay", wanted, set(rules))):
            if named != given:
                names = ", ".join(sorted(map(str, named ^ given)))
                raise ChartFault(f"{chart.name}: {kind} without a handler, or handler without a name: {names}")
        self.name, self.facts, self.store = chart.name, facts, store
        self.advance = Interpreter(chart).advance
        self.uncancellable = is_uncancellable(store)
        self.removed_in = frozenset() if keep else chart.final
        """States in which nothing is kept of an actor."""
        self.effects = {row: tuple((name, effects[name]) for name in row.effects) for row in chart.rows}
        self.timings = {state: Timing(delay, clock, rules) for state, delay in chart.delays.items()}
        self.actors: dict[str, Actor] = {}
        """Changed by `put` and `drop` alone."""
        self.index = None if owner is None else ActorIndex(owner)

    def put(self, name: str, actor: Actor) -> None:
        """That is the actor of this name from now on."""
        if self.index is not None and name not in self.actors:
            self.index.add(name, actor.facts)
        self.actors[name] = actor

    def drop(self, name: str) -> Actor | None:
        """There is none of this name any more; the one that was there."""
        actor = self.actors.pop(name, None)
        if actor is not None and self.index is not None:
            self.index.remove(name, actor.facts)
        return actor


class Turns:
    """One event at a time at each actor; those that come meanwhile wait, and are let in in order."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], trio.lowlevel.ParkingLot | None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, key: tuple[str, str]) -> trio.lowlevel.ParkingLot | None:
        """The turn, at once; or where to wait until it is handed over."""
        if key not in self._waiting:
            self._waiting[key] = None
            return None
        lot = self._waiting[key]
        if lot is None:
            lot = self._waiting[key] = trio.lowlevel.ParkingLot()
        return lot

    async def wait(self, key: tuple[str, str]) -> None:
        """Until it is one's turn."""
        waiting = self.take(key)
        if waiting is not None:
            await waiting.park()

    def give(self, key: tuple[str, str]) -> None:
        """Hand the turn to the next one, if there is one."""
        lot = self._waiting[key]
        if lot is None or not lot.unpark():
            del self._waiting[key]
