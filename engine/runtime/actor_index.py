"""The names of a chart's actors in order, all and by owner: a page of them is found without a look at the rest."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from typing import Any


class ActorIndex:
    """`owner_of` tells from an actor's facts, which never change in this, whose it is."""

    def __init__(self, owner_of: Callable[[Any], str]) -> None:
        self._owner_of = owner_of
        self._names: list[str] = []
        self._owned: dict[str, list[str]] = {}

    def add(self, name: str, facts: Any) -> None:
        """A new actor. Names that grow, as those of sessions do, are added at once."""
        _add(self._names, name)
        _add(self._owned.setdefault(self._owner_of(facts), []), name)

    def remove(self, name: str, facts: Any) -> None:
        """It is no more."""
        del self._names[bisect_left(self._names, name)]
        owner = self._owner_of(facts)
        owned = self._owned[owner]
        del owned[bisect_left(owned, name)]
        if not owned:
            del self._owned[owner]

    def after(self, name: str, owner: str | None) -> Iterator[str]:
        """The names behind that one in their order: of one owner, or all. To be read before anything changes."""
        names = self._names if owner is None else self._owned.get(owner, [])
        for place in range(bisect_right(names, name), len(names)):
            yield names[place]

    def count(self, owner: str) -> int:
        """How many an owner has."""
        return len(self._owned.get(owner, ()))


def _add(names: list[str], name: str) -> None:
    if not names or name > names[-1]:
        names.append(name)
    else:
        insort(names, name)
