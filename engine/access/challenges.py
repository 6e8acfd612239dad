"""The stateless challenge: a printable nonce that the engine recognises without having kept it (sections 2.1, 4.1)."""

from __future__ import annotations

import hmac
import secrets
from binascii import a2b_base64, b2a_base64
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import NamedTuple, Protocol

from hatchway.engine.base.base64url import FROM_URL, decode_any, encode, encoded
from hatchway.engine.base.clock import Clock
from hatchway.engine.base.errors import SignatureRefused

PREFIX = "hatchway-auth-v1"
"""Fixed first part: a signature made for us means nothing elsewhere (as the namespace of OpenSSH's PROTOCOL.sshsig)."""

LIFETIME = 60
"""Seconds a nonce may be answered; told as `1m0s`."""

SLACK = 2.0
"""Seconds by which engines that share a store may read its clock differently."""

ANY = "any"
"""Stands for the identity in a nonce that any registered key may answer."""


class ChallengeFacts(NamedTuple):
    """A nonce taken apart: who may answer, its digest for the store's used set, and the seconds it has left.

    `until` is when a shared source's own clock says that it is too old.
    """

    identity: str
    digest: bytes
    seconds_left: float
    until: float | None = None


def decode_signature(text: str) -> bytes:
    """The bytes of a signature in strict base64 or base64url, padded or not. Raises SignatureRefused otherwise."""
    try:
        said = text.encode("ascii")
        bare = said.rstrip(b"=")
        if b"-" in bare or b"_" in bare:
            bare = bare.translate(FROM_URL)
        data = a2b_base64(bare + b"=" * (-len(bare) % 4), strict_mode=True)
    except ValueError:
        raise SignatureRefused("bad_base64") from None
    last = len(data) - len(data) % 3
    canonical = b2a_base64(data[last:], newline=False).rstrip(b"=") == bare[last // 3 * 4 :]
    if not canonical or len(said) not in (len(bare), len(bare) + -len(bare) % 4):
        raise SignatureRefused("bad_base64")
    return data


class Source(Protocol):
    """Time and MAC keys that several engines share."""

    def now(self) -> float:
        """Seconds that all of them count alike, give or take `SLACK`."""

    def mac_key(self, issued: float) -> bytes | None:
        """The key of nonces made at that time, None where there is none."""


class _Own:
    """The clock and the MAC key of an engine that shares none. The key ends with the process, and so do its nonces."""

    def __init__(self, clock: Clock, mac_key: bytes) -> None:
        self.now = clock.elapsed
        self._mac_key = mac_key

    def mac_key(self, issued: float) -> bytes:
        return self._mac_key


class Challenges:
    """Makes and recognises nonces under MAC keys of its own, or a fleet's. A flood of them costs no memory."""

    def __init__(self, clock: Clock, mac_key: bytes | None = None, *, shared: Source | None = None) -> None:
        self.mac_key = mac_key or secrets.token_bytes(32)
        """A secret that only the engine's own worker processes are sent. A fleet's keys are in its store."""
        self._source: Source = shared or _Own(clock, self.mac_key)
        self._shared, self._slack = shared is not None, SLACK if shared else 0.0

    def issue(self, host: str, identity: str = ANY) -> str:
        """A fresh nonce that names the host as dialled and who may answer. ASCII, about 200 characters."""
        now = self._source.now()
        issued = int(now * 1000).to_bytes(8, "big")
        drawn = secrets.token_bytes(32)
        text = b".".join((_begun(host), encoded(identity.encode()), encoded(drawn), encoded(issued)))
        mac = _mac(self._source.mac_key(now) or b"", text)
        return (text + b"." + encoded(mac)).decode()

    def read(self, nonce: str) -> ChallengeFacts:
        """The challenge behind a nonce of ours that is still fresh. Raises SignatureRefused for any other string."""
        text, _, mac = nonce.encode("utf-8", "surrogatepass").rpartition(b".")
        try:
            _, _, identity, _, issued = text.split(b".")
            time = decode_any(issued)[:8]
        except ValueError:
            raise SignatureRefused("foreign_nonce") from None
        moment = int.from_bytes(time, "big") / 1000
        key = self._source.mac_key(moment)
        made = _mac(key or b"", text)
        if not hmac.compare_digest(mac, encoded(made)) or key is None:
            raise SignatureRefused("foreign_nonce")
        age = self._source.now() - moment
        if not -self._slack <= age <= LIFETIME:
            raise SignatureRefused("old_nonce")
        # The time comes first, so that the store's used set grows at its end and not all over.
        digest = time + sha256(made).digest()
        kept = LIFETIME + 1 + self._slack
        return ChallengeFacts(
            decode_any(identity).decode(), digest, kept - age, moment + kept if self._shared else None
        )


def _mac(key: bytes, text: bytes) -> bytes:
    """Keyed BLAKE2b (RFC 7693 section 2.9): in a fourth of the time of HMAC with SHA-256."""
    return blake2b(text, key=key, digest_size=32).digest()


@lru_cache(maxsize=64)
def _begun(host: str) -> bytes:
    """A nonce's first two parts. They are cached by host, since the hosts that the gateway lets through are few.

    Identities are not cached: else the time that a challenge takes would tell which keys were asked for before.
    """
    return f"{PREFIX}.{encode(host.encode())}".encode()
