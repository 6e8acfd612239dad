"""The instances of a whole fleet, as clients are shown them: this engine's, and those that the others have told of."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple, Protocol

from hatchway.engine.base.clock import Clock
from hatchway.engine.base.errors import InstanceNotFound
from hatchway.engine.instances import tails
from hatchway.engine.instances.instances import KEPT_SECONDS, Instances, is_live
from hatchway.engine.instances.protocol import Stream
from hatchway.engine.instances.supervisor import InstanceFacts
from hatchway.engine.runtime import Actor
from hatchway.engine.runtime.records import Origin
from hatchway.statecharts import instance


class InstanceView(NamedTuple):
    """An instance of this engine or of another of the fleet, as clients are shown it.

    `answers` says whether its engine does; if not, all else is what that engine told last. `run_id` names that
    engine's run, and is empty for this engine's own instances.
    """

    identity: str
    state: str
    progress: str | None
    facts: InstanceFacts
    host: str
    answers: bool = True
    run_id: str = ""


class FleetInstances(Protocol):
    """The instances of the other engines of a fleet."""

    async def all(self) -> list[InstanceView]:
        """The other engines' instances, live or ended lately. Raises StoreUnavailable."""

    async def find(self, name: str) -> InstanceView | None:
        """Another engine's instance of that name, None where there is none. Raises StoreUnavailable."""

    async def stop(self, seen: InstanceView, origin: Origin) -> InstanceView:
        """End the instance; returns it as it ended. Raises InstanceNotFound, HostUnavailable, StoreUnavailable."""

    async def read(
        self, seen: InstanceView, stream: Stream, goes_on: Callable[[], bool] | None
    ) -> AsyncGenerator[bytes, None]:
        """The instance's log, as `AllInstances.read` has it.

        Raises InstanceNotFound, HostUnavailable, StoreUnavailable, also while it is read; TooManyRequests.
        """


class AllInstances:
    """Shows, stops and reads the instances of every engine. `own` are this engine's; `others` has those of the other
    engines, and is None for an engine of no fleet."""

    def __init__(self, own: Instances, clock: Clock, others: FleetInstances | None = None) -> None:
        self.own = own
        self._clock, self._others = clock, others
        self._host = socket.gethostname()

    async def all(self) -> list[InstanceView]:
        """The instances of all engines, live or ended lately, in the order of their requests. Raises
        StoreUnavailable."""
        found = {actor.id: self._seen(actor) for actor in self.own.shown()}
        if self._others is not None:
            oldest = self._clock.wall() - KEPT_SECONDS
            for other in await self._others.all():
                mine = found.get(other.identity)
                if (mine is None or mine.state in instance.CHART.final) and (other.facts.ended_at or oldest) >= oldest:
                    found[other.identity] = other
        return sorted(found.values(), key=lambda seen: seen.facts.requested_at)

    async def find(self, name: str) -> InstanceView:
        """The instance of that name at any engine, live or ended lately. Raises InstanceNotFound, StoreUnavailable."""
        if self._others is None:
            return self._seen(self.own.show(name))
        actor = self.own.peek(name)
        if actor is None or not is_live(actor):
            other = await self._others.find(name)
            if other is not None:
                return other
            if actor is None:
                raise InstanceNotFound("no engine of this fleet has such an instance")
        return self._seen(actor)

    async def stop(self, name: str, origin: Origin) -> InstanceView:
        """Stop the instance, wherever it runs, and wait until it has ended. Raises as `Instances.stop`, and
        HostUnavailable."""
        found = await self.find(name)
        if self._others is None or not found.run_id:
            return self._seen(await self.own.stop(name, origin))
        if found.state in instance.CHART.final:
            raise InstanceNotFound("no engine of this fleet has such an instance that is live")
        return await self._others.stop(found, origin)

    async def read(self, name: str, stream: Stream, goes_on: Callable[[], bool] | None) -> AsyncGenerator[bytes, None]:
        """What the instance has written, in pieces. With `goes_on` also what it writes until it ends, for as long as
        `goes_on()` is true.

        Raises InstanceNotFound, HostUnavailable, StoreUnavailable, TooManyRequests; while it is read, the middle two.
        """
        found = await self.find(name)
        if self._others is not None and found.run_id:
            return await self._others.read(found, stream, goes_on)
        actor = self.own.show(name)
        path, begin = self.own.log(actor, stream)
        return tails.pieces(tails.LogFile(path, begin), lambda: is_live(actor), goes_on, self.own.tails)

    def _seen(self, actor: Actor) -> InstanceView:
        return InstanceView(actor.id, actor.state, self.own.progress(actor), actor.facts, self._host)
