"""The names of a chart's actors in order, all and by owner: a page of them is found without a look at the rest."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from typing import Any

from sortedcontainers import SortedList


class ActorIndex:
    """Actors' names, sorted. `owner_of` tells from an actor's facts who owns it; that must never change."""

    def __init__(self, owner_of: Callable[[Any], str]) -> None:
        self._owner_of = owner_of
        # In a plain list of ten million names each end of a session would move half of them in memory.
        self._names = SortedList()
        self._owned: dict[str, list[str]] = {}

    def add(self, name: str, facts: Any) -> None:
        """A new actor."""
        self._names.add(name)
        insort(self._owned.setdefault(self._owner_of(facts), []), name)

    def remove(self, name: str, facts: Any) -> None:
        """The actor is gone; `facts` are what it was added with."""
        self._names.remove(name)
        owner = self._owner_of(facts)
        owned = self._owned[owner]
        del owned[bisect_left(owned, name)]
        if not owned:
            del self._owned[owner]

    def after(self, name: str, owner: str | None) -> Iterator[str]:
        """The names behind `name` in order, of one owner or of all. Read the iterator before the index changes."""
        if owner is None:
            yield from self._names.irange(name, inclusive=(False, True))
            return
        names = self._owned.get(owner, [])
        for place in range(bisect_right(names, name), len(names)):
            yield names[place]

    def count(self, owner: str) -> int:
        """How many actors an owner has."""
        return len(self._owned.get(owner, ()))
