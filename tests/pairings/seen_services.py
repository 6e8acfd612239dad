"""A store, locks and a pairing service that tell an exploration what they are about."""

from __future__ import annotations

from typing import ClassVar

import msgspec
import trio
import trio.testing

from hatchway.engine.base.clock import TrioClock
from hatchway.engine.pairings.pairings import Claim, Claimant, Pairings
from hatchway.engine.runtime import ActorLocks
from hatchway.engine.runtime.records import Origin
from hatchway.engine.store.memory import MemoryStore
from hatchway.engine.store.protocol import Change


class WaitingStore(MemoryStore):
    """Others may run before a change is made, for as long as they like."""

    shields_commit = False

    blind = False
    """Planted: any version is taken."""

    def __init__(self, clock: TrioClock) -> None:
        super().__init__(clock)
        self.holds: set[tuple[str, str]] = set()
        """Chart and name of each actor that is stored."""
        self.changing: str | None = None
        """The actor that is being stored."""

    async def commit(self, change: Change) -> None:
        self.changing = change.actor
        await trio.lowlevel.checkpoint()
        self.changing = None
        if self.blind:
            held = await self.load(change.chart, change.actor)
            change = msgspec.structs.replace(change, expected=held.version if held else 0)
        await super().commit(change)
        (self.holds.discard if change.stored is None else self.holds.add)((change.chart, change.actor))


class SeenLocks(ActorLocks):
    """Tells who waits for an actor, in which order."""

    seen: ClassVar[list[SeenLocks]] = []
    """All of a world, which is made anew for each run."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: dict[str, list[str]] = {}
        self.seen.append(self)

    def acquire_free(self, name: str) -> bool:
        free = super().acquire_free(name)
        if free:
            self._come(name)
        return free

    async def acquire(self, name: str) -> None:
        if self.acquire_free(name):
            return
        self._come(name)
        try:
            await super().acquire(name)
        except BaseException:
            self._go(name)
            raise

    def _come(self, name: str) -> None:
        self.taken.setdefault(name, []).append(str(trio.lowlevel.current_task().name))

    def _go(self, name: str) -> None:
        self.taken[name].remove(str(trio.lowlevel.current_task().name))

    def release(self, name: str) -> None:
        self._go(name)
        super().release(name)

    def held(self, name: str) -> tuple[str, list[str]] | None:
        """Who has the lock, and who is parked behind it. None where nobody has it, or not all the others are parked."""
        holder, *others = self.taken.get(name) or [""]
        lot = self._waiting.get(name)
        return (holder, others) if holder and len(others) == (0 if lot is None else len(lot)) else None


class SeenPairings(Pairings):
    """Tells the claims that were taken."""

    claims: list[Claim]

    async def claim(self, text: str, claimant: Claimant, origin: Origin) -> Claim:
        claim = await super().claim(text, claimant, origin)
        self.claims.append(claim)
        return claim
