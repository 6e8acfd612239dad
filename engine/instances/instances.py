"""The instance service: requests, starts, ends and logs of containers on the platform (section 4.5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import trio

from hatchway.engine.base.errors import InstanceExists, InstanceNotFound, TooManyInstances
from hatchway.engine.base.text import counted
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


Allowance = Callable[[str], int | None]
"""Takes an identity; gives how many live instances its key allows it, None where the key doesn't say."""


def unlimited(identity: str) -> None:
    """The allowance of keys that say nothing."""


def too_many_of_key(most: int) -> TooManyInstances:
    """The refusal of a start that an identity's key does not allow."""
    words = f"{counted(most, 'instance', 'are')} live of your key, the most that its `instances=` allows"
    return TooManyInstances(words, retry_after=FULL_RETRY)


TakenBy = Callable[[str], Awaitable[str | None]]
"""Takes a name; gives the host of another engine where an instance of that name is live, None where there is none."""


async def nobody_else(name: str) -> None:
    """The other engines of an engine of no fleet."""


class Instances:
    """Starts, shows and stops the instances of this engine. `run` must have begun before any is asked for."""

    def __init__(
        self,
        runtime: Runtime,
        store: Store,
        platform: Platform,
        settings: Callable[[], Settings],
        home: Path,
        taken_by: TakenBy = nobody_else,
        allowance: Allowance = unlimited,
    ) -> None:
        """`taken_by` asks the other engines of a fleet for a name; `allowance` tells how many live ones the key of an
        identity allows it."""
        self.allowance = allowance
        self._runtime, self._store, self._platform = runtime, store, platform
        self._settings, self._home = settings, home
        self._taken_by = taken_by
        self._supervisor = InstanceSupervisor(runtime, platform)
        self.tails = tails.Tails()
        runtime.register(
            instance.CHART,
            facts=InstanceFacts,
            store=store,
            effects=self._supervisor.effects,
            rules={"start_window": start_window},
            keep=True,
        )

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take up the instances that are in the store, and supervise them for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.tails.run)
            await nursery.start(self._supervisor.run)
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
        # From here on the name is taken, and counts. Nothing has waited since `_check_room`.
        waiter = self._supervisor.waiters[name] = Waiter(owner)
        try:
            await self._check_fleet(name)
            for ended in {name, *self._outdated()}:
                await self._drop(ended)
            facts = InstanceFacts(request, owner, self._runtime.clock.wall())
            await self._runtime.create("instance", name, "request", facts, origin=origin)
            await waiter.wait()
        except EventRefused:
            raise InstanceExists("an instance of that name was just asked for elsewhere") from None
        finally:
            del self._supervisor.waiters[name]
        return self.show(name)

    def _check_room(self, name: str, owner: str) -> None:
        """Raises InstanceExists, TooManyInstances. Instances whose start was asked for count as live ones do."""
        live = {actor.id: str(actor.facts.owner) for actor in self._runtime.actors("instance") if is_live(actor)}
        live |= {asked: waiter.owner for asked, waiter in self._supervisor.waiters.items()}
        if name in live:
            raise InstanceExists(f"an instance named {name} is there already")
        most = self._settings().max_instances
        if len(live) >= most:
            raise TooManyInstances(
                f"{counted(most, 'instance', 'are')} live, the most that `max_instances` allows this engine",
                retry_after=FULL_RETRY,
            )
        held, most = list(live.values()).count(owner), self._settings().limits.instances_per_identity
        if held >= most:
            raise TooManyInstances(
                f"{counted(most, 'instance', 'are')} yours and live, the most that"
                " `limits.instances_per_identity` allows one identity",
                retry_after=FULL_RETRY,
            )
        by_key = self.allowance(owner)
        if by_key is not None and held >= by_key:
            raise too_many_of_key(by_key)

    async def _check_fleet(self, name: str) -> None:
        """Raises InstanceExists where the name is live at another engine. It is asked before an ended instance of that
        name is removed here, with its exit code and log."""
        host = await self._taken_by(name)
        if host is not None:
            raise InstanceExists(f"an instance named {name} is there already, on {host}")

    @property
    def may_ask(self) -> tuple[str, ...]:
        """The fields for Slurm that a request may have; none where the platform is another."""
        slurm = Policy.of(self._home, self._settings()).slurm
        return slurm.allow_request if slurm else ()

    def shown(self) -> list[Actor]:
        """The live instances and those that ended lately, in the order of their requests."""
        outdated = set(self._outdated())
        shown = [actor for actor in self._runtime.actors("instance") if actor.id not in outdated]
        return sorted(shown, key=lambda actor: float(actor.facts.requested_at))

    def peek(self, name: str) -> Actor | None:
        """The instance of that name, live or ended lately; None where there is none."""
        return self._runtime.peek("instance", name)

    def show(self, name: str) -> Actor:
        """As `peek`. Raises InstanceNotFound where there is none."""
        actor = self.peek(name)
        if actor is None:
            raise InstanceNotFound("this engine has no such instance")
        return actor

    def progress(self, actor: Actor) -> str | None:
        """What a start that is under way is doing, or why it is queued; None for any other instance."""
        return self.progress_in(actor.id, actor.state)

    def progress_in(self, name: str, state: str) -> str | None:
        """As `progress`, for the instance of that name where it is in that state."""
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
        ended = self._supervisor.ends.setdefault(name, trio.Event())
        if actor.state != "stopping":
            # A refusal says that it ended by itself or another stop came first. Its end is waited for all the same.
            with suppress(EventRefused):
                await self._runtime.send("instance", name, "stop", origin=origin)
        await self._platform.heard()
        await ended.wait()
        return actor

    def log(self, actor: Actor, stream: Stream) -> tuple[Path, int]:
        """The file of a stream, and where in it the instance's own output begins. Raises InstanceNotFound."""
        if actor.facts.started is None:
            why = "has not started yet" if is_live(actor) else "never ran"
            raise InstanceNotFound(f"the instance {why}: it has no log")
        return self._platform.log(actor.facts.started, stream)

    # Ended instances: kept for their exit code and log, until their name is wanted or their time is over

    def _outdated(self) -> list[str]:
        ended = [actor for actor in self._runtime.actors("instance") if not is_live(actor)]
        ended.sort(key=_ended_at, reverse=True)
        oldest = self._runtime.clock.wall() - KEPT_SECONDS
        return [actor.id for place, actor in enumerate(ended) if place >= KEPT_COUNT or _ended_at(actor) < oldest]

    async def _drop(self, name: str) -> None:
        actor = self._runtime.peek("instance", name)
        if actor is None or is_live(actor):
            return
        with trio.CancelScope(shield=True):  # a client that leaves must not leave an actor that the store has no more
            try:
                await self._store.commit(Change("instance", name, actor.version, None))
            except VersionMoved:
                return  # another task has removed it
        self._runtime.forget("instance", name)
        self._platform.forget(name)


def is_live(actor: Actor) -> bool:
    """Whether an instance has not ended: its name is taken, and its log may grow."""
    return actor.state not in instance.CHART.final


def _ended_at(actor: Actor) -> float:
    facts: InstanceFacts = actor.facts
    return facts.ended_at or facts.requested_at
