"""Which authorized key made a signature: asked by the engine, and by its worker processes (section 4.2)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import shake_256
from typing import NamedTuple

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

from hatchway.engine.access.challenges import ANY, ChallengeFacts
from hatchway.engine.access.limits import source_of
from hatchway.engine.base.errors import SignatureRefused, TooManyRequests
from hatchway.engine.keys.authorized_keys import AuthorizedKeys, KeyGrant
from hatchway.engine.keys.keys import ED25519_BITS, ED25519_SIGNATURE, PublicKey, verify
from hatchway.engine.keys.weak_keys import LARGEST, SMALLEST

AT_ONCE = 8
"""Keys that are tried without giving way: 0.2 ms at 2048 bits. More of them are for a `Search`."""

SEARCHES = 2
"""Searches that run at the same time in all; an address has one."""

WAITING = 64
"""Searches of one address that may wait for their turn; one more is refused."""

BITS_AT_ONCE = 8192
"""A search gives way after keys of so many bits together: four of 2048 bits in 0.1 ms, one of 8192 in 0.25."""


class Signed(NamedTuple):
    """What is sent for a challenge. `identity` says which key is to have signed `message`; `ANY` leaves it open."""

    identity: str
    algorithm: str
    message: bytes
    signature: bytes


def whose(challenge: ChallengeFacts, named: str | None) -> str:
    """The identity whose key is to be tried, or `ANY`. Raises SignatureRefused where the challenge is another key's."""
    if named is None or named == challenge.identity:
        return challenge.identity
    if challenge.identity != ANY:
        raise SignatureRefused("another_identity")
    return named


def is_quick(signed: Signed, keys: AuthorizedKeys) -> bool:
    """Whether so few keys can have made the signature that `signer_of` may try them; else it takes a `Search`."""
    return signed.identity != ANY or len(keys.of_length(len(signed.signature))) <= AT_ONCE


def signer_of(signed: Signed, keys: AuthorizedKeys) -> KeyGrant:
    """The authorized key that made the signature: the one that is named, or any. Raises SignatureRefused.

    A wrong signature costs one check of its own length, whether the named key is authorized or not, and whatever size
    that key has: time tells nobody which keys there are.
    """
    if signed.identity == ANY:
        return _any_of(keys.of_length(len(signed.signature)), signed, keys)
    entry = keys.candidate(signed.identity)
    fits = entry is not None and entry.key.signature_length == len(signed.signature)
    if entry is not None and fits and _made(entry.key, signed):
        return _still_granted(entry, keys)
    if entry is None or not fits or not entry.key.may_have_made(signed.signature):
        _cost_a_check(signed)
    raise SignatureRefused("unknown_key" if entry is None else "wrong_signature")


def _any_of(entries: Collection[KeyGrant], signed: Signed, keys: AuthorizedKeys) -> KeyGrant:
    for entry in entries:
        if _made(entry.key, signed):
            return _still_granted(entry, keys)
    if not entries:
        _cost_a_check(signed)
    raise SignatureRefused("wrong_signature" if entries else "unknown_key")


class Search:
    """Tries a signature for no key in particular against each that can have made it. One for each engine.

    However many keys there are, nobody else waits for them: an address has one search at a time, and each gives way to
    everything else after a few keys.
    """

    def __init__(self, keys: AuthorizedKeys) -> None:
        self._keys = keys
        self._searches = trio.Semaphore(SEARCHES)
        self._locks: dict[str, trio.Lock] = {}

    async def signer_of(self, signed: Signed, address: str) -> KeyGrant:
        """As `signer_of`, after those who came first. Raises SignatureRefused, TooManyRequests."""
        with self._waiting_for(source_of(address)) as lock:
            async with lock, self._searches:
                return await self._search(signed)

    @contextmanager
    def _waiting_for(self, source: str) -> Iterator[trio.Lock]:
        lock = self._locks.setdefault(source, trio.Lock())
        if lock.statistics().tasks_waiting >= WAITING:
            raise TooManyRequests(
                "too many sign-ins from this address wait for their key to be found: name it in `identity`",
                retry_after=1,
            )
        try:
            yield lock
        finally:
            if not lock.statistics().tasks_waiting and not lock.locked():
                self._locks.pop(source, None)

    async def _search(self, signed: Signed) -> KeyGrant:
        tried = 0
        for entry in list(self._keys.of_length(len(signed.signature))):
            tried += entry.key.bits
            if tried > BITS_AT_ONCE:
                await trio.lowlevel.checkpoint()
                tried = entry.key.bits
            if _made(entry.key, signed):
                return _still_granted(entry, self._keys)
        raise SignatureRefused("wrong_signature")


def _made(key: PublicKey, signed: Signed) -> bool:
    try:
        verify(key, signed.algorithm, signed.message, signed.signature)
    except SignatureRefused:
        return False
    return True


def _still_granted(entry: KeyGrant, keys: AuthorizedKeys) -> KeyGrant:
    """What the key is granted now. Raises SignatureRefused for a weak key, or one taken out while others were tried."""
    now = keys.find(entry.identity)
    if now is None:
        raise SignatureRefused("unknown_key")
    return now


def _cost_a_check(signed: Signed) -> None:
    """Check the signature by a key that nobody has, so that a refusal takes as long for unknown keys as for known."""
    length = len(signed.signature)
    if signed.algorithm == "EdDSA" and length == ED25519_SIGNATURE:
        with suppress(SignatureRefused):
            verify(_ed25519_stand_in(), "EdDSA", signed.message, signed.signature)
    if SMALLEST <= 8 * length <= LARGEST:  # else no key whatever can have made it
        with suppress(SignatureRefused):
            # A number larger than the modulus would be refused before any computing.
            verify(_stand_in(length), signed.algorithm, signed.message, b"\0" + signed.signature[1:])


@lru_cache(maxsize=1)
def _ed25519_stand_in() -> PublicKey:
    """A key whose private half was never kept."""
    return PublicKey("", Ed25519PrivateKey.generate().public_key(), ED25519_BITS)


@lru_cache(maxsize=(LARGEST - SMALLEST) // 8 + 1)
def _stand_in(length: int) -> PublicKey:
    """A public key of so many bytes whose private key nobody has, the same for a length at every call."""
    drawn = bytearray(shake_256(f"hatchway stand-in {length}".encode()).digest(length))
    drawn[0] |= 0x80
    drawn[-1] |= 1
    return PublicKey("", RSAPublicNumbers(65537, int.from_bytes(drawn)).public_key(), 8 * length)
