"""Pairing codes across engines: issued at one engine, claimed at another. No token passes between the two."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Any

import msgspec
import structlog
import trio

from hatchway.engine.access.principal import IssuedSession
from hatchway.engine.base.errors import HostUnavailable, PairingCodeRefused, PairingExpired, Refusal
from hatchway.engine.fleet.fleet import Fleet
from hatchway.engine.fleet.messages import SEND_WITHIN, Message
from hatchway.engine.fleet.remote_calls import Caller, NoReply, Overdue, RemoteCall, RemoteCalls, insist
from hatchway.engine.pairings.claims import Claim, Shown
from hatchway.engine.pairings.pairings import REMEMBERED, Pairings
from hatchway.engine.runtime.records import Origin
from hatchway.engine.store.redis import PREFIX
from hatchway.engine.store.scripts import CLAIM, PUBLISH, UNCLAIM
from hatchway.statecharts.pairing import CLAIM_WINDOW, DECISION_WINDOW

log = structlog.get_logger(__name__)

CODES = PREFIX + "codes"

ACCEPT_WITHIN = 2.0
"""Seconds in which the engine that issued a code must accept a claim of it."""


ANSWERED_WITHIN = DECISION_WINDOW + SEND_WITHIN
"""Seconds after which no answer of the operator's is on its way any more: a failover of the store may lose a reply."""


class ClaimRequest(msgspec.Struct, array_like=True):
    """A claim on its way to the engine that issued the code: what the operator is shown, and who claims."""

    shown: Shown
    origin: Origin


class RemoteCodes:
    """The `FleetCodes` of one engine: consoles of this engine claim codes of the others by remote calls."""

    def __init__(
        self,
        fleet: Fleet,
        calls: RemoteCalls,
        most_wrong: Callable[[], int],
        started_elsewhere: Callable[[str], Any],
    ) -> None:
        self._fleet, self._calls = fleet, calls
        self._most_wrong, self._started_elsewhere = most_wrong, started_elsewhere
        self._claims: dict[Claim, RemoteCall] = {}

    async def publish(self, pairing: str, code: str) -> None:
        """Have every engine accept the code from now on. Raises StoreUnavailable."""
        digest, remembered = _digest(code), int((REMEMBERED + CLAIM_WINDOW) * 1000)
        keys, args = [CODES, _recent(digest)], [digest, self._fleet.lease.run_id, pairing, remembered]
        await self._fleet.link.script(PUBLISH, keys, args, durable=True)

    def retire(self, code: str) -> None:
        """The code is used up. The store is told later; until then the chart of the engine that issued it refuses
        it."""
        digest = _digest(code)
        self._fleet.messages.write_later(lambda: self._fleet.link.call(lambda client: client.hdel(CODES, [digest])))

    async def claim(self, code: str, shown: Shown, origin: Origin) -> Claim:
        """Claim a code that another engine printed.

        Raises PairingCodeRefused. Where its cause is `wrong_code` it was a guess, and was counted against every code.
        """
        claim = Claim("", origin)
        await self._fleet.tasks.start(self._hold, claim, code, shown)
        return claim

    async def _hold(self, claim: Claim, code: str, shown: Shown, *, task_status: trio.TaskStatus[None]) -> None:
        """Claim the code and wait for the operator's answer. `claim` returns before that, once the code is accepted."""
        # `local` is left out: it would say that the console is on the host of the terminal, and it is on this one.
        told = {name: value for name, value in shown.items() if name != "local"} | {"engine_host": socket.gethostname()}
        body = msgspec.msgpack.encode(ClaimRequest(told, claim.origin))
        async with self._calls.open(partial(self._deliver, _digest(code), body)) as call:
            try:
                claim.match = (await call.progress(ACCEPT_WITHIN)).decode()
            except (NoReply, HostUnavailable):
                raise PairingCodeRefused("engine_gone") from None
            self._claims[claim] = call
            task_status.started()
            try:
                claim.answer(await self._result(call))
            finally:
                del self._claims[claim]

    async def _deliver(self, digest: str, body: bytes, ticket: str) -> str:
        """Have the store consume the code and send the call to the engine that issued it. Returns that engine's run.

        Where the store's answer was lost, or the console left before it came, the claim is cancelled through the store:
        that alone knows which run has the call, if any.
        """
        link, claim = self._fleet.link, f"{PREFIX}claim:{ticket}"
        keys = [CODES, _recent(digest), claim]
        args = [digest, self._most_wrong(), ticket, self._fleet.lease.run_id, body]
        try:
            outcome, *run = await link.script(CLAIM, keys, args, durable=True)
        except BaseException:
            self._fleet.messages.write_later(partial(link.script, UNCLAIM, [claim], [ticket], durable=True))
            raise
        if not run:
            raise PairingCodeRefused(f"{outcome.decode()}_code")
        return str(run[0].decode())

    async def _result(self, call: RemoteCall) -> IssuedSession | Refusal:
        try:
            name = (await call.reply(ANSWERED_WITHIN)).decode()
            signed_in: IssuedSession = await insist(lambda: self._started_elsewhere(name))
        except Overdue:
            return PairingExpired()
        except NoReply:
            return PairingCodeRefused("engine_gone")
        except HostUnavailable as refused:
            return PairingCodeRefused(refused.detail)
        except Refusal as refused:
            return refused
        except Exception:
            log.exception("claim_not_answered")
            return PairingCodeRefused("fault")
        return signed_in

    def leave(self, claim: Claim) -> None:
        """The console of a claim went away. Nothing happens where the claim is of a code of this engine."""
        if claim in self._claims:
            self._claims[claim].cancel()

    def stop(self) -> None:
        """The engine stops: give up all claims of other engines' codes."""
        for call in self._claims.values():
            call.end(PairingCodeRefused("engine_stopped"))


class ClaimServer:
    """Serves claims of this engine's codes to the other engines."""

    def __init__(self, fleet: Fleet, calls: RemoteCalls, pairings: Pairings, name_of: Callable[[str], str]) -> None:
        self._pairings, self._name_of = pairings, name_of
        calls.serve("claim", self._claim)
        fleet.messages.subscribe("wrong_code", self._take_wrong_code)

    async def _claim(self, body: bytes, caller: Caller) -> bytes:
        """The method `claim`: reports the match number, then returns the name of the session that the approval
        started."""
        # The caller does not know the pairing, so the script CLAIM has put its name before the request.
        pairing, _, encoded = body.partition(b"|")
        request = msgspec.msgpack.decode(encoded, type=ClaimRequest)
        claim = Claim(pairing.decode(), request.origin, str(request.shown.get("agent") or ""))
        await self._pairings.claim_here(claim, request.shown)
        caller.report(claim.match.encode())
        with caller.presence:
            await claim.wait_answered()
        if not claim.answered:
            await self._pairings.void(claim)
        return self._name_of((await claim.wait_answer()).token).encode()

    async def _take_wrong_code(self, message: Message) -> None:
        await self._pairings.wrong_code(message["pairing"].decode(), int(message["count"]))


def _digest(code: str) -> str:
    """The digest that stands for a code in the store, so that no code is in the store's logs."""
    return sha256(code.encode("utf-8", "surrogatepass")).hexdigest()


def _recent(digest: str) -> str:
    return f"{PREFIX}recent:{digest}"
