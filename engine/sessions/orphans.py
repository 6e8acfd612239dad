"""Sessions whose key has changed under them: ended where it grants nothing any more, or else made to end as it says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog
import trio

from hatchway.engine.access.principal import SessionFacts
from hatchway.engine.base.errors import Refusal, TooManyRequests
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.keys.key_command import ASKED_AGAIN_AFTER, REMEMBERED
from hatchway.engine.runtime import Actor, Runtime
from hatchway.engine.runtime.records import NOBODY, Origin
from hatchway.engine.sessions.sessions import Sessions
from hatchway.statecharts.interpreter import EventRefused

log = structlog.get_logger(__name__)

CONFIRM_INTERVAL = 5.0
"""Seconds between two looks for keys that a program of the site is to be asked for again, and between two tries to end
sessions while the store is away."""


class Orphans:
    """Minds the sessions whose key was taken out, edited, or is over. One for each engine."""

    def __init__(self, sessions: Sessions, runtime: Runtime, keys: AuthorizedKeys) -> None:
        self._sessions, self._runtime, self._keys = sessions, runtime, keys
        self._ended: Counter[str] = Counter()
        """How many sessions the latest `end_all` ended, by identity."""

    async def end_all(self) -> None:
        """End the sessions whose key was taken out of authorized_keys, by hand or while the engine was down, or is
        over; shorten those that its line now ends sooner. Raises StoreUnavailable."""
        ended = self._ended = Counter()
        for actor in self._of_keys():
            if (cause := self._sessions.lost(actor.facts)) is not None:
                ended[actor.facts.identity] += await self._sessions.end_named(actor.id, NOBODY, cause)
                continue
            latest = self._sessions.key_ends(actor.facts.identity, actor.facts.started_at)
            if latest < (actor.deadline or 0):
                await self._shorten(actor, latest)

    async def end_of(self, identities: set[str], origin: Origin = NOBODY) -> int:
        """End the sessions of these identities, whose keys a command has just taken out. Returns how many ended by
        that: `end_all` may have seen it first. Raises StoreUnavailable."""
        ended = await self._sessions.end_all_of(identities, origin)
        return ended + sum(self._ended.pop(identity, 0) for identity in identities)

    async def end_once(self, whole: Callable[[], Awaitable[None]]) -> None:
        """End them once `whole()` has returned: in a fleet its sessions come behind the engine's first answers. Tried
        again while the store is away, or the keys can't be read; till then their tokens let nobody in."""
        await whole()
        while True:
            try:
                await self.end_all()
            except Refusal as refused:
                log.warning("orphans_not_ended", why=refused.why)
                await trio.sleep(CONFIRM_INTERVAL)
            else:
                return

    async def confirm(self) -> None:
        """Ask again for the keys of live sessions that no line is of, before what was granted is forgotten; end the
        sessions of those that are granted nothing any more. Raises StoreUnavailable."""
        for identity in {actor.facts.identity for actor in self._of_keys()}:
            if self._keys.good_for(identity) > REMEMBERED - ASKED_AGAIN_AFTER:
                continue  # it was asked less than `ASKED_AGAIN_AFTER` seconds ago
            with suppress(TooManyRequests):  # a later round asks
                await self._keys.ask_elsewhere(identity)
                if self._keys.find(identity) is None and not self._keys.must_be_asked(identity):
                    await self._sessions.end_all_of({identity})

    async def run(self, asked_elsewhere: Callable[[], bool]) -> None:
        """Confirm keys for ever, while `asked_elsewhere()` says that the settings name a program to ask."""
        while True:
            await trio.sleep(CONFIRM_INTERVAL)
            if asked_elsewhere():
                try:
                    await self.confirm()
                except Refusal as refused:
                    log.warning("keys_not_confirmed", why=refused.why)

    def _of_keys(self) -> list[Actor]:
        return [actor for actor in self._runtime.actors("session") if actor.facts.method == "key"]

    async def _shorten(self, actor: Actor, latest: float) -> None:
        """Whatever the clock does from now on, the session's own deadline is the new one."""
        facts: SessionFacts = actor.facts
        renewed_at = facts.renewed_at or (actor.deadline or 0) - facts.lifetime
        with suppress(EventRefused):  # it has ended meanwhile
            changes = {"latest": latest, "renewed_at": renewed_at}
            await self._runtime.send("session", actor.id, "shorten", changes=changes)
