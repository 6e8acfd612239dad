"""The actors as this engine knows them, in memory: what it did itself, and what it was told that others did."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping

from engine.kinds import Actor, Kind, Turns
from engine.store.protocol import Stored
from engine.timers import Timers
from statecharts.chart import NONE

LATE = (2.0, 10.0)
"""Seconds by which a delay of an actor that another engine moved fires later: that engine sweeps it, while it lives."""


Moved = Callable[[str, str, str, str | None], None]
"""Takes chart, actor, the state it was in here, and the one it is in now, None for gone."""


class Mirror:
    """Every live actor of every chart, with its delay armed. In a shared store the stored value is the truth."""

    def __init__(self, timers: Timers[Actor]) -> None:
        self.timers = timers
        self._kinds: dict[str, Kind] = {}
        self._turns = Turns()
        self.on_moved: list[Moved] = []
        """Told of each actor that another engine has moved."""
        self.observe_moved: Callable[[str, str], None] | None = None
        """Told the chart and the name of each actor that moved elsewhere."""

    def peek(self, chart: str, actor: str) -> Actor | None:
        """The actor as this engine knows it, without waiting."""
        return self._kinds[chart].actors.get(actor)

    def actors(self, chart: str) -> Iterable[Actor]:
        """The live ones, as this engine knows them: a view, which changes with every step."""
        return self._kinds[chart].actors.values()

    def actors_after(self, chart: str, name: str, owner: str | None = None) -> Iterator[Actor]:
        """Those of a chart with owners whose names come after that one, in order; to be read before the next step."""
        kind = self._kinds[chart]
        assert kind.index is not None
        return map(kind.actors.__getitem__, kind.index.after(name, owner))

    def count_of(self, chart: str, owner: str) -> int:
        """How many actors of a chart with owners are that one's."""
        index = self._kinds[chart].index
        assert index is not None
        return index.count(owner)

    def forget(self, chart: str, actor: str) -> None:
        """Drop a kept actor from memory, once its store row is gone."""
        self._kinds[chart].drop(actor)

    async def absorb(self, chart: str, versions: Mapping[str, int]) -> None:
        """Other engines moved these actors to these versions, 0 for gone: what the store says is believed.

        Each is looked up in its own turn, so that no step of ours is undone. Raises StoreUnavailable.
        """
        kind, taken = self._kinds[chart], []
        try:
            for name in versions:
                await self._turns.wait((chart, name))
                taken.append(name)
            moved = [name for name in taken if self._version(kind, name) != versions[name]]
            for name, stored in zip(moved, await kind.store.load_many(chart, moved), strict=True) if moved else ():
                self._believe(kind, name, stored, kind.actors.get(name))
        finally:
            for name in taken:
                self._turns.give((chart, name))

    @staticmethod
    def _version(kind: Kind, name: str) -> int:
        held = kind.actors.get(name)
        return held.version if held else 0

    async def _load(self, kind: Kind, held: Actor) -> Actor | None:
        return self._believe(kind, held.id, await kind.store.load(kind.name, held.id), held)

    def _believe(self, kind: Kind, name: str, stored: Stored | None, held: Actor | None) -> Actor | None:
        """Believe the store: the actor moved elsewhere, or is gone. `held` stands for it here, if anything does."""
        actor = kind.actors.get(name) or held or Actor(kind.name, name, NONE, 0, None, None)
        if self.observe_moved is not None:
            self.observe_moved(kind.name, name)
        if stored is None:
            if kind.drop(name) is not None:
                self._tell_moved(kind, actor, None)
            self.timers.disarm(actor)
            return None
        if stored.version != actor.version or actor.facts is None:
            self._tell_moved(kind, actor, stored.state)
            actor.state, actor.version, actor.facts = stored.state, stored.version, stored.facts
            actor.deadline = stored.deadline
            self._arm(kind, actor, late=random.uniform(*LATE))  # noqa: S311 - no secret
        kind.put(name, actor)
        return actor

    def _tell_moved(self, kind: Kind, actor: Actor, state: str | None) -> None:
        for told in self.on_moved:
            told(kind.name, actor.id, actor.state, state)

    def _arm(self, kind: Kind, actor: Actor, late: float = 0.0) -> None:
        timing = kind.timings.get(actor.state)
        if timing is not None and actor.deadline is not None:
            self.timers.arm(actor, actor.deadline + late, timing.clock)
        else:
            self.timers.disarm(actor)
