"""What an engine has in a fleet besides what it has alone. One that is of no fleet loads none of it."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from engine.clock import Clock
from engine.fleet.codes import Codes
from engine.fleet.fleet import Fleet, open_fleet
from engine.fleet.key_mirror import KeyMirror
from engine.fleet.keys import CHART, FleetKeys
from engine.fleet.neighbours import Neighbours
from engine.fleet.questions import Questions
from engine.fleet.roster import Roster
from engine.fleet.shared_instances import SharedInstances
from engine.instances import Instances
from engine.pairings import Pairings
from engine.runtime import Runtime
from engine.sessions import Sessions
from engine.settings import Settings, keys_folder
from engine.store.protocol import Store
from engine.trust.own_keys import make_own_key


class Membership:
    """One engine's place in its fleet, and what it joins there. Use `open_membership`."""

    def __init__(self, fleet: Fleet, identity: str, keys: KeyMirror | None) -> None:
        self.fleet, self.identity = fleet, identity
        self.keys = keys
        """The copy of the store's keys, where the setting says that they are there."""
        self.also: list[Callable[..., Awaitable[None]]] = []
        """What runs beside the instances, once they are joined."""

    def join_keys(self, follow: Callable[[], Awaitable[None]]) -> None:
        """Have the store's keys followed as soon as they are changed."""
        if self.keys is not None:
            self.fleet.mirrors[CHART] = follow

    def join_pairings(self, pairings: Pairings, sessions: Sessions, most_wrong: Callable[[], int]) -> None:
        """Codes of every engine are taken at each."""
        pairings.elsewhere = Codes(self.fleet, pairings, most_wrong, sessions.started_elsewhere, sessions.name_of)

    def join_instances(
        self, own: Store, runtime: Runtime, make: Callable[[Store], Instances], is_stopping: Callable[[], bool]
    ) -> Instances:
        """This engine's instances, in its `own` store; the others are told of them, and theirs are found here."""
        roster, questions = Roster(self.fleet), Questions(self.fleet)
        shared = SharedInstances(own, roster, runtime)
        instances = make(shared)
        shared.progress = instances.progress_in
        instances.elsewhere = Neighbours(roster, questions, instances, is_stopping)
        self.also = [questions.run, shared.run]
        return instances


@asynccontextmanager
async def open_membership(home: Path, settings: Settings, clock: Clock, own: Store) -> AsyncIterator[Membership]:
    """A place in the fleet that the settings name, until left. Raises EngineUnavailable where it can't be had."""
    async with open_fleet(settings.store, clock, socket.gethostname(), await own.identity()) as fleet:
        identity, keys = await fleet.store.identity(), None
        if settings.keys == "store":
            keys = KeyMirror(FleetKeys(fleet.store), keys_folder(home, settings))
            await keys.join(identity, make_own_key(home), home, fleet.check_signers)
        yield Membership(fleet, identity, keys)
