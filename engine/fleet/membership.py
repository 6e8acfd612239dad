"""Joins an engine's services to its fleet. An engine of no fleet loads none of this."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from hatchway.engine.base.clock import Clock
from hatchway.engine.fleet.codes import ClaimServer, RemoteCodes
from hatchway.engine.fleet.fleet import Fleet, open_fleet
from hatchway.engine.fleet.instance_store import FleetInstanceStore
from hatchway.engine.fleet.key_mirror import KeyMirror
from hatchway.engine.fleet.keys import CHART, FleetKeys
from hatchway.engine.fleet.remote_calls import RemoteCalls
from hatchway.engine.fleet.remote_instances import InstanceServer, RemoteInstances
from hatchway.engine.fleet.roster import Roster
from hatchway.engine.fleet.witness import Witness
from hatchway.engine.instances.all_instances import AllInstances
from hatchway.engine.instances.instances import Instances, TakenBy
from hatchway.engine.journal.heads import Heads
from hatchway.engine.keys.own_keys import OWN, make_own_key
from hatchway.engine.pairings.pairings import Pairings
from hatchway.engine.runtime import Runtime
from hatchway.engine.sessions.sessions import Sessions
from hatchway.engine.settings.settings import Settings, keys_folder
from hatchway.engine.store.protocol import Store

IsStopping = Callable[[], bool]
"""Whether the engine was asked to stop."""


class Membership:
    """One engine's membership in its fleet: it joins services to those of the other engines. Use `open_membership`."""

    def __init__(self, fleet: Fleet, identity: str, keys: KeyMirror | None) -> None:
        self.fleet, self.identity = fleet, identity
        self.keys = keys
        """The copy of the store's keys; None where the setting `keys` says that they are in a folder."""
        self.calls, self.roster = RemoteCalls(fleet), Roster(fleet)

    async def run(self, runtime: Runtime, follow_keys: Callable[[], Awaitable[None]]) -> None:
        """Run the fleet's tasks, for ever. `follow_keys` is called as soon as the store's keys have changed."""
        await self.fleet.run(runtime, {CHART: follow_keys} if self.keys is not None else {})

    def join_journal(self, heads: Heads, folder: Path) -> None:
        """The other engines keep the heads of this one's journal, and this one keeps theirs."""
        Witness(self.fleet, heads, folder)  # it has subscribed to both, and is held by that

    def join_pairings(
        self, sessions: Sessions, most_wrong: Callable[[], int], make: Callable[[RemoteCodes], Pairings]
    ) -> Pairings:
        """The pairing service, by `make`, with the codes of the other engines, which may claim those of this one.

        `most_wrong` is the setting `limits.wrong_codes_total`.
        """
        pairings = make(RemoteCodes(self.fleet, self.calls, most_wrong, sessions.started_elsewhere))
        ClaimServer(self.fleet, self.calls, pairings, sessions.name_of)  # held by `calls`, which it serves
        return pairings

    def join_instances(
        self, own: Store, runtime: Runtime, make: Callable[[Store, TakenBy], Instances], is_stopping: IsStopping
    ) -> tuple[AllInstances, FleetInstanceStore]:
        """The instance service, by `make`, beside the instances of the other engines; and the store that it is given.

        That store keeps the service's instances in `own` and shows them to the other engines. Its `run` is to be
        started once the service runs.
        """

        def progress(name: str, state: str) -> str | None:
            return instances.progress_in(name, state)

        shared = FleetInstanceStore(own, self.roster, runtime, progress, lambda owner: instances.allowance(owner))
        others = RemoteInstances(self.roster, self.calls)
        instances = make(shared, others.taken_by)
        InstanceServer(self.calls, instances, is_stopping)  # held by `calls`, which it serves
        return AllInstances(instances, runtime.clock, others), shared


@asynccontextmanager
async def open_membership(home: Path, settings: Settings, clock: Clock, own: Store) -> AsyncIterator[Membership]:
    """A membership in the fleet that the settings name, for the block. Raises EngineUnavailable where there can be
    none."""
    host = socket.gethostname()
    async with open_fleet(settings.store, clock, host, await own.identity()) as fleet:
        identity, keys = await fleet.store.identity(), None
        if settings.keys == "store":
            keys = KeyMirror(FleetKeys(fleet.store), keys_folder(home, settings))
            # Of several engines' keys a list says whose is whose.
            await keys.join(identity, make_own_key(home), f"{OWN} {host}", home, fleet.check_token_key_ahead)
        yield Membership(fleet, identity, keys)
