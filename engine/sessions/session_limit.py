"""How many live sessions one identity may have: the oldest one that is out of use makes room for the next."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import ceil

from hatchway.engine.base.errors import TooManyRequests
from hatchway.engine.base.text import counted
from hatchway.engine.runtime import Actor, Runtime
from hatchway.engine.settings.settings import Settings

UNUSED = 3600.0
"""Seconds without a use after which a session is out of use."""


class SessionLimit:
    """Counts the sessions of each identity, those that are being started too. `end` ends the one of a name."""

    def __init__(
        self, runtime: Runtime, settings: Callable[[], Settings], end: Callable[[str], Awaitable[object]]
    ) -> None:
        self._runtime, self._settings, self._end = runtime, settings, end
        self._clock = runtime.clock
        self._began = self._clock.wall()
        self._starting: dict[str, int] = {}
        runtime.subscribe_moves(self._note_moved)

    async def enter(self, identity: str) -> None:
        """A session of this identity is about to start; `leave` follows where this returns.

        Raises TooManyRequests where there are too many and all are in use, StoreUnavailable.
        """
        starting = self._starting[identity] = self._starting.get(identity, 0) + 1
        if self._runtime.count_of("session", identity) + starting > self._most:
            try:
                await self._make_room(identity)
            except BaseException:
                self.leave(identity)
                raise

    def leave(self, identity: str) -> None:
        """The start that `enter` announced has succeeded or failed."""
        left = self._starting.pop(identity) - 1
        if left:
            self._starting[identity] = left

    @property
    def _most(self) -> int:
        return self._settings().limits.sessions_per_identity

    async def _make_room(self, identity: str) -> None:
        while True:
            now = self._clock.wall()
            live = [one for one in self._runtime.actors_after("session", "", identity) if is_live(one, now)]
            if len(live) + self._starting[identity] <= self._most:
                return
            unused = next((actor for actor in live if self._unused_at(actor) <= now), None)
            if unused is None:
                raise self._refusal(live, now)
            await self._end(unused.id)

    def _unused_at(self, actor: Actor) -> float:
        """When the session will be out of use, in epoch seconds. A start of this engine counts as a use, since uses are
        not stored."""
        used: float = max(actor.used, actor.facts.started_at, self._began)
        return used + UNUSED

    def _refusal(self, live: list[Actor], now: float) -> TooManyRequests:
        changes = [min(self._unused_at(actor), actor.deadline or 0) for actor in live]
        return TooManyRequests(
            f"{counted(self._most, 'session', 'are')} live of this identity, the most that "
            "`limits.sessions_per_identity` allows, and in use: log out of one, or revoke it",
            retry_after=max(1, ceil(min(changes, default=now) - now)),
        )

    def _note_moved(self, chart: str, name: str, before: str, after: str | None) -> None:
        """Another engine of the fleet has moved an actor: for a session, that is a use."""
        actor = self._runtime.peek(chart, name) if chart == "session" else None
        if actor is not None:
            actor.used = self._clock.wall()


def is_live(actor: Actor, now: float) -> bool:
    """Whether a session has not ended, and its time is not over at `now` in epoch seconds."""
    return actor.state == "active" and (actor.deadline or 0) > now
