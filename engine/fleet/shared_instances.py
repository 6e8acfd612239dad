"""One engine's store of its instances, which the fleet reads too: its own file is the truth, the roster tells of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec
import structlog
import trio

from hatchway.engine.base.errors import InstanceExists, StoreUnavailable
from hatchway.engine.fleet.roster import InstanceReport, Roster, generation_of, without_values
from hatchway.engine.instances.supervisor import InstanceFacts
from hatchway.engine.runtime import ActorLocks, Runtime
from hatchway.engine.store.protocol import Change, Store, Stored
from hatchway.statecharts import instance

log = structlog.get_logger(__name__)

LOOK = 1.0
"""Seconds between two looks for what the fleet has not been told yet, or what a start is doing by now."""

COMPARED = 60.0
"""Seconds between two comparisons of all that the fleet was told with all that is so."""

WORKED_AT = ("requested", "starting", "queued")
"""States in which there is progress to tell of."""

Progress = Callable[[str, str], str | None]
"""Takes an instance's name and state."""


class SharedInstances:
    """A store for the chart of instances alone. What others may see is told before an answer rests on it; what can't
    be told while the fleet's store is away is told later."""

    shields_commit = False
    shared = False  # no other engine steps what this one started

    def __init__(self, own: Store, roster: Roster, runtime: Runtime, progress: Progress) -> None:
        self._own, self.roster, self._runtime, self._progress_in = own, roster, runtime, progress
        self._locks = ActorLocks()
        self._untold: dict[str, str] = {}
        """Names, each with the life of what may stand under it although it is gone."""
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
        """As the own store's. Raises InstanceExists too, where a new one's name is taken on another host."""
        if change.expected == 0 and change.stored is not None:
            await self._enter(change, change.stored)
            return
        await self._own.commit(change)
        life = self._life(change.actor)
        async with self._turn(change.actor):
            try:
                await self._write(change.actor, life, change.stored)
            except StoreUnavailable as lost:
                log.warning("instance_not_told", instance=change.actor, why=lost.detail)

    async def _enter(self, change: Change, stored: Stored) -> None:
        """A new one: its name is the fleet's to give, and is asked for first. An answer that is lost may have given it
        to us, so it stays untold until the instance is stored."""
        assert isinstance(stored.facts, InstanceFacts)
        name, life = change.actor, generation_of(stored.facts)
        async with self._turn(name):
            held = await self._write(name, life, stored)
            if held:
                raise InstanceExists(f"an instance named {name} is there already, on {held}")
            self._untold[name] = life
            await self._own.commit(change)
            del self._untold[name]

    async def _write(self, name: str, life: str, stored: Stored | None) -> str:
        """Tell how it is now, None for gone; the host that has the name, empty where it is ours. In its turn."""
        self._untold[name] = life
        held = ""
        if stored is None:
            await self.roster.drop(name, life)
            self._progress.pop(name, None)
        else:
            live = stored.state not in instance.CHART.final
            held = await self.roster.enter(name, stored.version, live, self._told(name, stored))
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
        """A live one whose name another host has, because the fleet's store had forgotten ours: it is shown here."""
        if not held or stored is None or stored.version == 1 or stored.state in instance.CHART.final:
            self._refused.discard(name)
        elif name not in self._refused:
            self._refused.add(name)
            log.warning("instance_name_taken", instance=name, host=held)

    def _progress_now(self, name: str, state: str) -> str | None:
        return self._progress_in(name, state) if state in WORKED_AT else None

    def _life(self, name: str) -> str:
        actor = self._runtime.peek("instance", name)
        return generation_of(actor.facts) if actor else ""

    @asynccontextmanager
    async def _turn(self, name: str) -> AsyncIterator[None]:
        """One is told at a time of each name, so that nothing older comes after."""
        await self._locks.acquire(name)
        try:
            yield
        finally:
            self._locks.release(name)

    # What was not told in time

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Compare at once, for an engine before this one may have been cut off; then keep telling, for ever."""
        await _try(self._compare)
        task_status.started()
        while True:
            with trio.move_on_after(COMPARED):
                while True:
                    await trio.sleep(LOOK)
                    await _try(self._tell_rest)
            await _try(self._compare)

    async def _compare(self) -> None:
        """Find what the fleet was told and is not so, or was not told."""
        told = {row.name: row for row in await self.roster.rows() if row.home == self.roster.home}
        for actor in self._runtime.actors("instance"):
            row, life = told.pop(actor.id, None), generation_of(actor.facts)
            if row is None or (row.life, row.version) != (life, actor.version):
                self._untold[actor.id] = life
        self._untold |= {name: row.life for name, row in told.items()}
        await self._tell_rest()

    async def _tell_rest(self) -> None:
        for actor in self._runtime.actors("instance"):
            if self._progress_now(actor.id, actor.state) != self._progress.get(actor.id):
                self._untold[actor.id] = generation_of(actor.facts)
        for name, life in list(self._untold.items()):
            async with self._turn(name):
                held = self._runtime.peek("instance", name)
                if held is None:
                    await self._write(name, life, None)
                else:
                    stored = Stored(held.version, held.state, None, held.facts)
                    await self._write(name, generation_of(held.facts), stored)


async def _try(work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except StoreUnavailable:
        pass  # the link itself says so; it is tried again
    except Exception:
        log.exception("instances_not_told")
