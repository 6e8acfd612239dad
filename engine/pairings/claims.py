"""Both ends of a pairing as the service sees them: the terminal with its code, and the console that claims it."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import trio

from hatchway.engine.access.principal import IssuedSession
from hatchway.engine.base.errors import Refusal
from hatchway.engine.runtime.records import Origin

AGENT_LENGTH = 200
"""Characters of a user agent shown at most, after escaping."""


class Terminal(Protocol):
    """Callback at the terminal where a code was printed, for each thing that happens to the code. It must not wait.

    `event` is `claimed`, `wrong_codes`, `failed` or a final state; `details` are that event's, for people.
    """

    def __call__(self, event: str, **details: Any) -> None: ...


Shown = dict[str, str | bool | None]
"""What the terminal shows of a claim: a `Claimant`'s fields, escaped. `local` is there where the claim came to the
engine that printed the code; else `engine_host` names the host of the engine that it came to, which is where `address`
is from. """


class Issued(NamedTuple):
    """A code that was just issued: its pairing's name, the code, and the seconds in which it may be claimed."""

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

    def __init__(self, pairing_id: str, origin: Origin, agent: str = "") -> None:
        """`agent` is the console's User-Agent, as the terminal shows it."""
        self.id, self.origin, self.agent = pairing_id, origin, agent
        self.match = ""
        self._answered = trio.Event()
        self.result: IssuedSession | Refusal | None = None
        self.given_up = False
        """The console has gone, and nobody waits for the answer any more."""

    @property
    def answered(self) -> bool:
        """Whether there is a result."""
        return self._answered.is_set()

    def answer(self, result: IssuedSession | Refusal) -> None:
        """Set the result, the session or why there is none, and wake the tasks that wait for it."""
        self.result = result
        self._answered.set()

    async def wait_answered(self) -> None:
        """Wait until there is a result, and raise nothing, whatever it is."""
        await self._answered.wait()

    async def wait_answer(self) -> IssuedSession:
        """Wait for the session. Raises PairingCodeRefused (rejected, withdrawn), PairingExpired, StoreUnavailable."""
        await self._answered.wait()
        if isinstance(self.result, Refusal):
            raise self.result
        assert self.result is not None
        return self.result


class PairingCode:
    """A code, its terminal, the console that claimed it, and how many wrong codes were tried while it was out.

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
    """The pairing codes of the other engines of a fleet, which also claim those that were issued here."""

    async def publish(self, pairing: str, code: str) -> None:
        """Have every engine accept the code from now on. Raises StoreUnavailable."""

    def retire(self, code: str) -> None:
        """The code is used up: no engine accepts it any more."""

    async def claim(self, code: str, shown: Shown, origin: Origin) -> Claim:
        """Claim a code of another engine. Raises PairingCodeRefused, its cause `wrong_code` where it was a guess."""

    def leave(self, claim: Claim) -> None:
        """The console of a claim that `claim` returned went away."""

    def stop(self) -> None:
        """The engine stops: give up the claims that wait here for codes of other engines."""


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
"""What the terminal prints when a pairing ends, by the final state, or by the cause where that says more."""


def escaped_agent(agent: bytes) -> str:
    """Bytes from a stranger as text for a terminal: 0x20-0x7E only, `\\`, `"` and all others as \\xNN, cut at 200."""
    shown: list[str] = []
    length = 0
    for byte in agent[:AGENT_LENGTH]:
        piece = chr(byte) if 0x20 <= byte <= 0x7E and byte not in b'\\"' else f"\\x{byte:02x}"
        length += len(piece)
        if length > AGENT_LENGTH:
            break
        shown.append(piece)
    return "".join(shown)
