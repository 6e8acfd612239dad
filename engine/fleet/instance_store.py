"""An engine's store of instances in a fleet: its own file counts, and the roster shows it to the other engines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec
import structlog
import trio

from hatchway.engine.base.errors import InstanceExists, StoreUnavailable
from hatchway.engine.fleet.roster import FULL, InstanceReport, Roster, generation_of, without_values
from hatchway.engine.instances.instances import Allowance, too_many_of_key, unlimited
from hatchway.engine.instances.supervisor import InstanceFacts
from hatchway.engine.runtime import ActorLocks, Runtime
from hatchway.engine.store.protocol import Change, Store, Stored
from hatchway.statecharts import instance

log = structlog.get_logger(__name__)

LOOK_INTERVAL = 1.0
"""Seconds between two looks for rows that could not be written yet, and for progress of starts."""

COMPARE_INTERVAL = 60.0
"""Seconds between two comparisons of all rows with all instances."""

WORKED_AT = ("requested", "starting", "queued")
"""States in which an instance has progress to show."""

Progress = Callable[[str, str], str | None]
"""Takes an instance's name and state; returns what its start is doing, None for nothing."""


class FleetInstanceStore:
    """A store for the instance chart alone. A change is shown to the other engines before it is confirmed; where the
    fleet's store is away, it is shown later."""

    shields_commit = False
    shared = False  # no other engine changes these instances

    def __init__(
        self, own: Store, roster: Roster, runtime: Runtime, progress: Progress, allowance: Allowance = unlimited
    ) -> None:
        """`allowance` tells how many live ones an owner's key allows it in the whole fleet."""
        self._own, self.roster, self._runtime, self._progress_in = own, roster, runtime, progress
        self._allowance = allowance
        self._locks = ActorLocks()
        self._untold: dict[str, str] = {}
        """Names whose row may not be as it should, each with the generation that the row may have been written for."""
        self._progress: dict[str, str | None] = {}
        self._refused: set[str] = set()

    def define(self, facts: Mapping[str, type[msgspec.Struct]]) -> None:
        self._own.define(facts)

    async def load(self, chart: str, actor: str) -> Stored | None:
        return await self._own.load(chart, actor)

    async def load_many(self, chart: str, actors: Sequence[str]) -> list[Stored | None]:
        return await self._own.load_many(chart, actors)

    async def live(self, chart: str) -> list[tuple[str, Stored]]:
        return await self._own.live(chart)

    async def identity(self) -> str:
        return await self._own.identity()

    def check(self) -> None:
        self._own.check()

    def size(self) -> int:
        return self._own.size()

    async def commit(self, change: Change) -> None:
        """As the own store's. Raises InstanceExists too, where another host has the name of a new instance, and
        TooManyInstances, where the fleet has as many instances of its owner as the owner's key allows."""
        if change.expected == 0 and change.stored is not None:
            await self._enter(change, change.stored)
            return
        await self._own.commit(change)
        generation = self._generation(change.actor)
        async with self._locked(change.actor):
            try:
                await self._write(change.actor, generation, change.stored)
            except StoreUnavailable as lost:
                log.warning("instance_not_told", instance=change.actor, why=lost.why)

    async def _enter(self, change: Change, stored: Stored) -> None:
        """Store a new instance, once the roster has taken its name. Raises InstanceExists where another host has it.

        The roster may have taken the name though its answer was lost: so the name stays untold until the instance is
        stored.
        """
        assert isinstance(stored.facts, InstanceFacts)
        name, generation = change.actor, generation_of(stored.facts)
        async with self._locked(name):
            held = await self._write(name, generation, stored, self._allowance(stored.facts.owner))
            if held == FULL:
                raise too_many_of_key(self._allowance(stored.facts.owner) or 0)
            if held:
                raise InstanceExists(f"an instance named {name} is there already, on {held}")
            self._untold[name] = generation
            await self._own.commit(change)
            del self._untold[name]

    async def _write(self, name: str, generation: str, stored: Stored | None, most: int | None = None) -> str:
        """Write the instance's row, or delete it where `stored` is None. Returns the host that has the name, empty
        where that is this one; with `most` as `Roster.enter`. The caller holds the name's `_locked`."""
        self._untold[name] = generation
        held = ""
        if stored is None:
            await self.roster.drop(name, generation)
            self._progress.pop(name, None)
        else:
            live = stored.state not in instance.CHART.final
            held = await self.roster.enter(name, stored.version, live, self._told(name, stored), most)
        del self._untold[name]
        self._mark(name, held, stored)
        return held

    def _told(self, name: str, stored: Stored) -> InstanceReport:
        facts = stored.facts
        assert isinstance(facts, InstanceFacts)
        self._progress[name] = self._progress_now(name, stored.state)
        facts = msgspec.structs.replace(facts, request=without_values(facts.request))
        return InstanceReport(stored.state, self._progress[name], facts)

    def _mark(self, name: str, held: str, stored: Stored | None) -> None:
        """Log it once where another host has the name of a live instance, as after the store lost its rows. The
        instance goes on, and is shown by this engine alone."""
        if not held or stored is None or stored.version == 1 or stored.state in instance.CHART.final:
            self._refused.discard(name)
        elif name not in self._refused:
            self._refused.add(name)
            log.warning("instance_name_taken", instance=name, host=held)

    def _progress_now(self, name: str, state: str) -> str | None:
        return self._progress_in(name, state) if state in WORKED_AT else None

    def _generation(self, name: str) -> str:
        actor = self._runtime.peek("instance", name)
        return generation_of(actor.facts) if actor else ""

    @asynccontextmanager
    async def _locked(self, name: str) -> AsyncIterator[None]:
        """The name's lock, for the block: its row is written by one task at a time, so that none writes an older state
        last."""
        await self._locks.acquire(name)
        try:
            yield
        finally:
            self._locks.release(name)

    # Rows that could not be written in time

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Compare at once, since an earlier run may have ended between a change and its row; then go on for ever."""
        await _try(self._compare)
        task_status.started()
        while True:
            with trio.move_on_after(COMPARE_INTERVAL):
                while True:
                    await trio.sleep(LOOK_INTERVAL)
                    await _try(self._tell_rest)
            await _try(self._compare)

    async def _compare(self) -> None:
        """Compare all rows with all instances, and write those that differ."""
        told = {row.name: row for row in await self.roster.rows() if row.engine_id == self.roster.engine_id}
        for actor in self._runtime.actors("instance"):
            row, generation = told.pop(actor.id, None), generation_of(actor.facts)
            if row is None or (row.generation, row.version) != (generation, actor.version):
                self._untold[actor.id] = generation
        self._untold |= {name: row.generation for name, row in told.items()}
        await self._tell_rest()

    async def _tell_rest(self) -> None:
        for actor in self._runtime.actors("instance"):
            if self._progress_now(actor.id, actor.state) != self._progress.get(actor.id):
                self._untold[actor.id] = generation_of(actor.facts)
        for name, generation in list(self._untold.items()):
            async with self._locked(name):
                held = self._runtime.peek("instance", name)
                if held is None:
                    await self._write(name, generation, None)
                else:
                    stored = Stored(held.version, held.state, None, held.facts)
                    await self._write(name, generation_of(held.facts), stored)


async def _try(work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except StoreUnavailable:
        pass  # the link has logged it, and the next look tries again
    except Exception:
        log.exception("instances_not_told")
