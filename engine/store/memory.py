"""A store that lasts as long as the process: for pairing codes, and for tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from hatchway.engine.base.clock import Clock
from hatchway.engine.store.protocol import AlreadyUsed, Change, Once, Stored, VersionMoved, new_identity


class MemoryStore:
    """Keeps what it is given in a dictionary. Commits never wait."""

    shared = False
    shields_commit = True

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._actors: defaultdict[str, dict[str, Stored]] = defaultdict(dict)
        self._used: dict[bytes, float] = {}
        self._identity = new_identity()

    def define(self, facts: Mapping[str, type[msgspec.Struct]]) -> None:
        """Facts are kept as they are, so their type is not needed."""

    async def load(self, chart: str, actor: str) -> Stored | None:
        return self._actors[chart].get(actor)

    async def load_many(self, chart: str, actors: Sequence[str]) -> list[Stored | None]:
        return [self._actors[chart].get(actor) for actor in actors]

    async def commit(self, change: Change) -> None:
        actors = self._actors[change.chart]
        held = actors.get(change.actor)
        if (held.version if held else 0) != change.expected:
            raise VersionMoved
        if change.once is not None:
            self._use(change.once)
        if change.stored is None:
            actors.pop(change.actor, None)
        else:
            actors[change.actor] = change.stored

    def _use(self, once: Once) -> None:
        now = self._clock.elapsed()
        if self._used.get(once.key, 0) > now:
            raise AlreadyUsed("used before")
        if len(self._used) > 1024:
            self._used = {key: until for key, until in self._used.items() if until > now}
        self._used[once.key] = now + once.seconds

    async def live(self, chart: str) -> list[tuple[str, Stored]]:
        return list(self._actors[chart].items())

    async def identity(self) -> str:
        return self._identity

    def check(self) -> None:
        """Memory takes every change."""

    def size(self) -> int:
        return 0
