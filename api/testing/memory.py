"""The store of an engine under test: in memory, with an identity no real engine has, and away where a test says so."""

from __future__ import annotations

from hatchway.engine.base.clock import Clock
from hatchway.engine.base.errors import StoreUnavailable
from hatchway.engine.base.issuer import TEST_ISSUER
from hatchway.engine.store.memory import MemoryStore
from hatchway.engine.store.protocol import Change


class InterruptibleStore(MemoryStore):
    """A memory that can't be written while it is away."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._identity = TEST_ISSUER
        self._away = False

    def set_away(self, away: bool) -> None:
        """Set whether the store refuses every change from now on."""
        self._away = away

    def check(self) -> None:
        if self._away:
            raise StoreUnavailable("the store is away, as the test said", retry_after=1)

    async def commit(self, change: Change) -> None:
        self.check()
        await super().commit(change)
