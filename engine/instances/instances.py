"""The instance service: requests, starts, ends and logs of containers on the platform (section 4.5)."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

import trio

from hatchway.engine.base.errors import InstanceExists, InstanceNotFound, TooManyInstances
from hatchway.engine.base.words import counted
from hatchway.engine.instances import tails
from hatchway.engine.instances.confinement import confine
from hatchway.engine.instances.protocol import Platform, Stream
from hatchway.engine.instances.request import InstanceFields, Policy
from hatchway.engine.instances.supervisor import InstanceFacts, InstanceSupervisor, Waiter, start_window
from hatchway.engine.runtime import Actor, Runtime
from hatchway.engine.runtime.records import Origin
from hatchway.engine.settings.settings import Settings
from hatchway.engine.store.protocol import Change, Store, VersionMoved
from hatchway.statecharts import instance
from hatchway.statecharts.interpreter import EventRefused

KEPT_SECONDS, KEPT_COUNT = 24 * 3600, 256
"""How long an ended instance is still shown, with its exit code and log; and how many of them at most."""

FULL_RETRY = 30
"""Seconds after which whoever was refused for too many live instances may ask again."""


class Seen(NamedTuple):
    """An instance as anybody may see it, on whatever host: as it is, or as it was told of last where its engine does
    not answer. `run` is that engine where it is another one."""

    identity: str
    state: str
    progress: str | None
    facts: InstanceFacts
    host: str
    answers: bool = True
    run: str = ""


class FleetInstances(Protocol):
    """The instances of the other engines of a fleet."""

    async def all(self) -> list[Seen]:
        """Live, or ended lately. Raises StoreUnavailable."""

    async def find(self, name: str) -> Seen | None:
        """Another engine's of that name. Raises StoreUnavailable."""

    async def stop(self, seen: Seen, origin: Origin) -> Seen:
        """It, ended. Raises InstanceNotFound, HostUnavailable, StoreUnavailable."""

    async def read(self, seen: Seen, stream: Stream, goes_on: Callable[[], bool] | None) -> AsyncGenerator[bytes, None]:
        """Its log. Raises InstanceNotFound, HostUnavailable, StoreUnavailable, at first or midway; TooManyRequests."""


class Instances:
    """Starts, shows and stops instances. `run` must have begun before any is asked for.

    What `all`, `find`, `end` and `read` do is for the whole fleet; the rest is for those that this engine started.
    """

    def __init__(
        self,
        runtime: Runtime,
        store: Store,
        platform: Platform,
        settings: Callable[[], Settings],
        home: Path,
        elsewhere: FleetInstances | None = None,
    ) -> None:
        self._runtime, self._store, self._platform = runtime, store, platform
        self._settings, self._home = settings, home
        self.elsewhere = elsewhere
        self._host = socket.gethostname()
        self._lives = InstanceSupervisor(runtime, platform)
        self.tails = tails.Tails()
        runtime.register(
            instance.CHART,
            facts=InstanceFacts,
            store=store,
            effects=self._lives.effects,
            rules={"start_window": start_window},
            keep=True,
        )

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take up what an engine before this one began, and go on for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.tails.run)
            await nursery.start(self._lives.run)
            task_status.started()

    async def start(self, fields: InstanceFields, origin: Origin) -> Actor:
        """The instance, running, or queued where that takes long.

        Raises InvalidRequest, ImageNotFound, ResourcesUnavailable, RuntimeUnavailable, InstanceExists,
        TooManyInstances, StoreUnavailable; StartFailed where the runtime was asked and failed.
        """
        request = confine(fields, Policy.of(self._home, self._settings()))
        self._platform.admit(request)
        name, owner = request.identity, origin.identity or ""
        self._check_room(name, owner)
        # The name is ours from here on, and counted: nothing waits between the look and this.
        waiter = self._lives.waiters[name] = Waiter(owner)
        try:
            await self._look_elsewhere(name)
            for ended in {name, *self._outdated()}:
                await self._drop(ended)
            facts = InstanceFacts(request, owner, self._runtime.clock.wall())
            await self._runtime.create("instance", name, "request", facts, origin=origin)
            await waiter.wait()
        except EventRefused:
            raise InstanceExists("an instance of that name was just asked for elsewhere") from None
        finally:
            del self._lives.waiters[name]
        return self.show(name)

    def _check_room(self, name: str, owner: str) -> None:
        """Those that are asked for count like those that live. Raises InstanceExists, TooManyInstances."""
        live = {actor.id: str(actor.facts.owner) for actor in self._runtime.actors("instance") if is_live(actor)}
        live |= {asked: waiter.owner for asked, waiter in self._lives.waiters.items()}
        if name in live:
            raise InstanceExists(f"an instance named {name} is there already")
        most = self._settings().max_instances
        if len(live) >= most:
            raise TooManyInstances(
                f"{counted(most, 'instance', 'are')} live, the most that `max_instances` allows this engine",
                retry_after=FULL_RETRY,
            )
        most = self._may_hold(owner)
        if list(live.values()).count(owner) >= most:
            raise TooManyInstances(
                f"{counted(most, 'instance', 'are')} yours and live, the most that"
                " `limits.instances_per_identity` allows one identity",
                retry_after=FULL_RETRY,
            )

    def _may_hold(self, owner: str) -> int:
        """How many live instances an identity may have at this engine."""
        return self._settings().limits.instances_per_identity

    async def _look_elsewhere(self, name: str) -> None:
        """A start that the fleet will refuse must not cost an ended instance of that name its exit code and log."""
        seen = None if self.elsewhere is None else await self.elsewhere.find(name)
        if seen is not None and seen.state not in instance.CHART.final:
            raise InstanceExists(f"an instance named {name} is there already, on {seen.host}")

    @property
    def may_ask(self) -> tuple[str, ...]:
        """The fields of Slurm's that a request may choose; none where the platform is another."""
        slurm = Policy.of(self._home, self._settings()).slurm
        return slurm.allow_request if slurm else ()

    def shown(self) -> list[Actor]:
        """The live instances and those that ended lately, in the order of their requests."""
        outdated = set(self._outdated())
        shown = [actor for actor in self._runtime.actors("instance") if actor.id not in outdated]
        return sorted(shown, key=lambda actor: float(actor.facts.requested_at))

    def show(self, name: str) -> Actor:
        """Live, or ended lately. Raises InstanceNotFound."""
        actor = self._runtime.peek("instance", name)
        if actor is None:
            raise InstanceNotFound("this engine has no such instance")
        return actor

    def progress(self, actor: Actor) -> str | None:
        """What a start that is under way is doing, or why it is queued; None for any other instance."""
        return self.progress_in(actor.id, actor.state)

    def progress_in(self, name: str, state: str) -> str | None:
        """The same, for one that is in that state."""
        if state == "requested":
            return "waiting"
        return self._platform.progress(name) if state in ("starting", "queued") else None

    async def stop(self, name: str, origin: Origin) -> Actor:
        """The instance, ended. Raises InstanceNotFound where none of that name is live, StoreUnavailable.

        Raises RuntimeUnavailable where the platform does not answer: the instance stays told to stop.
        """
        actor = self.show(name)
        if not is_live(actor):
            raise InstanceNotFound("this engine has no such instance that is live")
        ended = self._lives.ends.setdefault(name, trio.Event())
        if actor.state != "stopping":
            # Refused, it ended by itself or another stop came first: either way its end is what is waited for.
            with suppress(EventRefused):
                await self._runtime.send("instance", name, "stop", origin=origin)
        await self._platform.heard()
        await ended.wait()
        return actor

    def log(self, actor: Actor, stream: Stream) -> tuple[Path, int]:
        """The file of a stream, and where in it the instance's own output begins. Raises InstanceNotFound."""
        if actor.facts.started is None:
            raise InstanceNotFound("the instance never ran: it has no log")
        return self._platform.log(actor.facts.started, stream)

    # On whatever host

    def seen(self, actor: Actor) -> Seen:
        """One of this engine's."""
        return Seen(actor.id, actor.state, self.progress(actor), actor.facts, self._host)

    async def all(self) -> list[Seen]:
        """Every engine's, live or ended lately, in the order of their requests. Raises StoreUnavailable."""
        found = {actor.id: self.seen(actor) for actor in self.shown()}
        if self.elsewhere is not None:
            oldest = self._runtime.clock.wall() - KEPT_SECONDS
            for other in await self.elsewhere.all():
                mine = found.get(other.identity)
                if (mine is None or mine.state in instance.CHART.final) and (other.facts.ended_at or oldest) >= oldest:
                    found[other.identity] = other
        return sorted(found.values(), key=lambda seen: seen.facts.requested_at)

    async def find(self, name: str) -> Seen:
        """The one of that name, live or ended lately. Raises InstanceNotFound, StoreUnavailable."""
        actor = self._runtime.peek("instance", name)
        if self.elsewhere is not None and (actor is None or not is_live(actor)):
            other = await self.elsewhere.find(name)
            if other is not None:
                return other
            if actor is None:
                raise InstanceNotFound("no engine of this fleet has such an instance")
        return self.seen(self.show(name))

    async def end(self, name: str, origin: Origin) -> Seen:
        """Stop it, wherever it runs, and wait until it has ended. Raises what `stop` does, and HostUnavailable."""
        found = await self.find(name)
        if self.elsewhere is None or not found.run:
            return self.seen(await self.stop(name, origin))
        if found.state in instance.CHART.final:
            raise InstanceNotFound("no engine of this fleet has such an instance that is live")
        return await self.elsewhere.stop(found, origin)

    async def read(self, name: str, stream: Stream, goes_on: Callable[[], bool] | None) -> AsyncGenerator[bytes, None]:
        """What it wrote so far; with `goes_on` also what it writes, until it ends, and nothing once that is not true.

        Raises InstanceNotFound, HostUnavailable, StoreUnavailable, TooManyRequests; while it is read, the middle two.
        """
        found = await self.find(name)
        if self.elsewhere is not None and found.run:
            return await self.elsewhere.read(found, stream, goes_on)
        actor = self.show(name)
        path, begin = self.log(actor, stream)
        return tails.pieces(tails.LogFile(path, begin), lambda: is_live(actor), goes_on, self.tails)

    # Ended ones: kept for their exit code and log, until their name is wanted or their time is over

    def _outdated(self) -> list[str]:
        ended = [actor for actor in self._runtime.actors("instance") if not is_live(actor)]
        ended.sort(key=_ended_at, reverse=True)
        oldest = self._runtime.clock.wall() - KEPT_SECONDS
        return [actor.id for place, actor in enumerate(ended) if place >= KEPT_COUNT or _ended_at(actor) < oldest]

    async def _drop(self, name: str) -> None:
        actor = self._runtime.peek("instance", name)
        if actor is None or is_live(actor):
            return
        with trio.CancelScope(shield=True):  # who leaves meanwhile leaves nothing here that the store has no more
            try:
                await self._store.commit(Change("instance", name, actor.version, None))
            except VersionMoved:
                return  # somebody else was first
        self._runtime.forget("instance", name)
        self._platform.forget(name)


def is_live(actor: Actor) -> bool:
    """Whether it has not ended: its name is taken, and its log may grow."""
    return actor.state not in instance.CHART.final


def _ended_at(actor: Actor) -> float:
    facts: InstanceFacts = actor.facts
    return facts.ended_at or facts.requested_at
