"""The pairing service: codes that are out, their claims and answers, and the limits on guessing (sections 3.1, 4.4)."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec
import trio

from hatchway.engine.access.devices import device_of
from hatchway.engine.access.limits import FleetView, limit_of
from hatchway.engine.access.principal import IssuedSession
from hatchway.engine.base.errors import PairingCodeRefused, PairingExpired, Refusal, TooManyRequests
from hatchway.engine.pairings.claims import (
    MESSAGES,
    Claim,
    Claimant,
    FleetCodes,
    Issued,
    PairingCode,
    Shown,
    Terminal,
    escaped_agent,
)
from hatchway.engine.pairings.codes import new_code, normalise
from hatchway.engine.runtime import Actor, Data, Runtime
from hatchway.engine.runtime.records import NOBODY, Origin
from hatchway.engine.settings.settings import Settings
from hatchway.engine.store.protocol import Store
from hatchway.statecharts import pairing
from hatchway.statecharts.interpreter import EventRefused

__all__ = ["Claim", "Claimant", "Issued", "Pairings", "Terminal"]

OUT_AT_ONCE = 4
"""Codes that may be out, one for each terminal."""

REMEMBERED = 600.0
"""Seconds in which a used code that is tried again doesn't count as a guess."""

LEAVE_PATIENCE = 5.0
"""Seconds that `leave` waits at most for a sign-in that is just being stored."""


class PairingFacts(msgspec.Struct, frozen=True, gc=False):
    """What a pairing is for. `lifetime` in seconds; `match` is the number both sides show, once claimed."""

    permissions: tuple[str, ...]
    lifetime: int
    match: str = ""


SessionStart = Callable[..., Awaitable[IssuedSession]]
"""`Sessions.start`."""

SessionEnd = Callable[[str, str], Awaitable[None]]
"""`Sessions.end`: takes a token of the session, and the cause."""


class Pairings:
    """Issues codes, takes claims and the operator's answers. The service keeps the codes; no actor holds one.

    `start_session` and `end_session` are those of `Sessions`; `fleet` counts wrong codes for all its
    engines, and `remote_codes` has the codes of the others. Both are None for an engine of no fleet.
    """

    def __init__(
        self,
        runtime: Runtime,
        store: Store,
        settings: Callable[[], Settings],
        start_session: SessionStart,
        end_session: SessionEnd,
        fleet: FleetView | None = None,
        remote_codes: FleetCodes | None = None,
    ) -> None:
        self._remote_codes = remote_codes
        self._runtime, self._settings = runtime, settings
        self._start_session, self._end_session = start_session, end_session
        self._clock = runtime.clock
        self._codes: dict[str, PairingCode] = {}
        """By the pairing's name: every code that is out, and those consumed in the last ten minutes."""
        self._wrong = limit_of(fleet, self._clock, lambda: settings().limits.wrong_codes, "wrong pairing codes")
        runtime.register(
            pairing.CHART,
            facts=PairingFacts,
            store=store,
            effects={
                "print_code": self._print_code,
                "confirm_claim": self._confirm_claim,
                "ask_operator": self._ask_operator,
                "consume_code": self._consume_code,
                "sign_in": self._sign_in,
                "refuse_claim": self._refuse_claim,
                "report_expiry": self._report_expiry,
            },
        )

    def __len__(self) -> int:
        return len(self._out())

    def _out(self) -> list[tuple[str, PairingCode]]:
        """The codes that still work, with their pairings' names."""
        return [(name, code) for name, code in self._codes.items() if code.consumed_at is None]

    # The host's side

    async def issue(self, permissions: tuple[str, ...], lifetime: int, terminal: Terminal, origin: Origin) -> Issued:
        """Print a code for a session of `lifetime` seconds. Raises TooManyRequests while four are out."""
        self._forget_consumed()
        if len(self) >= OUT_AT_ONCE:
            raise TooManyRequests(f"{OUT_AT_ONCE} pairing codes are out already: answer or withdraw one first")
        name, code = secrets.token_urlsafe(9), new_code()
        self._codes[name] = PairingCode(code, terminal)
        try:
            facts = PairingFacts(permissions, lifetime)
            issued = await self._runtime.create("pairing", name, "issue", facts, origin=origin, returns=Issued)
        except BaseException:
            del self._codes[name]
            raise
        if self._remote_codes is not None:
            try:
                await self._remote_codes.publish(name, code)
            except BaseException:
                with trio.CancelScope(shield=True):
                    await self.withdraw(name, NOBODY)
                raise
        return issued

    async def answer(self, name: str, approved: bool, origin: Origin) -> None:
        """The operator's answer. Raises PairingExpired where it came too late, or the claim is gone."""
        try:
            await self._runtime.send("pairing", name, "approve" if approved else "reject", origin=origin)
        except EventRefused:
            raise PairingExpired from None

    async def withdraw(self, name: str, origin: Origin, cause: str = "withdrawn") -> None:
        """Void the code at the operator's wish. Nothing happens to one that is used up."""
        if self._is_out(name):
            await self._quietly(name, "withdraw", origin, cause)

    async def withdraw_all(self, cause: str) -> None:
        """Void all codes; terminals and consoles are told. `cause` is a key of `MESSAGES`."""
        for name, _ in self._out():
            await self.withdraw(name, NOBODY, cause)
        if self._remote_codes is not None:
            self._remote_codes.stop()

    # The console's side

    async def claim(self, text: str, claimant: Claimant, origin: Origin) -> Claim:
        """Claim a code as typed.

        Raises PairingCodeRefused (one answer for all causes), TooManyRequests.
        """
        address = origin.address or ""
        try:
            await self._wrong.take(address)  # counted before the comparison, so that no burst of tries gets past it
        except TooManyRequests:
            self._runtime.records.surplus("pairing", "claim", origin)
            raise
        code = normalise(text)
        shown: Shown = claimant._asdict() | {"agent": escaped_agent(claimant.agent)}
        name = self._find(code)
        if name is None and self._remote_codes is not None:
            return await self._claim_remote(self._remote_codes, code, shown, address, origin)
        if name is None:
            raise await self._refusal(code, address, origin)
        await self._wrong.give_back(address)
        claim = Claim(name, origin, escaped_agent(claimant.agent))
        await self.claim_here(claim, shown)
        return claim

    async def _claim_remote(
        self, remote_codes: FleetCodes, code: str, shown: Shown, address: str, origin: Origin
    ) -> Claim:
        try:
            claim = await remote_codes.claim(code, shown, origin)
        except PairingCodeRefused as refused:
            if refused.cause != "wrong_code":
                await self._wrong.give_back(address)
            self._runtime.records.refusal("pairing", "-", "claim", refused.cause, origin)
            raise
        await self._wrong.give_back(address)
        return claim

    async def claim_here(self, claim: Claim, shown: Shown) -> None:
        """Claim a code that was printed at this engine, for a console of whatever engine. Raises PairingCodeRefused."""
        changes = {"match": f"{secrets.randbelow(100):02d}"}
        try:
            await self._runtime.send(
                "pairing", claim.id, "claim", origin=claim.origin, changes=changes, claim=claim, shown=shown
            )
        except EventRefused as refused:
            raise PairingCodeRefused(refused.cause) from None

    async def void(self, claim: Claim) -> None:
        """Void a claim of a code of this engine, whose console is gone. Nothing happens where the claim is over."""
        if self._is_out(claim.id):
            await self._quietly(claim.id, "leave", claim.origin, "console_hung_up")

    async def leave(self, claim: Claim) -> None:
        """The console hung up: void its claim.

        The operator's yes may have come first, and its session be on its way to the store. Where the claim has its
        answer when this returns, the caller ends that session; else `_sign_in` does as soon as the session is made.
        """
        await self.void(claim)
        if self._remote_codes is not None:
            self._remote_codes.leave(claim)
        with trio.move_on_after(LEAVE_PATIENCE):
            await claim.wait_answered()
        claim.given_up = not claim.answered

    def _find(self, code: str) -> str | None:
        """The name of the pairing whose code this is; None where no such code is out.

        All codes are compared, each in constant time, so that the time tells nothing.
        """
        found = None
        for name, held in self._out():
            if secrets.compare_digest(held.code.encode(), code.encode()):
                found = name
        return found

    def _is_out(self, name: str) -> bool:
        code = self._codes.get(name)
        return code is not None and code.consumed_at is None

    def _forget_consumed(self) -> None:
        oldest = self._clock.elapsed() - REMEMBERED
        for name, code in list(self._codes.items()):
            if code.consumed_at is not None and code.consumed_at <= oldest:
                del self._codes[name]

    async def _refusal(self, code: str, address: str, origin: Origin) -> PairingCodeRefused:
        self._forget_consumed()
        if any(code == used.code for used in self._codes.values() if used.consumed_at is not None):
            await self._wrong.give_back(address)
            cause = "used_code"
        else:
            cause = "wrong_code"
            await self._count_guess(origin)
        self._runtime.records.refusal("pairing", "-", "claim", cause, origin)
        return PairingCodeRefused(cause)

    async def _count_guess(self, origin: Origin) -> None:
        for name, code in self._out():
            await self.wrong_code(name, code.wrong + 1, origin)

    async def wrong_code(self, name: str, count: int, origin: Origin = NOBODY) -> None:
        """So many wrong codes were tried while this pairing's code was out: tell its terminal, and past the limit void
        the code."""
        limit = self._settings().limits.wrong_codes_total
        if not self._is_out(name):
            return
        code = self._codes[name]
        code.wrong = count
        if count in (1, limit // 2) or count >= limit:
            code.terminal("wrong_codes", count=count)
        if count >= limit:
            await self._quietly(name, "withdraw", origin, "too_many_wrong_codes")

    async def _quietly(self, name: str, event: str, origin: Origin, cause: str) -> None:
        with suppress(EventRefused):  # another event ended the pairing first
            await self._runtime.send("pairing", name, event, origin=origin, cause=cause)

    # Effects

    def _print_code(self, actor: Actor, data: Data) -> Issued:
        """The result of `issue`, whose caller prints the code."""
        return Issued(actor.id, self._codes[actor.id].code, pairing.CLAIM_WINDOW)

    def _confirm_claim(self, actor: Actor, data: Data) -> None:
        claim: Claim = data["claim"]
        claim.match = actor.facts.match
        self._codes[actor.id].claim = claim

    def _ask_operator(self, actor: Actor, data: Data) -> None:
        shown = data["shown"]
        self._codes[actor.id].terminal("claimed", match=actor.facts.match, expires_in=pairing.DECISION_WINDOW, **shown)

    def _consume_code(self, actor: Actor, data: Data) -> None:
        code = self._codes[actor.id]
        code.consumed_at = self._clock.elapsed()
        if self._remote_codes is not None:
            self._remote_codes.retire(code.code)
        if actor.state != "approved":  # `_sign_in` tells of an approval, once there is the session
            late = actor.state == "expired" and code.claim is not None
            key = "expired_on_approval" if late else data.get("cause") or actor.state
            code.terminal(actor.state, message=MESSAGES.get(key, MESSAGES[actor.state]))
        if actor.state == "left":
            code.answer(PairingCodeRefused("left"))

    async def _sign_in(self, actor: Actor, data: Data) -> None:
        code, facts = self._codes[actor.id], actor.facts
        claim = code.claim
        assert claim is not None
        try:
            signed_in = await self._start_session(
                "pairing",
                f"pairing:{actor.id}",
                facts.permissions,
                facts.lifetime,
                proof="approval",
                origin=claim.origin,
                device=device_of(None, claim.agent.encode()),
            )
        except Refusal as refused:
            code.answer(refused)
            code.terminal("failed", message=f"approved, but no session was made: {refused.detail}")
            return
        code.answer(signed_in)
        if claim.given_up:
            code.terminal("failed", message="approved, but the console had gone away")
            await self._end_session(signed_in.token, "console_hung_up")
        else:
            code.terminal("approved", message=MESSAGES["approved"])

    def _refuse_claim(self, actor: Actor, data: Data) -> None:
        self._codes[actor.id].answer(PairingCodeRefused(actor.state))

    def _report_expiry(self, actor: Actor, data: Data) -> None:
        self._codes[actor.id].answer(PairingExpired())
