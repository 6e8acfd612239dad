"""The event loop of the charts: advance, store, log, delays, effects, answer; one event to completion an actor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec
import structlog
import trio

from engine.clock import Clock
from engine.errors import StoreUnavailable
from engine.records import NOBODY, Origin, Records
from engine.store.protocol import Change, Once, Store, Stored, VersionMoved
from engine.timers import Timers
from statecharts.chart import NONE, Chart, ChartFault, Delay
from statecharts.interpreter import EventRefused, Interpreter, Step

log = structlog.get_logger(__name__)

RETRY = 1.0
"""Seconds until a delay that could not be stored is tried again."""


class Actor:
    """One pairing, session or instance. Only this module sets `state`, and only to what a step says."""

    __slots__ = ("chart", "deadline", "facts", "id", "state", "timer", "version")

    def __init__(self, chart: str, actor: str, state: str, version: int, deadline: float | None, facts: Any) -> None:
        self.chart, self.id, self.state, self.version = chart, actor, state, version
        self.deadline, self.facts = deadline, facts
        self.timer = 0


class Outcome:
    """A taken step: the actor after it, and what its effects returned, by name."""

    __slots__ = ("actor", "results", "step")

    def __init__(self, actor: Actor, step: Step) -> None:
        self.actor, self.step = actor, step
        self.results: dict[str, Any] = {}


Data = dict[str, Any]
Effect = Callable[[Actor, Data], Any]
"""Runs after the state is stored, told the actor and what the event brought. May return an awaitable; must not send an
event to its own actor and wait for it."""

Rule = Callable[[Any, float], float]
"""A named delay: from an actor's facts and the time now, on the delay's clock, to the deadline."""


class _Kind:
    """A chart with everything its names stand for."""

    def __init__(
        self,
        chart: Chart,
        facts: type,
        store: Store,
        effects: Mapping[str, Effect],
        rules: Mapping[str, Rule],
        keep: bool,
    ) -> None:
        wanted = {delay.seconds for delay in chart.delays.values() if isinstance(delay.seconds, str)}
        for kind, named, given in (("effect", chart.effects, set(effects)), ("delay", wanted, set(rules))):
            if named != given:
                names = ", ".join(sorted(map(str, named ^ given)))
                raise ChartFault(f"{chart.name}: {kind} without a handler, or handler without a name: {names}")
        self.interpreter = Interpreter(chart)
        self.chart, self.facts, self.store, self.keep = chart, facts, store, keep
        self.effects = {row: tuple((name, effects[name]) for name in row.effects) for row in chart.rows}
        self.rules = rules
        self.actors: dict[str, Actor] = {}

    def deadline(self, delay: Delay, facts: Any, now: float) -> float:
        if isinstance(delay.seconds, str):
            return self.rules[delay.seconds](facts, now)
        return now + delay.seconds


class _Inbox:
    """The turn of one event at one actor; the next waiting one is handed it, in order."""

    __slots__ = ("_key", "_lot", "_lots")

    def __init__(self, lots: dict[tuple[str, str], trio.lowlevel.ParkingLot], key: tuple[str, str]) -> None:
        self._lots, self._key = lots, key

    async def __aenter__(self) -> None:
        lot = self._lots.get(self._key)
        if lot is None:
            self._lot = self._lots[self._key] = trio.lowlevel.ParkingLot()
        else:
            self._lot = lot
            await lot.park()

    async def __aexit__(self, *error: object) -> None:
        if not self._lot.unpark():
            del self._lots[self._key]


class Runtime:
    """Runs every chart of one engine. `run` fires the delays; everything else may be called once charts are registered."""

    def __init__(self, clock: Clock, records: Records) -> None:
        self.clock = clock
        self.records = records
        self.timers: Timers[Actor] = Timers(clock, self._elapse)
        self._kinds: dict[str, _Kind] = {}
        self._inboxes: dict[tuple[str, str], trio.lowlevel.ParkingLot] = {}
        self._now = {"elapsed": clock.elapsed, "wall": clock.wall}
        self.observe_commit: Callable[[str, float], None] = lambda chart, seconds: None
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
    ) -> None:
        """Resolve every name of the chart; raises ChartFault at start rather than failing at work.

        `keep` leaves actors in their final state in the store until `forget`; else reaching it removes them.
        """
        self._kinds[chart.name] = _Kind(chart, facts, store, effects, rules or {}, keep)
        store.define({chart.name: facts})

    async def restore(self, chart: str) -> list[Actor]:
        """Take up every actor that the store holds, its delay armed again."""
        kind = self._kinds[chart]
        for name, stored in await kind.store.live(chart):
            actor = Actor(chart, name, stored.state, stored.version, stored.deadline, stored.facts)
            kind.actors[name] = actor
            delay = kind.chart.delays.get(stored.state)
            if delay and actor.deadline is None:
                actor.deadline = kind.deadline(delay, actor.facts, self._now[delay.clock]())
            self._arm(kind, actor)
        return list(kind.actors.values())

    def peek(self, chart: str, actor: str) -> Actor | None:
        """The actor as this engine knows it, without waiting."""
        return self._kinds[chart].actors.get(actor)

    def actors(self, chart: str) -> Iterable[Actor]:
        return self._kinds[chart].actors.values()

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
        return await self._deliver(self._kinds[chart], fresh, event, origin, None, data, once)

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

        Raises EventRefused where no row takes it (also where the actor is gone), StoreUnavailable where nothing changed.
        """
        kind = self._kinds[chart]
        found = await self._find(kind, actor)
        if found is None:
            self.records.refusal(chart, actor, event, "no_actor", origin)
            raise EventRefused(chart, NONE, event, "no_actor")
        return await self._deliver(kind, found, event, origin, changes, data)

    def forget(self, chart: str, actor: str) -> None:
        """Drop a kept actor from memory, once its store row is gone."""
        self._kinds[chart].actors.pop(actor, None)

    async def run(self) -> None:
        await self.timers.run()

    async def _find(self, kind: _Kind, name: str) -> Actor | None:
        held = kind.actors.get(name)
        if not kind.store.shared:
            return held
        stored = await kind.store.load(kind.chart.name, name)
        return self._reload(kind, held or Actor(kind.chart.name, name, NONE, 0, None, None), stored)

    def _reload(self, kind: _Kind, actor: Actor, stored: Stored | None) -> Actor | None:
        """Believe the store: the actor moved elsewhere, or is gone."""
        if stored is None:
            kind.actors.pop(actor.id, None)
            self.timers.disarm(actor)
            return None
        if stored.version != actor.version:
            actor.state, actor.version, actor.facts = stored.state, stored.version, stored.facts
            actor.deadline = stored.deadline
            self._arm(kind, actor)
        kind.actors[actor.id] = actor
        return actor

    async def _deliver(
        self,
        kind: _Kind,
        actor: Actor,
        event: str,
        origin: Origin,
        changes: Mapping[str, Any] | None,
        data: Data,
        once: Once | None = None,
    ) -> Outcome:
        async with _Inbox(self._inboxes, (kind.chart.name, actor.id)):
            # From here on the event runs to completion, whoever has stopped waiting for it.
            with trio.CancelScope(shield=True):
                if event != self._due_event(kind, actor):
                    await self._take_elapsed_row_first(kind, actor)
                outcome = await self._step(kind, actor, event, origin, changes, data, once)
        return outcome

    def _due_event(self, kind: _Kind, actor: Actor) -> str | None:
        """The time event that is due in the actor's state, if its deadline has come."""
        delay = kind.chart.delays.get(actor.state)
        if delay is None or actor.deadline is None or self._now[delay.clock]() < actor.deadline:
            return None
        return delay.event

    async def _take_elapsed_row_first(self, kind: _Kind, actor: Actor) -> None:
        due = self._due_event(kind, actor)
        if due is not None:
            await self._step(kind, actor, due, NOBODY, None, {}, None)

    async def _step(
        self,
        kind: _Kind,
        actor: Actor,
        event: str,
        origin: Origin,
        changes: Mapping[str, Any] | None,
        data: Data,
        once: Once | None,
    ) -> Outcome:
        while True:
            delay = kind.chart.delays.get(actor.state)
            data["now"] = self._now[delay.clock if delay else "elapsed"]()
            data["deadline"] = actor.deadline
            try:
                step = kind.interpreter.advance(actor.state, event, data)
            except EventRefused as refused:
                self.records.refusal(kind.chart.name, actor.id, event, refused.cause, origin, actor.state)
                raise
            facts = msgspec.structs.replace(actor.facts, **changes) if changes else actor.facts
            try:
                deadline = await self._store(kind, actor, step, facts, once)
                break
            except VersionMoved:
                stored = await kind.store.load(kind.chart.name, actor.id)
                if self._reload(kind, actor, stored) is None:
                    self.records.refusal(kind.chart.name, actor.id, event, "no_actor", origin)
                    raise EventRefused(kind.chart.name, NONE, event, "no_actor") from None
        self._settle(kind, actor, step, facts, deadline)
        self.records.transition(
            kind.chart.name, actor.id, event, step.source, step.target, step.effects, origin, data.get("cause")
        )
        return await self._run_effects(kind, actor, step, data)

    async def _store(self, kind: _Kind, actor: Actor, step: Step, facts: Any, once: Once | None) -> float | None:
        """Commit the step; returns the new state's deadline on its delay's clock."""
        delay = kind.chart.delays.get(step.target)
        deadline = kind.deadline(delay, facts, self._now[delay.clock]()) if delay else None
        stored = None
        if kind.keep or step.target not in kind.chart.final:
            # Elapsed seconds mean nothing after a reboot: only a wall deadline is kept.
            kept = deadline if delay and delay.clock == "wall" else None
            stored = Stored(actor.version + 1, step.target, kept, facts)
        began = self.clock.elapsed()
        await kind.store.commit(Change(kind.chart.name, actor.id, actor.version, stored, once))
        self.observe_commit(kind.chart.name, self.clock.elapsed() - began)
        return deadline

    def _settle(self, kind: _Kind, actor: Actor, step: Step, facts: Any, deadline: float | None) -> None:
        actor.state, actor.version, actor.facts, actor.deadline = step.target, actor.version + 1, facts, deadline
        if step.target in kind.chart.final and not kind.keep:
            kind.actors.pop(actor.id, None)
        else:
            kind.actors[actor.id] = actor
        self._arm(kind, actor)

    def _arm(self, kind: _Kind, actor: Actor) -> None:
        delay = kind.chart.delays.get(actor.state)
        if delay is not None and actor.deadline is not None:
            self.timers.arm(actor, actor.deadline, delay.clock)
        else:
            self.timers.disarm(actor)

    async def _run_effects(self, kind: _Kind, actor: Actor, step: Step, data: Data) -> Outcome:
        outcome = Outcome(actor, step)
        for name, effect in kind.effects[step.row]:
            result = effect(actor, data)
            outcome.results[name] = await result if isinstance(result, Awaitable) else result
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
        async with _Inbox(self._inboxes, (actor.chart, actor.id)):
            with trio.CancelScope(shield=True):
                await self._take_elapsed_row_first(self._kinds[actor.chart], actor)

    def _retry(self, kind: _Kind, actor: Actor) -> None:
        delay = kind.chart.delays[actor.state]
        self.timers.arm(actor, self._now[delay.clock]() + RETRY, delay.clock)
