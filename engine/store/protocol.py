"""The store's protocol: one atomic, versioned change at a time."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from hatchway.engine.base.errors import Refusal


class Stored(msgspec.Struct, frozen=True, gc=False):
    """An actor as the store holds it. `deadline` is in epoch seconds, None where no wall delay is armed."""

    version: int
    state: str
    deadline: float | None
    facts: msgspec.Struct


class Once(msgspec.Struct, frozen=True, gc=False):
    """Something that may be used one time: a challenge's `digest`, remembered for `seconds`.

    They are elapsed seconds, so that no clock that is set makes it usable again. A store with a clock of its own goes
    by `until`, in that clock's epoch seconds.
    """

    key: bytes
    seconds: float
    until: float | None = None


class Change(msgspec.Struct, frozen=True, gc=False):
    """One step to be stored: the actor moves from `expected` to `expected` + 1, or nothing happens at all.

    `expected` 0 creates it. `stored` None removes it: it reached a final state. `once` is used up in the same step.
    """

    chart: str
    actor: str
    expected: int
    stored: Stored | None
    once: Once | None = None


def new_identity() -> str:
    """A new identity for an engine or a fleet, `urn:uuid:...` (RFC 9562)."""
    return f"urn:uuid:{uuid.uuid4()}"


class VersionMoved(Exception):
    """Another engine has changed the actor first: load it and advance again."""


class AlreadyUsed(Refusal):
    """The change's `once` was used before; nothing was stored."""

    code = "already_used"


class Store(Protocol):
    """Keeps actors by chart and id, each with a version. Memory, SQLite and Redis pass one contract test."""

    shared: bool
    """Whether other engines write here too: then an actor is read again before each step of it."""

    shields_commit: bool
    """Whether a cancelled caller can't interrupt `commit`: it never waits, or shields its own waiting. Then the runtime
    need not shield it, which would cost as much as the step itself."""

    def define(self, facts: Mapping[str, type[msgspec.Struct]]) -> None:
        """Which type the facts of each chart have."""

    async def load(self, chart: str, actor: str) -> Stored | None:
        """The actor now, or None."""

    async def load_many(self, chart: str, actors: Sequence[str]) -> list[Stored | None]:
        """Each of these now, or None, in their order."""

    async def commit(self, change: Change) -> None:
        """Store the change whole and durably. Raises VersionMoved, AlreadyUsed, StoreUnavailable."""

    async def live(self, chart: str) -> list[tuple[str, Stored]]:
        """Every stored actor of a chart, by id."""

    async def identity(self) -> str:
        """The name of the engine, or the fleet, that this store is the memory of: `iss` and `aud` of its tokens."""

    def check(self) -> None:
        """Raises StoreUnavailable where it is known that a change can't be stored now."""

    def size(self) -> int:
        """Bytes that the store takes on its medium, 0 for memory and Redis."""
