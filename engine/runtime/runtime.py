"""Runs the charts: advance, store, record, arm the delay, run the effects, answer; one event at a time for an actor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
import structlog
import trio
from msgspec import UNSET

from hatchway.engine.base.clock import Clock
from hatchway.engine.base.errors import StoreUnavailable
from hatchway.engine.runtime.actors import Actor, ActorTable, Data, Effect, Moved, RegisteredChart, Rule
from hatchway.engine.runtime.records import NOBODY, Origin, Records
from hatchway.engine.runtime.timers import Timers
from hatchway.engine.store.protocol import Change, Once, Store, Stored, VersionMoved
from hatchway.statecharts.chart import NONE, Chart
from hatchway.statecharts.interpreter import EventRefused, Step

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault  # as that of Python 3.13 (PEP 696)

    Returned = TypeVarWithDefault("Returned", default=None)
    """The type of what a sender is given: None, where it names none."""

Result = TypeVar("Result")

log = structlog.get_logger(__name__)

RETRY = 1.0
"""Seconds until a delay whose step failed, or could not be stored, fires again."""


class Sent(msgspec.Struct, Generic[Result], gc=False):
    """An event on its way to an actor. The step that it leads to uses up `once` and takes `changes` into the facts; its
    sender is given what an effect returns of the type `returns`."""

    event: str
    origin: Origin
    data: Data
    returns: type[Result]
    changes: Mapping[str, Any] | None = None
    once: Once | None = None


class ChartTables(dict[str, ActorTable]):
    """The actors of each chart, by its name."""

    def __missing__(self, chart: str) -> ActorTable:
        raise KeyError(f"no chart named '{chart}' is registered; there are {', '.join(self) or 'none'}")


class Runtime:
    """Runs every chart of one engine. `run` fires the delays; the rest may be called once charts are registered."""

    def __init__(
        self,
        clock: Clock,
        records: Records,
        *,
        observe_commit: Callable[[str, float], None] = lambda chart, seconds: None,
        observe_lateness: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """`observe_commit` takes a chart's name and the seconds that a step of it took to be stored,
        `observe_lateness` the seconds that a delay fired late."""
        self.clock = clock
        self.records = records
        self.timers: Timers[Actor] = Timers(clock, self._elapse, observe_lateness)
        self._observe_commit = observe_commit
        self._tables = ChartTables()
        self._facts: dict[str, type[msgspec.Struct]] = {}
        self._moved: list[Moved] = []

    def register(
        self,
        chart: Chart,
        *,
        facts: type[msgspec.Struct],
        store: Store,
        effects: Mapping[str, Effect],
        rules: Mapping[str, Rule] | None = None,
        keep: bool = False,
        owner: Callable[[Any], str] | None = None,
    ) -> Mapping[str, Actor]:
        """Resolve every name of the chart; raises ChartFault at start rather than failing at work. Returns the live
        actors by name, as this engine knows them: a view, which changes with every step.

        `keep` leaves actors in their final state in the store until `forget`; else reaching it removes them. `owner`
        tells from the facts whose an actor is: with it, actors are found by owner and in the order of their names.
        """
        registered = RegisteredChart(chart, self.clock, effects, rules or {}, keep)
        self._tables[chart.name] = table = ActorTable(registered, store, self.timers, self._moved, owner)
        self._facts[chart.name] = facts
        store.define({chart.name: facts})
        return table.actors

    def subscribe_moves(self, moved: Moved) -> None:
        """Have `moved` called for each actor that another engine of the same store has moved."""
        self._moved.append(moved)

    # The actors as this engine knows them

    def peek(self, chart: str, actor: str) -> Actor | None:
        """The actor as this engine knows it, without waiting."""
        return self._tables[chart].actors.get(actor)

    def actors(self, chart: str) -> Iterable[Actor]:
        """The live actors of a chart, as this engine knows them: a view, which changes with every step."""
        return self._tables[chart].actors.values()

    def actors_after(self, chart: str, name: str, owner: str | None = None) -> Iterator[Actor]:
        """The actors of a chart with owners whose names come after `name`, in order; of one owner, or of all.

        Read the iterator before the next step.
        """
        table = self._tables[chart]
        assert table.index is not None
        return map(table.actors.__getitem__, table.index.after(name, owner))

    def count_of(self, chart: str, owner: str) -> int:
        """How many actors of a chart with owners this owner has."""
        index = self._tables[chart].index
        assert index is not None
        return index.count(owner)

    def forget(self, chart: str, actor: str) -> None:
        """Drop a kept actor from memory, once its store row is gone."""
        self._tables[chart].drop(actor)

    async def restore(self, chart: str) -> list[Actor]:
        """Take up every actor that the store holds, its delay armed again."""
        return await self._tables[chart].restore()

    def take_up(self, chart: str, found: Iterable[tuple[str, Stored]]) -> None:
        """Take up these actors, as the shared store has them, but for those that are here already."""
        self._tables[chart].take_up(found)

    async def absorb(self, chart: str, versions: Mapping[str, int]) -> None:
        """Other engines moved these actors to these versions, 0 for gone. Raises StoreUnavailable."""
        await self._tables[chart].absorb(versions)

    # Events

    def create(
        self,
        chart: str,
        actor: str,
        event: str,
        facts: msgspec.Struct,
        *,
        origin: Origin = NOBODY,
        once: Once | None = None,
        returns: type[Returned] = NoneType,  # type: ignore[assignment] # mypy knows no default that is generic
        **data: Any,
    ) -> Coroutine[Any, Any, Returned]:
        """A new actor by its first event. Returns what `send` does.

        `once` is used up in the same store step, or AlreadyUsed is raised. Raises TypeError for facts that the chart
        was not registered with: they could be stored, and not read again.
        """
        table, wanted = self._tables[chart], self._facts[chart]
        if type(facts) is not wanted:
            raise TypeError(f"the facts of the chart '{chart}' are a {wanted.__name__}, not a {type(facts).__name__}")
        fresh = Actor(chart, actor, NONE, 0, None, facts)
        return self._deliver(table, fresh, Sent(event, origin, data, returns, once=once))

    def send(
        self,
        chart: str,
        actor: str,
        event: str,
        *,
        origin: Origin = NOBODY,
        changes: Mapping[str, Any] | None = None,
        returns: type[Returned] = NoneType,  # type: ignore[assignment] # as above
        **data: Any,
    ) -> Coroutine[Any, Any, Returned]:
        """Send one event; `changes` are the facts it brings, taken over with the step.

        Returns the result of the row's effect that has one, where `returns` is its type; else None. Raises EventRefused
        where no row takes the event or the actor is gone, StoreUnavailable where nothing changed, TypeError where no
        effect of the row has such a result.
        """
        table, sent = self._tables[chart], Sent(event, origin, data, returns, changes)
        found = table.actors.get(actor)
        if found is None:
            if not table.store.shared:
                raise self._refused(table, actor, sent, "no_actor", None)
            found = Actor(chart, actor, NONE, 0, None, None)  # it may be another engine's: it is loaded under its lock
        return self._deliver(table, found, sent)

    async def run(self) -> None:
        """Fire the delays as they come due, until cancelled."""
        await self.timers.run()

    async def _deliver(self, table: ActorTable, actor: Actor, sent: Sent[Result]) -> Result:
        """Take the event under the actor's lock. From then on it runs to completion, also where the sender is
        cancelled."""
        if not table.locks.acquire_free(actor.id):
            await table.locks.acquire(actor.id)
        try:
            if table.store.shields_commit:
                result = await self._take(table, actor, sent)
            else:
                with trio.CancelScope(shield=True):
                    result = await self._take(table, actor, sent)
            return result
        finally:
            table.locks.release(actor.id)

    async def _take(self, table: ActorTable, actor: Actor, sent: Sent[Result]) -> Result:
        fresh = actor.state == NONE and actor.facts is not None
        # Another engine of a shared store may have moved the actor, so it is read under its lock before the step. One
        # that is being created is in no store yet.
        believed = fresh or not table.store.shared
        if not fresh:
            actor = table.actors.get(actor.id, actor)
        while True:
            if not believed:
                found = await table.load(actor)
                if found is None:
                    raise self._refused(table, actor.id, sent, "no_actor", None)
                actor = found
            try:
                due = table.due_event(actor)
                if due is not None and due != sent.event:
                    await self._step(table, actor, Sent(due, NOBODY, {}, NoneType))
                return await self._step(table, actor, sent)
            except VersionMoved:
                believed = False

    async def _step(self, table: ActorTable, actor: Actor, sent: Sent[Result]) -> Result:
        """Take one row and store it. Raises VersionMoved where another engine was first: the caller decides anew which
        event is due."""
        chart = table.chart
        step = self._advance(table, actor, sent)
        facts = msgspec.structs.replace(actor.facts, **sent.changes) if sent.changes else actor.facts
        timing = chart.timings.get(step.target)
        since = timing.now() if timing else 0.0
        deadline = timing.deadline(facts, since) if timing else None
        removed = step.target in chart.removed_in
        stored = None
        if not removed:
            # Elapsed seconds mean nothing after a reboot, so only a deadline of the wall clock is stored.
            kept = deadline if timing and timing.clock == "wall" else None
            stored = Stored(actor.version + 1, step.target, kept, facts)
        began = self.clock.elapsed()
        await table.store.commit(Change(chart.name, actor.id, actor.version, stored, sent.once))
        self._observe_commit(chart.name, self.clock.elapsed() - began)
        actor.state, actor.version, actor.facts, actor.deadline = step.target, actor.version + 1, facts, deadline
        if timing and timing.clock == "elapsed":
            actor.since = since
        if removed:
            table.drop(actor.id)
        else:
            table.put(actor.id, actor)
        table.arm(actor)
        cause = sent.data.get("cause")
        self.records.transition(
            chart.name,
            actor.id,
            sent.event,
            step.source,
            step.target,
            step.effects,
            sent.origin,
            cause,
            *chart.seen(step.source, sent.data),
            sent.data.get("label"),
            sent.data.get("comment"),
        )
        returned, returns = None, sent.returns
        for effect in chart.effects[step.index]:
            result = effect(actor, sent.data)
            if result is not None:
                if isinstance(result, Awaitable):
                    with trio.CancelScope(shield=True):
                        result = await result
                returned = result if isinstance(result, returns) else returned
        if not isinstance(returned, returns):
            raise TypeError(f"no effect of {chart.name}'s {sent.event} returns {returns.__name__}")
        return returned

    def _advance(self, table: ActorTable, actor: Actor, sent: Sent[Any]) -> Step:
        timing, data = table.chart.timings.get(actor.state), sent.data
        data["now"] = timing.now() if timing else self.clock.elapsed()
        data["deadline"], data["since"] = actor.deadline, actor.since
        try:
            return table.chart.advance(actor.state, sent.event, data)
        except EventRefused as refused:
            raise self._refused(table, actor.id, sent, refused.cause, actor.state) from None

    def _refused(self, table: ActorTable, actor: str, sent: Sent[Any], cause: str, state: str | None) -> EventRefused:
        seen = (UNSET, None) if state is None else table.chart.seen(state, sent.data)
        self.records.refusal(table.chart.name, actor, sent.event, cause, sent.origin, state, *seen)
        return EventRefused(table.chart.name, state or NONE, sent.event, cause)

    # Delays

    async def _elapse(self, actor: Actor) -> None:
        """A delay fired. The actor may have moved on, or its delay been extended, while this waited for its lock."""
        table = self._tables[actor.chart]
        try:
            await self.catch_up(actor)
        except StoreUnavailable as error:
            log.warning("delay_not_stored", chart=actor.chart, actor=actor.id, why=error.why)
        except Exception:
            # An error in one actor's delay must not end the task that fires all delays.
            log.exception("delay_failed", chart=actor.chart, actor=actor.id)
        else:
            return
        if (timing := table.chart.timings.get(actor.state)) is not None:  # else it has ended meanwhile
            self.timers.arm(actor, timing.now() + RETRY, timing.clock)

    async def catch_up(self, actor: Actor) -> None:
        """Take the elapsed row where it is due, without waiting for its timer."""
        table = self._tables[actor.chart]
        await table.locks.acquire(actor.id)
        try:
            if table.store.shared and await table.load(actor) is None:
                return  # another engine was first
            with trio.CancelScope(shield=True):
                await self._take_due(table, actor)
        finally:
            table.locks.release(actor.id)

    async def _take_due(self, table: ActorTable, actor: Actor) -> None:
        while (due := table.due_event(actor)) is not None:
            try:
                await self._step(table, actor, Sent(due, NOBODY, {}, NoneType))
            except VersionMoved:
                if await table.load(actor) is None:
                    return
            else:
                return
