"""Sign-in by key: challenges, the checks of what signed them, and the limit on failures (sections 4.1, 4.2)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from hatchway.engine.access.challenges import ANY, ChallengeFacts, Challenges, decode_signature
from hatchway.engine.access.devices import Device
from hatchway.engine.access.limits import FleetView, WrongAnswers, limit_of
from hatchway.engine.access.principal import IssuedSession
from hatchway.engine.access.signers import Search, Signed, is_quick, signer_of, whose
from hatchway.engine.base.clock import Clock
from hatchway.engine.base.errors import FOREIGN, SignatureRefused, TooManyRequests
from hatchway.engine.keys.authorized_keys import AuthorizedKeys, KeyGrant
from hatchway.engine.keys.keys import PublicKey
from hatchway.engine.runtime.records import UNPROVEN, Origin, Records, Saw
from hatchway.engine.sessions.sessions import NO_DEVICE, Sessions
from hatchway.engine.settings.settings import Settings
from hatchway.engine.store.protocol import AlreadyUsed, Once


class Proof(NamedTuple):
    """A signed challenge, its fields found sound. `signature` is in base64 or base64url, `lifetime` in seconds.

    `identity` names the key that signed; None leaves it open, as far as the challenge does.
    """

    nonce: str
    signature: str
    algorithm: str
    lifetime: int
    identity: str | None = None
    device: Device = NO_DEVICE


class KeySignIn:
    """Issues challenges and starts a session for a key that signed one. One for each engine.

    `fleet` is the engine's view of its fleet, None for an engine of none.
    """

    def __init__(
        self,
        sessions: Sessions,
        records: Records,
        clock: Clock,
        keys: AuthorizedKeys,
        challenges: Challenges,
        settings: Callable[[], Settings],
        own_key: Callable[[], PublicKey],
        note_use: Callable[[str], None],
        fleet: FleetView | None = None,
    ) -> None:
        self._sessions, self._records, self._keys, self._challenges = sessions, records, keys, challenges
        self._own_key, self._fleet, self._clock = own_key, fleet, clock
        self._note_use = note_use
        self._failures = limit_of(fleet, clock, lambda: settings().limits.failed_verifies, "failed sign-ins")
        self._wrong_answers, self._search = WrongAnswers(), Search(keys)

    def challenge(self, host: str, identity: str | None) -> tuple[str, str]:
        """The identity a challenge is for, and its nonce. `host` is the name that was dialled, in lower case.

        An unknown identity gets a challenge too: nobody can list keys from outside.
        """
        return identity or self._own_key().identity, self._challenges.issue(host, identity or ANY)

    @property
    def challenge_key(self) -> bytes:
        """The key by which a worker process makes challenges, and recognises those of the engine. It is a secret."""
        return self._challenges.mac_key

    async def verify(self, proof: Proof, origin: Origin) -> IssuedSession:
        """Start a session for the key that made this proof. Raises SignatureRefused, TooManyRequests, StoreUnavailable.

        An address past its limit is refused before anything is checked, unless it answers a challenge as never before:
        a correct signature comes with a fresh challenge, and is never refused for what others behind its address do.
        """
        await self._settle_keys()
        challenge, key, answer = None, None, (proof.signature, proof.algorithm, proof.identity)
        try:
            challenge = self._challenges.read(proof.nonce)
            self._limit_wrong_answers(challenge, answer, origin)
            made = decode_signature(proof.signature)
            identity = whose(challenge, proof.identity)
            await self._ask_elsewhere(identity, origin)
            signed = Signed(identity, proof.algorithm, proof.nonce.encode("ascii"), made)
            key = await self._signer(signed, origin)
            return await self._start(challenge, key, proof.lifetime, origin, proof.device)
        except SignatureRefused as refused:
            if challenge is not None:
                self._wrong_answers.add(origin.address or "", challenge.digest, answer)
            await self._count_failure(refused.cause, origin, key)
            raise

    async def _ask_elsewhere(self, identity: str, origin: Origin) -> None:
        """Look up a key that no line is of, for an address within its limit: each look-up starts a program. Raises
        TooManyRequests."""
        if not self._keys.must_be_asked(identity):
            return
        with self._limits_counted_as_surplus(origin):
            self._failures.check(origin.address or "")
            await self._keys.ask_elsewhere(identity)

    async def _signer(self, signed: Signed, origin: Origin) -> KeyGrant:
        if is_quick(signed, self._keys):
            return signer_of(signed, self._keys)
        with self._limits_counted_as_surplus(origin):
            return await self._search.signer_of(signed, origin.address or "")

    def _limit_wrong_answers(self, challenge: ChallengeFacts, answer: Hashable, origin: Origin) -> None:
        """Raises TooManyRequests for an answer that need not be checked, from an address past its limit."""
        address = origin.address or ""
        if self._wrong_answers.has(address, challenge.digest, answer):
            with self._limits_counted_as_surplus(origin):
                self._failures.check(address)

    async def _count_failure(self, cause: str, origin: Origin, key: KeyGrant | None) -> None:
        """A record of its own while the address is within its limit; it names the `key` whose signature held. Raises
        TooManyRequests past it."""
        address = origin.address or ""
        with self._limits_counted_as_surplus(origin):
            self._failures.check(address)
            await self._failures.take(address)
        saw, comment = UNPROVEN, None
        if key is not None:
            saw, comment, origin = Saw(proof="signature"), key.comment, Origin(key.identity, *origin[1:])
        self._records.refusal("session", "-", "start", cause, origin, saw=saw, comment=comment)

    @contextmanager
    def _limits_counted_as_surplus(self, origin: Origin) -> Iterator[None]:
        """Count a refusal for a limit as surplus and raise it on. A record of its own would let strangers cause as many
        records as they like."""
        try:
            yield
        except TooManyRequests:
            self._records.surplus("session", "start", origin)
            raise

    async def _settle_keys(self) -> None:
        """Wait until this engine knows which keys are authorized now, also where its fleet or an editor has just taken
        some out. Raises StoreUnavailable, FileRefused."""
        if self._fleet is not None:
            await self._fleet.wait_fresh()
        await self._keys.settle()

    async def start_verified(
        self, challenge: ChallengeFacts, identity: str, lifetime: int, origin: Origin, device: Device = NO_DEVICE
    ) -> IssuedSession:
        """Start a session as `verify` does, for the key whose signature a worker process has checked.

        Raises SignatureRefused and StoreUnavailable, and neither records nor counts a refusal: the worker sends the
        whole request after it.
        """
        await self._settle_keys()
        entry = self._keys.find(identity)
        if entry is None:
            raise SignatureRefused("unknown_key")
        return await self._start(challenge, entry, lifetime, origin, device)

    async def _start(
        self, challenge: ChallengeFacts, entry: KeyGrant, lifetime: int, origin: Origin, device: Device
    ) -> IssuedSession:
        self._check_options(entry, origin)
        once = Once(challenge.digest, challenge.seconds_left, challenge.until)
        identity = entry.key.identity
        try:
            signed_in = await self._sessions.start(
                "key",
                identity,
                entry.permissions,
                lifetime,
                proof="signature",
                origin=origin,
                once=once,
                device=device,
            )
        except AlreadyUsed:
            raise SignatureRefused("used_nonce") from None
        self._note_use(identity)
        return signed_in

    def _check_options(self, entry: KeyGrant, origin: Origin) -> None:
        """Check the options of the key that has signed. Raises SignatureRefused, which says why: the client has proved
        that the key is his."""
        options, now = entry.options, self._clock.wall()
        if options is None:
            return
        if options.ends_at is not None and options.ends_at <= now:
            raise SignatureRefused("key_expired", "the key has expired: have it registered anew, on the engine's host")
        if not options.admits(origin.address or ""):
            raise SignatureRefused(FOREIGN, "the key may not be used from this address")
