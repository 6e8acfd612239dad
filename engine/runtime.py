"""The event loop of the charts: advance, store, log, delays, effects, answer; one event to completion an actor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from operator import itemgetter
from typing import Any

import msgspec
import structlog
import trio

from engine.clock import Clock
from engine.errors import StoreUnavailable
from engine.kinds import Actor, Data, Effect, Kind, Rule
from engine.mirror import Mirror
from engine.records import NOBODY, Origin, Records
from engine.store.protocol import Change, Once, Store, Stored, VersionMoved
from engine.timers import Timers
from statecharts.chart import NONE, Chart
from statecharts.interpreter import EventRefused, Step

__all__ = ["Actor", "Data", "Effect", "Outcome", "Runtime"]

log = structlog.get_logger(__name__)

Outcome = dict[str, Any]
"""What the effects of a taken step returned, by name."""

RETRY = 1.0
"""Seconds until a delay that could not be stored is tried again."""


class Sent(msgspec.Struct, gc=False):
    """An event on its way to an actor. `once` is used up by the step it leads to, `changes` become facts with it."""

    event: str
    origin: Origin
    data: Data
    changes: Mapping[str, Any] | None = None
    once: Once | None = None


class Runtime(Mirror):
    """Runs every chart of one engine. `run` fires the delays; the rest may be called once charts are registered."""

    def __init__(self, clock: Clock, records: Records) -> None:
        super().__init__(Timers(clock, self._elapse))
        self.clock = clock
        self.records = records
        self.observe_commit: Callable[[str, float], None] | None = None
        """Told how long each step took to be stored, in seconds."""

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
    ) -> None:
        """Resolve every name of the chart; raises ChartFault at start rather than failing at work.

        `keep` leaves actors in their final state in the store until `forget`; else reaching it removes them. `owner`
        tells from the facts whose an actor is: with it, actors are found by owner and in the order of their names.
        """
        self._kinds[chart.name] = Kind(chart, facts, store, self.clock, effects, rules or {}, keep, owner)
        store.define({chart.name: facts})

    async def restore(self, chart: str) -> list[Actor]:
        """Take up every actor that the store holds, its delay armed again."""
        kind = self._kinds[chart]
        found = await kind.store.live(chart)
        found.sort(key=itemgetter(0))  # an index of names grows at its end
        for name, stored in found:
            actor = Actor(chart, name, stored.state, stored.version, stored.deadline, stored.facts)
            kind.put(name, actor)
            timing = kind.timings.get(stored.state)
            if timing and actor.deadline is None:
                actor.deadline = timing.deadline(actor.facts, timing.now())
            self._arm(kind, actor)
        return list(kind.actors.values())

    async def create(
        self,
        chart: str,
        actor: str,
        event: str,
        facts: msgspec.Struct,
        *,
        origin: Origin = NOBODY,
        once: Once | None = None,
        **data: Any,
    ) -> Outcome:
        """A new actor by its first event. `once` is used up in the same store step, or AlreadyUsed is raised."""
        fresh = Actor(chart, actor, NONE, 0, None, facts)
        return await self._deliver(self._kinds[chart], fresh, Sent(event, origin, data, once=once))

    async def send(
        self,
        chart: str,
        actor: str,
        event: str,
        *,
        origin: Origin = NOBODY,
        changes: Mapping[str, Any] | None = None,
        **data: Any,
    ) -> Outcome:
        """Send one event; `changes` are the facts it brings, taken over with the step.

        Raises EventRefused where no row takes it or the actor is gone, StoreUnavailable where nothing changed.
        """
        kind, sent = self._kinds[chart], Sent(event, origin, data, changes)
        found = kind.actors.get(actor)
        if found is None:
            if not kind.store.shared:
                raise self._refused(kind, actor, sent, "no_actor", None)
            found = Actor(chart, actor, NONE, 0, None, None)  # another engine's, perhaps: its turn tells
        return await self._deliver(kind, found, sent)

    async def run(self) -> None:
        """Fire the delays as they come due, until cancelled."""
        await self.timers.run()

    async def _deliver(self, kind: Kind, actor: Actor, sent: Sent) -> Outcome:
        """The event in its turn. From its turn on it runs to completion, whoever has stopped waiting for it."""
        key = (kind.name, actor.id)
        await self._turns.wait(key)
        try:
            if kind.uncancellable:
                outcome = await self._take(kind, actor, sent)
            else:
                with trio.CancelScope(shield=True):
                    outcome = await self._take(kind, actor, sent)
            return outcome
        finally:
            self._turns.give(key)

    async def _take(self, kind: Kind, actor: Actor, sent: Sent) -> Outcome:
        fresh = actor.state == NONE and actor.facts is not None
        believed = fresh or not kind.store.shared
        if not fresh:
            actor = kind.actors.get(actor.id, actor)
        while True:
            if not believed:
                found = await self._load(kind, actor)
                if found is None:
                    raise self._refused(kind, actor.id, sent, "no_actor", None)
                actor = found
            try:
                due = self._due_event(kind, actor)
                if due is not None and due != sent.event:
                    await self._step(kind, actor, Sent(due, NOBODY, {}))
                return await self._step(kind, actor, sent)
            except VersionMoved:
                believed = False

    def _due_event(self, kind: Kind, actor: Actor) -> str | None:
        """The time event that is due in the actor's state, if its deadline has come."""
        timing = kind.timings.get(actor.state)
        if timing is None or actor.deadline is None or timing.now() < actor.deadline:
            return None
        return timing.event

    async def _step(self, kind: Kind, actor: Actor, sent: Sent) -> Outcome:
        """One row taken and stored. Raises VersionMoved where somebody else was first: look again what is due."""
        step = self._advance(kind, actor, sent)
        facts = msgspec.structs.replace(actor.facts, **sent.changes) if sent.changes else actor.facts
        timing = kind.timings.get(step.target)
        deadline = timing.deadline(facts, timing.now()) if timing else None
        stored = None
        if step.target not in kind.removed_in:
            # Elapsed seconds mean nothing after a reboot: only a wall deadline is kept.
            kept = deadline if timing and timing.clock == "wall" else None
            stored = Stored(actor.version + 1, step.target, kept, facts)
        await self._commit(kind, Change(kind.name, actor.id, actor.version, stored, sent.once))
        self._settle(kind, actor, step, facts, deadline)
        self.records.transition(
            kind.name, actor.id, sent.event, step.source, step.target, step.effects, sent.origin, sent.data.get("cause")
        )
        return await self._run_effects(kind, actor, step, sent.data)

    def _advance(self, kind: Kind, actor: Actor, sent: Sent) -> Step:
        timing, data = kind.timings.get(actor.state), sent.data
        data["now"] = timing.now() if timing else self.clock.elapsed()
        data["deadline"] = actor.deadline
        try:
            return kind.advance(actor.state, sent.event, data)
        except EventRefused as refused:
            raise self._refused(kind, actor.id, sent, refused.cause, actor.state) from None

    def _refused(self, kind: Kind, actor: str, sent: Sent, cause: str, state: str | None) -> EventRefused:
        self.records.refusal(kind.name, actor, sent.event, cause, sent.origin, state)
        return EventRefused(kind.name, state or NONE, sent.event, cause)

    async def _commit(self, kind: Kind, change: Change) -> None:
        if self.observe_commit is None:
            await kind.store.commit(change)
        else:
            began = self.clock.elapsed()
            await kind.store.commit(change)
            self.observe_commit(kind.name, self.clock.elapsed() - began)

    def _settle(self, kind: Kind, actor: Actor, step: Step, facts: Any, deadline: float | None) -> None:
        actor.state, actor.version, actor.facts, actor.deadline = step.target, actor.version + 1, facts, deadline
        if step.target in kind.removed_in:
            kind.drop(actor.id)
        else:
            kind.put(actor.id, actor)
        self._arm(kind, actor)

    async def _run_effects(self, kind: Kind, actor: Actor, step: Step, data: Data) -> Outcome:
        outcome: Outcome = {}
        for name, effect in kind.effects[step.row]:
            result = effect(actor, data)
            if result is not None and isinstance(result, Awaitable):
                with trio.CancelScope(shield=True):
                    result = await result
            outcome[name] = result
        return outcome

    async def _elapse(self, actor: Actor) -> None:
        """A delay fired. What it finds may have moved on, or have been renewed, while it waited its turn."""
        kind = self._kinds[actor.chart]
        try:
            await self.catch_up(actor)
        except StoreUnavailable as error:
            log.warning("delay_not_stored", chart=actor.chart, actor=actor.id, why=error.detail)
            self._retry(kind, actor)
        except Exception:
            # One actor's fault must not stop the clock of all the others.
            log.exception("delay_failed", chart=actor.chart, actor=actor.id)

    async def catch_up(self, actor: Actor) -> None:
        """Take the elapsed row if it is due, now rather than when its timer comes round."""
        kind, key = self._kinds[actor.chart], (actor.chart, actor.id)
        await self._turns.wait(key)
        try:
            if kind.store.shared and await self._load(kind, actor) is None:
                return  # another engine was first
            with trio.CancelScope(shield=True):
                await self._take_due(kind, actor)
        finally:
            self._turns.give(key)

    async def _take_due(self, kind: Kind, actor: Actor) -> None:
        while (due := self._due_event(kind, actor)) is not None:
            try:
                await self._step(kind, actor, Sent(due, NOBODY, {}))
            except VersionMoved:
                if await self._load(kind, actor) is None:
                    return
            else:
                return

    def _retry(self, kind: Kind, actor: Actor) -> None:
        timing = kind.timings[actor.state]
        self.timers.arm(actor, timing.now() + RETRY, timing.clock)
