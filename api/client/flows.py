"""The client's calls as generators of steps, without input and output: a client drives them (section 5)."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from hatchway.api.client import wire
from hatchway.api.client.agent import AgentFault, AgentRefusal
from hatchway.engine.base.errors import Refusal

if TYPE_CHECKING:
    from hatchway.api.client.signers import Signer

PAUSES = (0.1, 0.4)
"""Seconds before the second and third try, where trying again is safe."""

SURE_SKEW = 2.0
"""Seconds of difference between two clocks from which on `Date` tells it: it has whole seconds, and an answer takes a
while."""

LONGEST_PAUSE = 5
"""Seconds of `Retry-After` that are waited; a longer one is an error, which the caller may wait out."""

READ_WAIT, START_WAIT, STREAM_WAIT = 30.0, 1800.0, 45.0
"""Seconds without a byte: of most answers, of a start that may fetch an image, of a pairing, which sends one each 5 s
unless a proxy holds them back to its end, half a minute later."""

LEFT_WITHIN = 5.0
"""Seconds that the logout at a client's end may take."""

INSTANCES = "/api/platform/singularity/instance/"
T = TypeVar("T")


class StoredToken(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token, and what is needed to renew or replace it. `received` is in epoch seconds by this host's clock, and
    `lifetime` counts from there.

    `url` is the only address that the token is sent to. `key` is the path of the key that can replace it.
    """

    url: str
    token: str
    expires_at: int
    received: float
    lifetime: int
    session: str | None = None
    key: str | None = None


class Ask(NamedTuple):
    """One request. A `safe` one may be sent twice. `wait` are the seconds that may pass without a byte, None for any.

    With `stream` the response of a 200 stays open: the caller reads and closes it.
    """

    method: str
    path: str
    query: Mapping[str, str] = {}
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = {}
    safe: bool = True
    wait: float | None = READ_WAIT
    stream: bool = False


class Pause(NamedTuple):
    """A pause before the flow goes on."""

    seconds: float


class Work(NamedTuple):
    """A function that may take long, as reading a key or signing with it: a person may have to type a passphrase, or to
    touch a token. The flow gets what it returns, or the ClientFault or Refusal that it raises; what else it raises
    ends the flow."""

    do: Callable[[], Any]


class Reply(NamedTuple):
    """A whole answer, or the open `response` of a stream; header names in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    response: Any = None


Flow: TypeAlias = "Generator[Ask | Pause | Work, Any, T]"
"""A call in steps. It is sent the outcome of each: a Reply or Unreachable for an `Ask`, what `Work` returned, else
None."""


class Flows:
    """The calls of one client to one engine, and the token that they carry."""

    def __init__(
        self,
        url: str,
        signers: Callable[[], Iterable[Signer]] | None,
        stored: StoredToken | None,
        lifetime: str | None,
        on_token: Callable[[StoredToken | None], None],
        wall: Callable[[], float] = time.time,
        label: str | None = None,
    ) -> None:
        self._label = label
        self.url, self.dialled = url, wire.dialled(url)
        self.wall = wall
        self._answered: tuple[Mapping[str, str], float] = ({}, 0.0)
        """The headers of the engine's last answer, and our clock when it came."""
        self._read_signers, self._lifetime, self._on_token = signers, lifetime, on_token
        self.signer: Signer | None = None
        """The signer of the last sign-in, which the next one is by too: a key is read once."""
        self.stored = stored if stored is not None and stored.url == url else None
        self._alone: str | None = None
        """The session that a call has begun by itself, so that nobody else was given its token."""

    def dial_as(self, dialled: str) -> None:
        """The engine is reached another way than by its address, and answers to this host and port there."""
        self.dialled = dialled

    def engine_time(self) -> float:
        """Epoch seconds by the engine's clock, as the last answer had it: what the times that it tells are told by."""
        skew = wire.clock_skew(*self._answered)
        return self.wall() - (skew if skew is not None and abs(skew) > SURE_SKEW else 0.0)

    def exchange(self, ask: Ask) -> Flow[Reply]:
        """One request's successful answer, tried again where that is safe. Raises ClientFault."""
        for pause in (*PAUSES, None):
            answer: Reply | wire.Unreachable | None = yield ask
            wait = self._may_repeat(ask, answer, pause)
            if wait is None:
                break
            yield Pause(wait)
        if isinstance(answer, wire.Unreachable):
            raise answer
        assert answer is not None
        if not 200 <= answer.status < 300:
            raise wire.problem(answer.status, answer.headers, answer.body, self.wall())
        self._answered = answer.headers, self.wall()
        return answer

    def _may_repeat(self, ask: Ask, answer: Reply | wire.Unreachable | None, pause: float | None) -> float | None:
        """Seconds to wait before another try; None where there is to be none.

        A request that never reached the engine may always be sent again. A 503 with `Retry-After` has changed nothing.
        """
        if pause is None:
            return None
        if isinstance(answer, wire.Unreachable):
            may_be_again = (ask.safe or not answer.sent) and not isinstance(answer, wire.CertificateRefused)
            return pause if may_be_again else None
        if answer is not None and answer.status == 503 and ask.safe:
            told = wire.retry_after(answer.headers)
            return None if told is None or told > LONGEST_PAUSE else max(pause, told)
        return None

    # Signing in

    @property
    def can_sign_in(self) -> bool:
        """Whether there is a key to sign in with."""
        return self._read_signers is not None

    def sign_in(self, lifetime: str | None = None) -> Flow[wire.SignedIn]:
        """Challenge, signature, verify (section 5), with the first key that the engine authorizes where there are
        several. Raises ChallengeRefused where the challenge is not this engine's own, and signs nothing."""
        signers = yield from self._load_signers()
        faults: list[wire.Refused | AgentRefusal] = []
        kinds: set[str] = set()
        while (signer := (yield Work(lambda: next(signers, None)))) is not None:
            kinds.add(signer.algorithm)
            try:
                return (yield from self._sign_in_with(signer, lifetime))
            except AgentRefusal as refusal:
                faults.append(refusal)
            except wire.Refused as refused:
                # An engine that accepts no key of this kind says so, by 422.
                if refused.code not in ("invalid_signature", "invalid_request"):
                    raise
                faults.append(refused)
        raise _none_of(faults, kinds)

    def _load_signers(self) -> Flow[Iterator[Signer]]:
        """The signers, which are read when they are needed."""
        if self._read_signers is None:
            raise wire.KeyMissing
        return iter((self.signer,) if self.signer else (yield Work(self._read_signers)))

    def _sign_in_with(self, signer: Signer, lifetime: str | None) -> Flow[wire.SignedIn]:
        reply = yield from self.exchange(Ask("GET", "/api/auth/challenge/", {"identity": signer.identity}))
        nonce = wire.as_type(wire.read_json(reply.body), wire.Challenge).nonce
        wire.check_nonce(nonce, self.dialled, signer.identity)
        signature = yield Work(lambda: signer.sign(nonce.encode("ascii")))
        body = {
            "nonce": nonce,
            "signature": b64encode(signature).decode(),
            "algorithm": signer.algorithm,
            "identity": signer.identity,
        }
        if lifetime or self._lifetime:
            body["lifetime"] = lifetime or self._lifetime or ""
        if self._label is not None:  # engines before this release know no label
            body["label"] = self._label
        # A nonce works once, so a verify that was sent without a response is not sent again.
        reply = yield from self.exchange(Ask("POST", "/api/auth/verify/", body=body, safe=False))
        self.signer = signer
        return self._keep(wire.as_type(wire.read_json(reply.body), wire.SignedIn))

    def _keep(self, signed_in: wire.SignedIn) -> wire.SignedIn:
        session, lifetime = wire.token_facts(signed_in.token)
        lifetime = lifetime or max(0, int(signed_in.expires_at - self.engine_time()))
        self._store(StoredToken(self.url, signed_in.token, signed_in.expires_at, self.wall(), lifetime, session))
        return signed_in

    def _store(self, stored: StoredToken | None) -> None:
        self.stored, self._alone = stored, None
        self._on_token(stored)

    # Calls with a token

    def call(self, ask: Ask) -> Flow[Reply]:
        """The response to a call with the token. It is renewed past half its lifetime, and replaced once if refused."""
        yield from self.make_ready()
        try:
            return (yield from self.exchange(self._signed(ask)))
        except wire.Refused as refused:
            if not (yield from self.heal(refused)):
                raise
        return (yield from self.exchange(self._signed(ask)))

    def make_ready(self) -> Flow[None]:
        """See to it that there is a token: sign in where there is none or it has expired; renew it past half its
        lifetime."""
        age = self.wall() - self.stored.received if self.stored else 0.0
        if self.stored is None:
            yield from self._sign_in_alone()
        elif age >= self.stored.lifetime and self.can_sign_in:
            yield from self.heal(wire.Refused(401, "invalid_token", "sign in again: the session token has expired"))
        elif self.stored.lifetime / 2 < age < self.stored.lifetime:
            alone = self._alone
            try:
                yield from self.renew()
            except wire.ClientFault:
                # The old token is good until its own end, and the call itself will say what is wrong.
                return
            self._alone = alone

    def _sign_in_alone(self) -> Flow[None]:
        yield from self.sign_in()
        self._alone = self.stored.session if self.stored else None

    def leave(self) -> Flow[None]:
        """At the client's end: end a session that a call has begun by itself. One that is not ended ends in its time,
        but counts till then among those that the key may have."""
        if self.stored is not None and self._alone is not None:
            yield self._signed(Ask("POST", "/api/auth/logout/", body={}, wait=LEFT_WITHIN))

    def heal(self, refused: wire.Refused) -> Flow[bool]:
        """Sign in again after a 401. Returns False where a new token would not help. Raises Refused where the key that
        the session came by is no longer there to sign."""
        if refused.code != "invalid_token" or not self.can_sign_in:
            return False
        try:
            yield from self._sign_in_alone()
        except (AgentFault, Refusal) as fault:
            words = f"{refused.detail}; that failed: {fault.detail}"
            raise wire.Refused(refused.status, refused.code, words, skew=refused.skew) from fault
        return True

    def _signed(self, ask: Ask) -> Ask:
        return ask._replace(headers={**ask.headers, **self.authorization()})

    def authorization(self) -> dict[str, str]:
        """The header that carries the token. It is only sent to the address that the token came from."""
        return {"Authorization": f"Bearer {self.stored.token}"} if self.stored else {}

    def renew(self) -> Flow[wire.SignedIn]:
        """The same session with a new token, its lifetime counted from now."""
        reply = yield from self.exchange(self._signed(Ask("POST", "/api/auth/renew/", body={})))
        return self._keep(wire.as_type(wire.read_json(reply.body), wire.SignedIn))

    def inspect(self) -> Flow[wire.Inspection]:
        """Whether the session is valid, whose it is and what it may do (section 4.3)."""
        reply = yield from self.call(Ask("GET", "/api/auth/inspect/"))
        return wire.as_type(wire.read_json(reply.body), wire.Inspection)

    def logout(self) -> Flow[None]:
        """End the session, and forget its token whatever the response. That it had ended already is no error."""
        ask = self._signed(Ask("POST", "/api/auth/logout/", body={}))
        try:
            if self.stored:
                yield from self.exchange(ask)
        except wire.Refused as refused:
            if refused.code != "invalid_token":
                raise
        self._store(None)

    def json(self, ask: Ask) -> Flow[Any]:
        """The JSON value of the response to a call with the token; None for an empty one."""
        reply = yield from self.call(ask)
        return wire.read_json(reply.body) if reply.body else None

    def rows(self, path: str, name: str) -> Flow[list[dict[str, Any]]]:
        """The whole list that an engine has under `name`, fetched page by page."""
        found: list[dict[str, Any]] = []
        after = ""
        while True:
            told = wire.as_type(
                (yield from self.json(Ask("GET", path, {"after": after} if after else {}))), dict[str, Any]
            )
            found += wire.as_type(told.get(name), list[dict[str, Any]])
            following = wire.as_type(told.get("next", ""), str)
            if not following:
                return found
            if following <= after:
                raise wire.NotAnEngine("the pages of a list lead back: is this the address of an engine?")
            after = following

    def sessions(self) -> Flow[list[dict[str, Any]]]:
        """The live sessions of this identity, the oldest first; all of them with MASTER."""
        return self.rows("/api/auth/sessions/", "sessions")

    def instances(self) -> Flow[list[dict[str, Any]]]:
        """The instances of the engine, and of the others of its fleet, in the order of their requests."""
        found = yield from self.rows(INSTANCES, "instances")
        return sorted(found, key=lambda row: row.get("requested_at", 0))

    def pair(self, code: str) -> Flow[Reply]:
        """The open stream of a claimed code (section 4.4). A claim is never sent twice once it may have arrived."""
        ask = Ask("POST", "/api/auth/pair/request/", body={"code": code}, headers={"Accept": "application/x-ndjson"})
        return self.exchange(ask._replace(safe=False, wait=STREAM_WAIT, stream=True))

    def pair_line(self, line: bytes, reply: Reply) -> wire.Accepted | wire.SignedIn:
        """One line of that stream: the operator is asked, or has approved. Raises Refused where there is no session."""
        value = wire.read_json(line)
        if isinstance(value, dict) and "accepted" in value:
            return wire.as_type(value, wire.Accepted)
        if isinstance(value, dict) and "detail" in value:
            # The `Date` of the stream is that of its beginning: no clock is told from it by now.
            raise wire.refused(value, reply.status, {}, self.wall())
        return self._keep(wire.as_type(value, wire.SignedIn))

    def start_instance(self, fields: Mapping[str, Any]) -> Flow[wire.Started]:
        """Section 4.5. Never sent twice once it may have arrived."""
        ask = Ask("POST", INSTANCES, body=fields, safe=False, wait=START_WAIT)
        return wire.started((yield from self.json(ask)))


def _none_of(faults: Sequence[wire.Refused | AgentRefusal], kinds: Collection[str]) -> wire.ClientFault:
    """What is told where no key signed in: why each did not, and of which algorithms they were."""
    if not faults:
        return wire.KeyMissing()
    last = faults[-1]
    for fault in faults:
        if isinstance(fault, AgentRefusal):
            return fault  # the key that the engine authorizes may be this one
    assert isinstance(last, wire.Refused)
    words = last.detail
    if set(kinds) == {"EdDSA"} and last.code == "invalid_request":
        words = f"there is no RSA key to sign in with, and the engine accepts no Ed25519 key: {last.detail}"
    elif len(faults) > 1:
        words = (
            f"the engine authorizes none of the {len(faults)} keys that were tried: name another, or register one there"
        )
    return last if words == last.detail else wire.Refused(last.status, last.code, words, skew=last.skew)
