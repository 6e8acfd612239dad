"""Which authorized key made a signature: asked by the engine, and by its door processes (section 4.2)."""

from __future__ import annotations

from engine.errors import SignatureRefused
from engine.trust.authorized_keys import AuthorizedKeys, Entry
from engine.trust.challenges import ANY, Challenge
from engine.trust.keys import PublicKey, verify


def signer_of(
    challenge: Challenge, algorithm: str, message: bytes, signature: bytes, keys: AuthorizedKeys, own: PublicKey
) -> Entry:
    """The authorized key that made the signature: the challenge's own, or any where it names none.

    `own` is the engine's key: an unknown identity costs what a known one does. Raises SignatureRefused.
    """
    if challenge.identity == ANY:
        entries = [entry for entry in keys.entries() if entry.key.signature_length == len(signature)]
    else:
        found = keys.find(challenge.identity)
        entries = [found] if found else []
    for entry in entries:
        try:
            verify(entry.key, algorithm, message, signature)
        except SignatureRefused:
            continue
        return entry
    if not entries:
        verify(own, algorithm, message, signature)
        raise SignatureRefused("unknown_key")
    raise SignatureRefused("wrong_signature")
