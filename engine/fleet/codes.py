"""Pairing codes across engines: printed and answered at one, claimed through another; no token passes between them."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Any

import msgspec
import trio

from engine.claims import Claim, Shown
from engine.errors import PairingCodeRefused, PairingExpired, Refusal, StoreUnavailable
from engine.fleet.fleet import Fleet
from engine.holders import SignedIn
from engine.pairings import REMEMBERED, Pairings
from engine.records import Origin
from engine.store.redis import PREFIX
from engine.store.scripts import CLAIM, PUBLISH
from statecharts.pairing import CLAIM_WINDOW

CODES = PREFIX + "codes"

TAKING = 2.0
"""Seconds in which the engine that printed a code must take a claim of it."""

_encode = msgspec.msgpack.encode


class Asked(msgspec.Struct, array_like=True):
    """A claim on its way to the engine that printed the code: who holds the console, and what the operator is shown."""

    run: str
    ticket: str
    shown: Shown
    origin: Origin


class Told(msgspec.Struct, array_like=True):
    """What became of a claim: the session that was started, or the code and cause of the refusal."""

    ticket: str
    match: str = ""
    session: str = ""
    refused: str = ""
    detail: str = ""


class _Visitor(Claim):
    """A claim whose console another engine holds; its answer goes there."""

    def __init__(self, pairing: str, asked: Asked, tell: Callable[[_Visitor], None]) -> None:
        super().__init__(pairing, asked.origin)
        self.run, self.ticket, self._tell = asked.run, asked.ticket, tell

    def answer(self, result: SignedIn | Refusal) -> None:
        super().answer(result)
        self._tell(self)


class _Out:
    """A claim of this engine's console, of a code that another one printed."""

    def __init__(self, origin: Origin) -> None:
        self.claim = Claim("", origin)
        self.taken = trio.Event()
        self.run = ""
        self.cause = "engine_gone"


class Codes:
    """What `Pairings` has beside its own codes in a fleet."""

    def __init__(
        self,
        fleet: Fleet,
        pairings: Pairings,
        most_wrong: Callable[[], int],
        started_elsewhere: Callable[[str], Any],
        name_of: Callable[[str], str],
    ) -> None:
        self._fleet, self._pairings, self._most_wrong = fleet, pairings, most_wrong
        self._started_elsewhere, self._name_of = started_elsewhere, name_of
        self._outs: dict[str, _Out] = {}
        self._visitors: dict[str, _Visitor] = {}
        fleet.handlers |= {
            "claim": self._take_claim,
            "leave": self._take_leave,
            "wrong_code": self._take_wrong_code,
            "claimed": self._take_claimed,
            "answer": self._take_answer,
        }
        fleet.on_tick.append(self._look_for_the_dead)

    # The host's side

    async def publish(self, pairing: str, code: str) -> None:
        """From now on every engine takes the code. Raises StoreUnavailable."""
        digest, remembered = _digest(code), int((REMEMBERED + CLAIM_WINDOW) * 1000)
        keys, args = [CODES, _recent(digest)], [digest, self._fleet.lease.run, pairing, remembered]
        await self._fleet.link.script(PUBLISH, keys, args, durable=True)

    def retire(self, code: str) -> None:
        """The code is used up; until the store has heard of it, the chart refuses it."""
        digest = _digest(code)
        self._fleet.later(lambda: self._fleet.link.call(lambda client: client.hdel(CODES, [digest])))

    async def _take_claim(self, pairing: str, body: bytes) -> None:
        asked = msgspec.msgpack.decode(body, type=Asked)
        visitor = _Visitor(pairing, asked, self._tell)
        try:
            await self._pairings.take(visitor, asked.shown)
        except Refusal as refused:
            self._send(asked.run, "answer", Told(asked.ticket, refused=refused.code, detail=refused.cause))
            return
        self._visitors[asked.ticket] = visitor
        self._fleet.lease.watch(asked.run)
        self._send(asked.run, "claimed", Told(asked.ticket, match=visitor.match))

    def _tell(self, visitor: _Visitor) -> None:
        if self._visitors.pop(visitor.ticket, None) is not None:
            self._fleet.lease.unwatch(visitor.run)
        result = visitor.result
        if isinstance(result, SignedIn):
            told = Told(visitor.ticket, session=self._name_of(result.token))
        else:
            assert result is not None
            detail = result.cause if isinstance(result, PairingCodeRefused) else result.detail
            told = Told(visitor.ticket, refused=result.code, detail=detail)
        self._send(visitor.run, "answer", told)

    async def _take_leave(self, pairing: str, body: bytes) -> None:
        visitor = self._visitors.get(msgspec.msgpack.decode(body, type=Told).ticket)
        if visitor is not None:
            await self._pairings.go(visitor)

    async def _take_wrong_code(self, pairing: str, body: bytes) -> None:
        await self._pairings.wrong_code(pairing, int(body))

    # The console's side

    async def claim(self, code: str, shown: Shown, origin: Origin) -> Claim:
        """Claim a code that another engine printed.

        Raises PairingCodeRefused, its cause `wrong_code` where it was a guess, which every code out has counted.
        """
        ticket, out = secrets.token_hex(8), _Out(origin)
        digest = _digest(code)
        # Loopback is this host's, and not that of the terminal.
        told = {name: value for name, value in shown.items() if name != "local"} | {"engine_host": socket.gethostname()}
        body = _encode(Asked(self._fleet.lease.run, ticket, told, origin))
        self._outs[ticket] = out
        try:
            answer = await self._fleet.link.script(
                CLAIM, [CODES, _recent(digest)], [digest, body, self._most_wrong()], durable=True
            )
            await self._wait_taken(ticket, out, *(part.decode() for part in answer))
        except BaseException:
            self._give_up(ticket)
            raise
        return out.claim

    async def _wait_taken(self, ticket: str, out: _Out, outcome: str, run: str = "") -> None:
        if outcome != "claimed":
            raise PairingCodeRefused(f"{outcome}_code")
        out.run = run
        if ticket in self._outs:  # else it has been answered already
            self._fleet.lease.watch(run)
        with trio.move_on_after(TAKING):
            await out.taken.wait()
        if not out.claim.match:
            raise PairingCodeRefused(out.cause)

    def _give_up(self, ticket: str) -> None:
        out = self._outs.pop(ticket, None)
        if out is not None and out.run:
            self._fleet.lease.unwatch(out.run)
            self._send(out.run, "leave", Told(ticket))

    async def _take_claimed(self, _: str, body: bytes) -> None:
        told = msgspec.msgpack.decode(body, type=Told)
        out = self._outs.get(told.ticket)
        if out is not None:
            out.claim.match = told.match
            out.taken.set()

    async def _take_answer(self, _: str, body: bytes) -> None:
        told = msgspec.msgpack.decode(body, type=Told)
        out = self._outs.pop(told.ticket, None)
        if out is None:
            return
        if out.run:
            self._fleet.lease.unwatch(out.run)
        out.cause = told.detail
        out.taken.set()
        try:
            result: SignedIn | Refusal = await self._result(told)
        except Refusal as refused:
            result = refused
        out.claim.answer(result)

    async def _result(self, told: Told) -> SignedIn | Refusal:
        if told.session:
            signed_in: SignedIn = await self._started_elsewhere(told.session)
            return signed_in
        if told.refused == PairingExpired.code:
            return PairingExpired()
        if told.refused == StoreUnavailable.code:
            return StoreUnavailable(told.detail, retry_after=2)
        return PairingCodeRefused(told.detail)

    def leave(self, claim: Claim) -> None:
        """The console of a claim went away; one that isn't of a code elsewhere is none of ours."""
        for ticket, out in self._outs.items():
            if out.claim is claim:
                self._send(out.run, "leave", Told(ticket))

    def stop(self) -> None:
        """The engine stops, and holds no console any longer."""
        for ticket, out in list(self._outs.items()):
            self._give_up(ticket)
            out.claim.answer(PairingCodeRefused("engine_stopped"))
            out.taken.set()

    # Both

    def _look_for_the_dead(self) -> None:
        dead = self._fleet.lease.dead
        for ticket, out in list(self._outs.items()):
            if out.run in dead:
                self._give_up(ticket)
                out.claim.answer(PairingCodeRefused("engine_gone"))
                out.taken.set()
        for visitor in self._visitors.values():
            if visitor.run in dead:
                self._fleet.later(partial(self._pairings.go, visitor))

    def _send(self, run: str, kind: str, told: Told) -> None:
        self._fleet.post(run, kind, "", _encode(told))


def _digest(code: str) -> str:
    """What the store knows a code by, so that its logs hold none."""
    return sha256(code.encode("utf-8", "surrogatepass")).hexdigest()


def _recent(digest: str) -> str:
    return f"{PREFIX}recent:{digest}"
