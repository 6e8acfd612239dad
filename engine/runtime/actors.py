"""The live actors of one chart: what its names stand for, its delays, and one event at a time for each actor."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any, Literal

import msgspec
import trio
from msgspec import UNSET, UnsetType

from hatchway.engine.base.clock import Clock
from hatchway.engine.runtime.actor_index import ActorIndex
from hatchway.engine.runtime.records import Saw
from hatchway.engine.runtime.timers import Timers
from hatchway.engine.store.protocol import Store, Stored
from hatchway.statecharts.chart import NONE, Chart, ChartFault, Delay
from hatchway.statecharts.interpreter import Interpreter

LATE = (2.0, 10.0)
"""Seconds, drawn between these two, by which this engine fires the delay of an actor later that another engine moved
last: the other engine fires it in time while it is alive."""

UNKNOWN = -1
"""A version that no actor has, so that `absorb` reads the stored one whatever this engine knows."""


class Actor(msgspec.Struct, gc=False, eq=False):
    """One pairing, session or instance. Only the runtime sets `state`, and only to what a step says.

    `deadline` is on its delay's clock, None where no delay runs; `since` is when the delay was armed, where it counts
    elapsed time. `timer` is the number of the heap's live entry.
    """

    chart: str
    id: str
    state: str
    version: int
    deadline: float | None
    facts: Any
    since: float = 0.0
    timer: int = 0
    used: float = 0.0
    """When it was used last, in epoch seconds, as far as its service notes that: in memory only."""


Data = dict[str, Any]
Effect = Callable[[Actor, Data], object]
"""Runs after the state is stored, with the actor and what the event brought. May return an awaitable; must not send an
event to its own actor and wait for it. At most one effect of a row has a result for the sender of the event, who says
its type (`returns`)."""

Rule = Callable[[Any, float], float]
"""A named delay: from an actor's facts and the time now, on the delay's clock, to the deadline."""

Moved = Callable[[str, str, str, str | None], None]
"""Callback for an actor that another engine has moved: chart, actor, the state it had here, its state now or None."""


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


class RegisteredChart:
    """A chart with everything its names stand for. Raises ChartFault for a name without a handler, or the reverse."""

    def __init__(
        self, chart: Chart, clock: Clock, effects: Mapping[str, Effect], rules: Mapping[str, Rule], keep: bool
    ) -> None:
        wanted = {delay.seconds for delay in chart.delays.values() if isinstance(delay.seconds, str)}
        for kind, named, given in (("effect", chart.effects, set(effects)), ("delay", wanted, set(rules))):
            if named != given:
                names = ", ".join(sorted(map(str, named ^ given)))
                raise ChartFault(f"{chart.name}: {kind} without a handler, or handler without a name: {names}")
        self.name = chart.name
        self.advance = Interpreter(chart).advance
        self.removed_in = frozenset() if keep else chart.final
        """States in which nothing is kept of an actor."""
        self.effects = tuple(tuple(effects[name] for name in row.effects) for row in chart.rows)
        """The effects of each row, by the row's place in the chart."""
        self.timings = {state: Timing(delay, clock, rules) for state, delay in chart.delays.items()}

    def seen(self, source: str, data: Data) -> tuple[Saw | UnsetType, float | None]:
        """What an event was decided on in `source`, for its record, and the wall time where that decided."""
        timing, proof, deadline = self.timings.get(source), data.get("proof", UNSET), data["deadline"]
        wall = data["now"] if timing is not None and timing.clock == "wall" else None
        if timing is None or deadline is None:
            return UNSET if proof is UNSET else Saw(proof=proof), wall
        if wall is not None:
            return Saw(deadline=_whole(deadline), proof=proof), wall
        at, of = _elapsed(data["now"], data["since"], deadline)
        return Saw(at, of, proof=proof), None


def _whole(seconds: float) -> float:
    """The seconds as an integer where they have no fraction, as the deadline of a session, which its token has so."""
    return int(seconds) if isinstance(seconds, float) and seconds.is_integer() else seconds


def _elapsed(now: float, since: float, deadline: float) -> tuple[float, float]:
    """How many seconds a delay has run and how many it has, to the millisecond: what is left is rounded up, so that the
    first is less than the second exactly where `now` is less than `deadline`."""
    of = round((deadline - since) * 1000)
    at = of - math.ceil((deadline - now) * 1000)
    return _whole(max(at, 0) / 1000), _whole(of / 1000)


class ActorLocks:
    """A lock for each actor, by name: it takes one event at a time, in the order in which they came."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[str, trio.lowlevel.ParkingLot | None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def acquire_free(self, name: str) -> bool:
        """Take the lock where nobody holds it; whether that was so."""
        if name in self._waiting:
            return False
        self._waiting[name] = None
        return True

    async def acquire(self, name: str) -> None:
        """Returns at once, without a checkpoint, where nobody holds the lock."""
        if self.acquire_free(name):
            return
        lot = self._waiting[name]
        if lot is None:
            lot = self._waiting[name] = trio.lowlevel.ParkingLot()
        await lot.park()

    def release(self, name: str) -> None:
        """Hand the lock to whoever has waited longest."""
        lot = self._waiting[name]
        if lot is None or not lot.unpark():
            del self._waiting[name]


class ActorTable:
    """Every live actor of one chart as this engine knows it, its delay armed. In a shared store the stored value is the
    truth: `load` and `absorb` take it over."""

    def __init__(
        self,
        chart: RegisteredChart,
        store: Store,
        timers: Timers[Actor],
        moved: list[Moved],
        owner: Callable[[Any], str] | None = None,
    ) -> None:
        """`moved` are told of each actor that another engine has moved; `owner` tells from the facts whose an actor is,
        where actors are to be found by owner."""
        self.chart, self.store = chart, store
        self.actors: dict[str, Actor] = {}
        """Changed by `put` and `drop` alone."""
        self.index = None if owner is None else ActorIndex(owner)
        self.locks = ActorLocks()
        self._timers, self._moved = timers, moved

    def put(self, name: str, actor: Actor) -> None:
        """Have `actor` stand for this name from now on, in place of what did."""
        if self.index is not None and name not in self.actors:
            self.index.add(name, actor.facts)
        self.actors[name] = actor

    def drop(self, name: str) -> Actor | None:
        """Remove the actor of this name. Returns it, None where there was none."""
        actor = self.actors.pop(name, None)
        if actor is not None and self.index is not None:
            self.index.remove(name, actor.facts)
        return actor

    def due_event(self, actor: Actor) -> str | None:
        """The time event that is due in the actor's state, if its deadline has come."""
        timing = self.chart.timings.get(actor.state)
        if timing is None or actor.deadline is None or timing.now() < actor.deadline:
            return None
        return timing.event

    def arm(self, actor: Actor, late: float = 0.0) -> None:
        """Have the delay of the actor's state fire at its deadline, `late` seconds after it; or not at all, where the
        state has none."""
        timing = self.chart.timings.get(actor.state)
        if timing is not None and actor.deadline is not None:
            self._timers.arm(actor, actor.deadline + late, timing.clock)
        else:
            self._timers.disarm(actor)

    async def restore(self) -> list[Actor]:
        """Take up every actor that the store holds, its delay armed again."""
        found = await self.store.live(self.chart.name)
        found.sort(key=itemgetter(0))  # the index of names is quickest when names come in order
        for name, stored in found:
            actor = Actor(self.chart.name, name, stored.state, stored.version, stored.deadline, stored.facts)
            self.put(name, actor)
            timing = self.chart.timings.get(stored.state)
            if timing and actor.deadline is None:
                actor.since = timing.now()
                actor.deadline = timing.deadline(actor.facts, actor.since)
            self.arm(actor)
        return list(self.actors.values())

    # What other engines did

    def take_up(self, found: Iterable[tuple[str, Stored]]) -> None:
        """Have these actors, as the store has them, but for those that are here: what is here is as new, or newer."""
        for name, stored in found:
            if name not in self.actors:
                self._take_over(name, stored, None)

    async def absorb(self, versions: Mapping[str, int]) -> None:
        """Take up what other engines did to these actors; `versions` are those that they moved them to, 0 for gone.

        An actor that has another version here is read from the store, under its lock, so that no step of this engine's
        is undone. Raises StoreUnavailable.
        """
        held = []
        try:
            for name in versions:
                await self.locks.acquire(name)
                held.append(name)
            moved = [name for name in held if self._version(name) != versions[name]]
            values = await self.store.load_many(self.chart.name, moved) if moved else ()
            for name, stored in zip(moved, values, strict=True):
                self._take_over(name, stored, self.actors.get(name))
        finally:
            for name in held:
                self.locks.release(name)

    def _version(self, name: str) -> int:
        actor = self.actors.get(name)
        return actor.version if actor else 0

    async def load(self, actor: Actor) -> Actor | None:
        """The actor as the store has it now; None where it is gone. Its lock must be held."""
        return self._take_over(actor.id, await self.store.load(self.chart.name, actor.id), actor)

    def _take_over(self, name: str, stored: Stored | None, known: Actor | None) -> Actor | None:
        actor = self.actors.get(name) or known or Actor(self.chart.name, name, NONE, 0, None, None)
        if stored is None:
            if self.drop(name) is not None:
                self._tell_moved(actor, None)
            self._timers.disarm(actor)
            return None
        if stored.version != actor.version or actor.facts is None:
            self._tell_moved(actor, stored.state)
            actor.state, actor.version, actor.facts = stored.state, stored.version, stored.facts
            actor.deadline = stored.deadline
            self.arm(actor, late=random.uniform(*LATE))  # noqa: S311 - no secret
        self.put(name, actor)
        return actor

    def _tell_moved(self, actor: Actor, state: str | None) -> None:
        for moved in self._moved:
            moved(self.chart.name, actor.id, actor.state, state)
