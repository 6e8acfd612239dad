"""Both ends of a pairing as the service sees them: the terminal, the console's claim, and the fleet's other engines."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import trio

from hatchway.engine.access.principal import IssuedSession
from hatchway.engine.base.errors import Refusal
from hatchway.engine.runtime.records import Origin


class Terminal(Protocol):
    """Where a code was printed: told what happens to it. Must not wait."""

    def __call__(self, event: str, **details: Any) -> None: ...


Shown = dict[str, str | bool | None]
"""What a terminal is told of a claim: `address`, `forwarded`, `agent`; `local` of one that came to its own engine, and
of another's `engine_host`, to which the address means what it does; `by_socket` and `dialled` are a Claimant's."""


class Issued(NamedTuple):
    """A code fresh from the press."""

    id: str
    code: str
    expires_in: float


class Claimant(NamedTuple):
    """Who claims a code, as the operator is shown it: the socket's peer, the address that a trusted proxy says is
    behind it, the user agent as sent, whether the request came from this host or by a tunnel that ends here, and by the
    Unix socket, and the address that was dialled."""

    address: str
    forwarded: str | None
    agent: bytes
    local: bool = False
    by_socket: bool = False
    dialled: str = ""


class Claim:
    """A console that waits for the operator. `wait_answer` returns the session, or raises the refusal."""

    def __init__(self, pairing_id: str, origin: Origin) -> None:
        self.id, self.origin = pairing_id, origin
        self.match = ""
        self._answered = trio.Event()
        self.result: IssuedSession | Refusal | None = None
        self.given_up = False
        """The console has gone, and nobody waits for the answer any more."""

    @property
    def answered(self) -> bool:
        """Whether the result is there."""
        return self._answered.is_set()

    def answer(self, result: IssuedSession | Refusal) -> None:
        """The session, or why there is none: whoever waits is woken."""
        self.result = result
        self._answered.set()

    async def wait_answered(self) -> None:
        """Until there is a result; raises nothing."""
        await self._answered.wait()

    async def wait_answer(self) -> IssuedSession:
        """Raises PairingCodeRefused (rejected, withdrawn), PairingExpired, StoreUnavailable."""
        await self._answered.wait()
        if isinstance(self.result, Refusal):
            raise self.result
        assert self.result is not None
        return self.result


class PairingCode:
    """A code with those it concerns: its terminal, the console that claimed it, and how many wrong tries it has seen.

    `consumed_at` is in elapsed seconds, None while the code is out.
    """

    __slots__ = ("claim", "code", "consumed_at", "terminal", "wrong")

    def __init__(self, code: str, terminal: Terminal) -> None:
        self.code, self.terminal = code, terminal
        self.claim: Claim | None = None
        self.consumed_at: float | None = None
        self.wrong = 0

    def answer(self, result: IssuedSession | Refusal) -> None:
        """Tell the console that claimed the code what became of it; nobody, where none did."""
        if self.claim is not None:
            self.claim.answer(result)


class FleetCodes(Protocol):
    """The other engines of a fleet: they claim codes that were printed here, and print codes that are claimed here."""

    async def publish(self, pairing: str, code: str) -> None:
        """From now on every engine takes the code. Raises StoreUnavailable."""

    def retire(self, code: str) -> None:
        """The code is used up."""

    async def claim(self, code: str, shown: Shown, origin: Origin) -> Claim:
        """Claim a code of another engine. Raises PairingCodeRefused, its cause `wrong_code` where it was a guess."""

    def leave(self, claim: Claim) -> None:
        """The console of such a claim went away."""

    def stop(self) -> None:
        """The engine stops: no console is held here any longer."""


MESSAGES = {
    "approved": "approved: the console is signed in",
    "rejected": "rejected: the console was refused",
    "expired": "pairing expired",
    "expired_on_approval": "pairing expired on approval",
    "withdrawn": "withdrawn: the code no longer works",
    "left": "the console went away before the answer: the code no longer works",
    "engine_stopped": "withdrawn: the engine was stopped",
    "too_many_wrong_codes": "withdrawn: too many wrong codes were tried; run the command again for a new one",
}
"""What the terminal prints when a pairing ends."""
