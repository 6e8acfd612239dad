"""The session service: live sessions, their tokens, who may still do what (sections 3.2, 4.3)."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator
from typing import Literal

from hatchway.engine.access.challenges import encode
from hatchway.engine.access.limits import Shared
from hatchway.engine.access.principal import IssuedSession, Method, Principal, SessionFacts
from hatchway.engine.access.tokens import Tokens
from hatchway.engine.base import permissions
from hatchway.engine.base.errors import NotFound, TokenRefused
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.runtime import Actor, Data, Runtime
from hatchway.engine.runtime.records import NOBODY, Origin
from hatchway.engine.sessions.session_limit import SessionLimit, is_live
from hatchway.engine.settings.settings import Settings
from hatchway.engine.store.protocol import Once, Store
from hatchway.statecharts import session
from hatchway.statecharts.interpreter import EventRefused

KEPT = 600.0
"""Seconds that a door process may answer for a session by itself: so long the engine does not see that it is used."""

UNKNOWN = -1
"""No actor's version: the store is asked for it."""


class Sessions:
    """Starts, renews, ends and looks up sessions. One for each engine."""

    def __init__(
        self,
        runtime: Runtime,
        store: Store,
        keys: AuthorizedKeys,
        tokens: Tokens,
        settings: Callable[[], Settings],
        mirror: Shared | None = None,
    ) -> None:
        self._runtime, self._keys, self._tokens = runtime, keys, tokens
        self._settings, self._clock = settings, runtime.clock
        self._mirror = mirror
        runtime.register(
            session.CHART,
            facts=SessionFacts,
            store=store,
            effects={"issue_token": self._issue_token, "end_session": _nothing, "clean_up_tokens": _nothing},
            rules={"session_lifetime": _lifetime_ends},
            owner=_identity_of,
        )
        self._limit = SessionLimit(runtime, settings, lambda name: self._revoke(name, NOBODY, "too_many_sessions"))

    async def start(
        self,
        method: Method,
        identity: str,
        granted: tuple[str, ...],
        lifetime: int,
        *,
        proof: Literal["signature", "approval"],
        origin: Origin,
        once: Once | None = None,
    ) -> IssuedSession:
        """A new session of `lifetime` seconds behind a proof.

        Raises TooManyRequests where its identity has as many as it may, AlreadyUsed, StoreUnavailable.
        """
        await self._limit.enter(identity)
        try:
            now = self._clock.wall()
            age = self._settings().session_max_age
            latest = now + (age.key if method == "key" else age.pairing)
            address = sys.intern(origin.address or "")
            facts = SessionFacts(sys.intern(identity), method, granted, lifetime, now, latest, address)
            # The time comes first: sessions of one moment stand together in the store, and are written together.
            name = f"{int(now * 1000):011x}{encode(secrets.token_bytes(9))}"
            by = Origin(identity, origin.address, origin.request_id)
            result = await self._runtime.create("session", name, "start", facts, origin=by, once=once, proof=proof)
            return _signed_in(result)
        finally:
            self._limit.leave(identity)

    def _issue_token(self, actor: Actor, data: Data) -> IssuedSession:
        facts: SessionFacts = actor.facts
        held = self._effective(facts) or ()
        expires_at = int(actor.deadline or 0)
        return IssuedSession(self._tokens.issue(facts.identity, actor.id, held, expires_at), held, expires_at)

    # Use

    def authenticate(self, token: str) -> Principal:
        """Whose good token this is, looked at anew on every call. Raises TokenRefused; StoreUnavailable where the
        store is shared and this engine may have missed what others did."""
        payload = self._tokens.read(token)
        if self._mirror is not None:
            self._mirror.check_fresh()
        actor = self._runtime.peek("session", payload.sid)
        if actor is None or actor.state != "active":
            raise TokenRefused("ended")
        facts: SessionFacts = actor.facts
        now = self._clock.wall()
        if min(payload.exp, actor.deadline or 0) <= now:
            raise TokenRefused("expired")
        held = self._effective(facts)
        if held is None:
            raise TokenRefused("key_unregistered")
        if now > actor.used:
            actor.used = now
        return Principal(actor.id, facts.identity, facts.method, held, payload.exp)

    def good_until(self, principal: Principal) -> float:
        """Epoch seconds until which nothing but a step of its session, or a change of its key, makes it less."""
        actor = self._runtime.peek("session", principal.session)
        return min(principal.expires_at, (actor.deadline if actor else None) or 0)

    def keep(self, principal: Principal) -> float:
        """Epoch seconds until which a door process may answer for the session by itself, which until then is in use."""
        actor, until = self._runtime.peek("session", principal.session), self._clock.wall() + KEPT
        if actor is not None:
            actor.used = until
        return min(self.good_until(principal), until)

    def _effective(self, facts: SessionFacts) -> tuple[str, ...] | None:
        """The session's permissions cut to what its key holds now; None where its key is gone."""
        if facts.method == "pairing":
            return facts.permissions
        entry = self._keys.find(facts.identity)
        return None if entry is None else permissions.cut(facts.permissions, entry.permissions)

    async def look_again(self, token: str) -> None:
        """Ask the shared store itself what became of the session: another engine made or renewed it just now, perhaps.

        Raises TokenRefused, StoreUnavailable.
        """
        assert self._mirror is not None
        name = self._tokens.read(token).sid
        await self._mirror.wait_fresh()
        await self._runtime.absorb("session", {name: UNKNOWN})

    async def started_elsewhere(self, name: str) -> IssuedSession:
        """A first token of a session that another engine started. Raises TokenRefused where it is none, or ended."""
        await self._runtime.absorb("session", {name: UNKNOWN})
        actor = self._runtime.peek("session", name)
        if actor is None or actor.state != "active":
            raise TokenRefused("ended")
        return self._issue_token(actor, {})

    def name_of(self, token: str) -> str:
        """The session that a token is of."""
        return self._tokens.read(token).sid

    async def settle(self, token: str) -> None:
        """End for good what `authenticate` refused for its clock or its key: no later clock or key revives it."""
        try:
            actor = self._runtime.peek("session", self._tokens.read(token).sid)
        except TokenRefused:
            return
        if actor is not None:
            await self._runtime.catch_up(actor)
            if self._effective(actor.facts) is None:
                await self._revoke(actor.id, NOBODY, "key_unregistered")

    async def renew(self, principal: Principal, origin: Origin) -> IssuedSession:
        """The same session, its lifetime counted from now. Raises TokenRefused where a logout came first."""
        return _signed_in(await self._event(principal.session, "renew", origin))

    async def logout(self, principal: Principal, origin: Origin) -> None:
        """Every token of the session is dead, durably, when this returns."""
        await self._event(principal.session, "logout", origin)

    async def _event(self, name: str, event: str, origin: Origin) -> object:
        try:
            return await self._runtime.send("session", name, event, origin=origin)
        except EventRefused as refused:
            raise TokenRefused(refused.cause) from None

    # Listing and revoking

    def visible(self, principal: Principal, after: str = "") -> Iterator[Actor]:
        """The live sessions a holder may see, its identity's own, all with MASTER: those whose names come after that
        one, in the order of their names, which is that of their starts. To be read at once."""
        owner, now = self._sees(principal), self._clock.wall()
        for actor in self._runtime.actors_after("session", after, owner):
            if is_live(actor, now):
                yield actor

    @staticmethod
    def _sees(principal: Principal) -> str | None:
        """Whose sessions a holder may see; None for everybody's."""
        return None if permissions.allows(principal.permissions, permissions.MASTER) else principal.identity

    async def revoke(self, principal: Principal, name: str, origin: Origin) -> None:
        """End another session. Raises NotFound; PermissionDenied for a stranger's without MASTER is NotFound too."""
        actor = self._runtime.peek("session", name)
        if (
            actor is None
            or self._sees(principal) not in (None, actor.facts.identity)
            or not is_live(actor, self._clock.wall())
        ):
            raise NotFound("no such session")
        await self._revoke(name, origin, "revoked")

    async def end_all_of(self, identities: set[str], origin: Origin = NOBODY) -> int:
        """End every session of these identities, whose keys are authorized no more; how many there were."""
        names = [actor.id for actor in self._runtime.actors("session") if actor.facts.identity in identities]
        return sum([await self._revoke(name, origin, "key_unregistered") for name in names])

    async def end_orphans(self) -> int:
        """End the sessions whose key was taken out of authorized_keys, by hand or while the engine was down."""
        actors = list(self._runtime.actors("session"))
        return await self.end_all_of({actor.facts.identity for actor in actors if self._effective(actor.facts) is None})

    async def _revoke(self, name: str, origin: Origin, cause: str) -> bool:
        try:
            await self._runtime.send("session", name, "revoke", origin=origin, cause=cause)
        except EventRefused:
            return False
        return True

    async def end(self, token: str, cause: str) -> None:
        """End the session of a token that never reached its owner."""
        await self._revoke(self._tokens.read(token).sid, NOBODY, cause)


def _lifetime_ends(facts: SessionFacts, now: float) -> float:
    return float(min(int(now) + facts.lifetime, int(facts.latest)))


def _identity_of(facts: SessionFacts) -> str:
    return facts.identity


def _signed_in(result: object) -> IssuedSession:
    """What `issue_token` returned."""
    assert isinstance(result, IssuedSession)
    return result


def _nothing(actor: Actor, data: Data) -> None:
    """The step itself is the effect: the store holds the session's end, and every token of it is looked up there."""
