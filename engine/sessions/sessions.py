"""The session service: live sessions, their tokens, who may still do what (sections 3.2, 4.3)."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator
from math import inf
from typing import Literal

from hatchway.engine.access.devices import Device
from hatchway.engine.access.limits import FleetView
from hatchway.engine.access.principal import IssuedSession, Method, Principal, SessionFacts
from hatchway.engine.access.tokens import Tokens
from hatchway.engine.base import permissions
from hatchway.engine.base.base64url import encode
from hatchway.engine.base.errors import FOREIGN, NotFound, Refusal, TokenRefused
from hatchway.engine.keys.authorized_keys import AuthorizedKeys, KeyGrant
from hatchway.engine.keys.key_options import KeyOptions
from hatchway.engine.runtime import UNKNOWN, Actor, Data, Runtime
from hatchway.engine.runtime.records import NOBODY, Origin
from hatchway.engine.sessions.session_limit import SessionLimit, is_live
from hatchway.engine.settings.settings import Settings
from hatchway.engine.store.protocol import Once, Store
from hatchway.statecharts import session
from hatchway.statecharts.interpreter import EventRefused

KEPT_BY_WORKER = 600.0
"""Seconds that a worker may answer inspections of a session by itself. The engine sees no use of it meanwhile."""

NO_DEVICE = Device()

UNHEARD = frozenset({"stale", "ended", "expired"})
"""Causes of a refusal that may be a mistake in a fleet: this engine may not have heard yet what another one did."""

NOT_ASKED = "key_not_asked"
"""Cause of the refusal of a key that a program of the site knows, which has not been asked for it for a minute."""

KEYS_UNSETTLED = "keys_unsettled"
"""Cause of a refusal while authorized_keys is being written, or a large change of it read."""

LIST_PATIENCE = 5.0
"""Seconds that a list waits at most for an engine that has just started to have all sessions of its fleet."""

OVER = frozenset({"expired", "key_expired", "key_unregistered"})
"""Causes of a refusal by which a session is over, though no step has ended it yet."""


def used_at(actor: Actor) -> float:
    """When a session was used last, in epoch seconds, as far as this engine knows. The time lies ahead where a worker
    may answer for the session (`keep_for_worker`)."""
    facts: SessionFacts = actor.facts
    return max(actor.used, facts.renewed_at, facts.started_at)


def _nowhere() -> str:
    """Stands for an address that is not known."""
    return ""


def check_use(options: KeyOptions, facts: SessionFacts, now: float, address: Callable[[], str]) -> None:
    """Raises TokenRefused where the options of its key refuse this use of a session."""
    if options.ends_by(facts.started_at) <= now:
        raise TokenRefused("key_expired")
    if options.sources is not None and not options.admits(address()):
        raise TokenRefused(FOREIGN)


class Sessions:
    """Starts, renews, ends and looks up sessions. One for each engine.

    `fleet` is the engine's view of its fleet, None for an engine of none.
    """

    def __init__(
        self,
        runtime: Runtime,
        store: Store,
        keys: AuthorizedKeys,
        tokens: Tokens,
        settings: Callable[[], Settings],
        fleet: FleetView | None = None,
    ) -> None:
        self._runtime, self._keys, self._tokens = runtime, keys, tokens
        self._settings, self._clock = settings, runtime.clock
        self._fleet = fleet
        self._actors = runtime.register(
            session.CHART,
            facts=SessionFacts,
            store=store,
            effects={"issue_token": self._issue_token, "end_session": _nothing, "clean_up_tokens": _nothing},
            rules={"session_lifetime": _lifetime_ends},
            owner=_identity_of,
        )
        self._limit = SessionLimit(runtime, settings, lambda name: self.end_named(name, NOBODY, "too_many_sessions"))

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
        device: Device = NO_DEVICE,
    ) -> IssuedSession:
        """A new session of `lifetime` seconds behind a proof.

        Raises TooManyRequests where its identity has as many as it may, AlreadyUsed, StoreUnavailable.
        """
        await self._limit.enter(identity)
        try:
            now = self._clock.wall()
            age = self._settings().session_max_age
            latest = min(now + age.key, self.key_ends(identity, now)) if method == "key" else now + age.pairing
            grant = self._keys.find(identity) if method == "key" else None
            address = sys.intern(origin.address or "")
            label, agent = map(sys.intern, device)
            facts = SessionFacts(
                sys.intern(identity), method, granted, lifetime, now, latest, address, label, agent, now
            )
            # The time comes first: sessions of one moment stand together in the store, and are written together.
            name = f"{int(now * 1000):011x}{encode(secrets.token_bytes(9))}"
            by = Origin(identity, *origin[1:])
            return await self._runtime.create(
                "session",
                name,
                "start",
                facts,
                origin=by,
                once=once,
                returns=IssuedSession,
                proof=proof,
                label=device.label,
                comment=None if grant is None else grant.comment,
            )
        finally:
            self._limit.leave(identity)

    def _issue_token(self, actor: Actor, data: Data) -> IssuedSession:
        facts: SessionFacts = actor.facts
        grant = self._grant_of(facts)
        held = self._effective(facts) or ()
        expires_at = int(actor.deadline or 0)
        # Issued when its lifetime began, though a slow disk came between: clients reckon the lifetime from the two.
        token = self._tokens.issue(facts.identity, actor.id, held, int(facts.renewed_at), expires_at)
        options = None if grant is None else grant.options
        ends_soon = None if options is None else options.ends_soon(self._clock.wall())
        return IssuedSession(token, held, expires_at, ends_soon)

    # Use

    def authenticate(self, token: str, address: Callable[[], str] = _nowhere) -> Principal:
        """Who a token stands for, and what they may do now. Expiry, session and key are checked on every call.

        `address` tells where the token came from, and is called only where its key has a `from`. Raises TokenRefused;
        StoreUnavailable where the store is shared and this engine may have missed what others did.
        """
        payload = self._tokens.read(token)
        if self._fleet is not None:
            self._fleet.check_fresh()
        actor = self._actors.get(payload.sid)
        if actor is None or actor.state != "active":
            raise TokenRefused("ended")
        facts: SessionFacts = actor.facts
        now = self._clock.wall()
        if min(payload.exp, actor.deadline or 0) <= now:
            raise TokenRefused("expired")
        held, ends_soon = facts.permissions, None
        if facts.method == "key":
            if not self._keys.settled():
                raise TokenRefused(KEYS_UNSETTLED)
            grant = self._keys.find(facts.identity)
            if grant is None:
                asked = not self._keys.must_be_asked(facts.identity)
                raise TokenRefused("key_unregistered" if asked else NOT_ASKED)
            held = permissions.cut(held, grant.permissions)
            if grant.options is not None:
                check_use(grant.options, facts, now, address)
                ends_soon = grant.options.ends_soon(now)
        if now > actor.used:
            actor.used = now
        ends_at = min(payload.exp, int(actor.deadline or 0))  # its key's end may have been brought forward
        return Principal(actor.id, facts.identity, facts.method, held, ends_at, ends_soon)

    def good_until(self, principal: Principal) -> float:
        """Epoch seconds until which the principal stays as it is, unless its session takes a step or its key
        changes."""
        actor = self._actors.get(principal.session)
        if actor is None:
            return 0
        by_key = self.key_ends(principal.identity, actor.facts.started_at)
        if principal.method == "key":
            by_key = min(by_key, self._clock.wall() + self._keys.good_for(principal.identity))
        return min(principal.expires_at, actor.deadline or 0, by_key)

    def keep_for_worker(self, principal: Principal) -> float:
        """Epoch seconds until which a worker may answer inspections of this session by itself. Till then it is in use:
        `SessionLimit` ends no session that is. 0 where the next answer depends on where the next request comes from."""
        actor, until = self._actors.get(principal.session), self._clock.wall() + KEPT_BY_WORKER
        grant = self._keys.find(principal.identity) if principal.method == "key" else None
        if grant is not None and grant.options is not None and grant.options.sources is not None:
            return 0
        if actor is not None:
            actor.used = until
        return min(self.good_until(principal), until)

    def _grant_of(self, facts: SessionFacts) -> KeyGrant | None:
        """What the session's key grants now; None where it grants nothing, or the session came by a pairing."""
        return self._keys.find(facts.identity) if facts.method == "key" else None

    def comment_of(self, facts: SessionFacts) -> str | None:
        """What the line of the session's key calls it now; None where no line is of it, or it came by a pairing."""
        grant = self._grant_of(facts)
        return None if grant is None else grant.comment

    def _effective(self, facts: SessionFacts) -> tuple[str, ...] | None:
        """The session's permissions, cut to those that its key grants now; None where the key grants nothing."""
        if facts.method != "key":
            return facts.permissions
        grant = self._grant_of(facts)
        return None if grant is None else permissions.cut(facts.permissions, grant.permissions)

    def key_ends(self, identity: str, started_at: float) -> float:
        """The latest end, in epoch seconds, of a session of this key that began at `started_at`, by the options of the
        key's line now."""
        grant = self._keys.find(identity)
        return inf if grant is None or grant.options is None else grant.options.ends_by(started_at)

    def lost(self, facts: SessionFacts) -> str | None:
        """Why the session is to end, by its key as it is now; None where it may go on."""
        if facts.method != "key":
            return None
        grant = self._grant_of(facts)
        if grant is None:
            return None if self._keys.must_be_asked(facts.identity) else "key_unregistered"
        gone = grant.options is not None and grant.options.ends_by(facts.started_at) <= self._clock.wall()
        return "key_expired" if gone else None

    def may_be_outdated(self, refused: Refusal) -> bool:
        """Whether `authenticate` may have refused a good token, for what this engine does not know yet: then
        `look_again`, and authenticate once more."""
        if refused.cause in (NOT_ASKED, KEYS_UNSETTLED):
            return True
        return self._fleet is not None and refused.cause in UNHEARD

    async def look_again(self, token: str) -> None:
        """Read the token's session from the shared store, where there is one: another engine may have made or renewed
        it just now. Wait until authorized_keys is settled, and ask for the token's key elsewhere, where that is due.

        Raises TokenRefused for a token that is none of ours, StoreUnavailable, TooManyRequests, FileRefused.
        """
        name = self._tokens.read(token).sid
        if self._fleet is not None:
            await self._fleet.wait_fresh()
            await self._runtime.absorb("session", {name: UNKNOWN})
        actor = self._actors.get(name)
        if actor is not None and actor.facts.method == "key":
            await self._keys.settle()
            if self._keys.must_be_asked(actor.facts.identity):
                await self._keys.ask_elsewhere(actor.facts.identity)
                await self._keys.settle()  # the call took more than one tick, in which the file may have changed

    async def started_elsewhere(self, name: str) -> IssuedSession:
        """A first token of the session `name` that another engine started. Raises TokenRefused where there is none
        such.

        A pairing code may be claimed at one engine and approved at another: the token is made where the client waits.
        """
        await self._runtime.absorb("session", {name: UNKNOWN})
        actor = self._actors.get(name)
        if actor is None or actor.state != "active":
            raise TokenRefused("ended")
        return self._issue_token(actor, {})

    def name_of(self, token: str) -> str:
        """The name of the session that a token belongs to. Raises TokenRefused."""
        return self._tokens.read(token).sid

    @staticmethod
    def is_over(refused: Refusal) -> bool:
        """Whether a refusal says that the session is over: then it is to be settled."""
        return isinstance(refused, TokenRefused) and refused.cause in OVER

    async def settle(self, token: str) -> None:
        """End a session that is over, because its time was over or its key was gone when `authenticate` was asked.

        Else a clock that is set back, or a key that is registered again, would revive it.
        """
        try:
            actor = self._actors.get(self._tokens.read(token).sid)
        except TokenRefused:
            return
        if actor is not None:
            await self._runtime.catch_up(actor)
            if (cause := self.lost(actor.facts)) is not None:
                await self.end_named(actor.id, NOBODY, cause)

    async def renew(self, principal: Principal, origin: Origin) -> IssuedSession:
        """The same session, its lifetime counted from now. Raises TokenRefused where a logout came first."""
        changes = {"renewed_at": self._clock.wall()}
        try:
            return await self._runtime.send(
                "session", principal.session, "renew", origin=origin, changes=changes, returns=IssuedSession
            )
        except EventRefused as refused:
            raise TokenRefused(refused.cause) from None

    async def logout(self, principal: Principal, origin: Origin) -> None:
        """End the session. When this returns, that is stored, and no token of the session is accepted. Raises
        TokenRefused, StoreUnavailable."""
        try:
            await self._runtime.send("session", principal.session, "logout", origin=origin)
        except EventRefused as refused:
            raise TokenRefused(refused.cause) from None

    def tell_foreign_use(self, token: str, origin: Origin) -> None:
        """Record that a session was used from where its key may not be used: its token was carried elsewhere. Raises
        TokenRefused."""
        actor = self._actors.get(self._tokens.read(token).sid)
        if actor is not None:
            by = Origin(actor.facts.identity, *origin[1:])
            self._runtime.records.refusal("session", "-", "use", FOREIGN, by, comment=self.comment_of(actor.facts))

    # Listing and revoking

    def key_uses(self) -> Iterator[tuple[str, float]]:
        """Identity and last use, in epoch seconds, of each live session of a key."""
        for actor in list(self._runtime.actors("session")):
            if actor.facts.method == "key":
                yield actor.facts.identity, used_at(actor)

    async def wait_whole(self) -> None:
        """Wait until all sessions of the fleet are in memory, for lists. Raises StoreUnavailable after a while."""
        if self._fleet is not None:
            await self._fleet.wait_whole(LIST_PATIENCE)

    def visible(self, principal: Principal, after: str = "") -> Iterator[Actor]:
        """The live sessions that a principal may see: those of its identity, or with MASTER all.

        They come in the order of their names, which is that of their starts, from behind the name `after` on. Read the
        iterator before the next step of any session.
        """
        owner, now = self._sees(principal), self._clock.wall()
        for actor in self._runtime.actors_after("session", after, owner):
            if is_live(actor, now):
                yield actor

    @staticmethod
    def _sees(principal: Principal) -> str | None:
        """The identity whose sessions a principal may see; None for everybody's."""
        return None if permissions.allows(principal.permissions, permissions.MASTER) else principal.identity

    async def revoke(self, principal: Principal, name: str, origin: Origin) -> None:
        """End the session `name`. Raises NotFound, also for one that the principal may not see; StoreUnavailable."""
        if self._fleet is not None:
            await self._runtime.absorb("session", {name: UNKNOWN})
        actor = self._actors.get(name)
        if (
            actor is None
            or self._sees(principal) not in (None, actor.facts.identity)
            or not is_live(actor, self._clock.wall())
        ):
            raise NotFound("no such session")
        await self.end_named(name, origin, "revoked")

    async def end_all_of(self, identities: set[str], origin: Origin = NOBODY) -> int:
        """End every session of these identities, whose keys are authorized no more. Returns how many it ended."""
        names = [actor.id for actor in self._runtime.actors("session") if actor.facts.identity in identities]
        return sum([await self.end_named(name, origin, "key_unregistered") for name in names])

    async def end_named(self, name: str, origin: Origin, cause: str) -> bool:
        """End the session of this name. Returns whether there was one to end. Raises StoreUnavailable."""
        try:
            await self._runtime.send("session", name, "revoke", origin=origin, cause=cause)
        except EventRefused:
            return False
        return True

    async def end(self, token: str, cause: str) -> None:
        """End the session of a token that never reached its owner."""
        await self.end_named(self._tokens.read(token).sid, NOBODY, cause)


def _lifetime_ends(facts: SessionFacts, now: float) -> float:
    return float(min(int(facts.renewed_at or now) + facts.lifetime, int(facts.latest)))


def _identity_of(facts: SessionFacts) -> str:
    return facts.identity


def _nothing(actor: Actor, data: Data) -> None:
    """The effects `end_session` and `clean_up_tokens`, which have nothing to do. The step is stored before effects run,
    and with that every token of the session is refused."""
