"""Session tokens: EdDSA JWTs under the engine's own token key (RFC 7519, 8037, 8725)."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from hatchway.engine.base.base64url import decode, encode, encoded
from hatchway.engine.base.errors import TokenRefused

TYPE = "hatchway-session+jwt"
"""Explicit typing, so that no other JWT passes for a session's (RFC 8725 section 3.11)."""

LONGEST_TOKEN = 8192
"""Characters; a longer one is refused unread."""

CACHED = 16_384
"""Tokens whose signature was verified, remembered by their exact text. State, key and expiry are looked at each
time."""

_to_json = msgspec.json.Encoder().encode


class Payload(msgspec.Struct, frozen=True, gc=False):
    """What a verified token says. `exp` and `iat` are in epoch seconds."""

    iss: str
    aud: str
    sub: str
    sid: str
    jti: str
    iat: int
    exp: int
    permissions: tuple[str, ...]


class Tokens:
    """Signs tokens with one key; verifies them with that and the key before it, each found by its `kid`.

    `engine` is the `iss` and `aud` of all of them.
    """

    def __init__(self, engine: str, key: Ed25519PrivateKey, old: Ed25519PublicKey | None = None) -> None:
        self._engine = engine
        self._verified: dict[str, Payload] = {}
        self.use(key, old)

    def use(self, key: Ed25519PrivateKey, old: Ed25519PublicKey | None = None) -> None:
        """Take up a rotated key; tokens of a key that is neither are refused from now on."""
        self._key, kid = key, key_id(key.public_key())
        self._header = _header(TYPE, kid)
        self._keys = {kid: key.public_key()}
        if old is not None:
            self._keys[key_id(old)] = old
        self._verified.clear()

    def key_ids(self) -> tuple[str, ...]:
        """The `kid` of each key that verifies, the signing one first."""
        return tuple(self._keys)

    def issue(self, subject: str, session: str, permissions: tuple[str, ...], issued_at: int, expires_at: int) -> str:
        """A signed token for a session (RFC 7515, 7.1; 8037, 3.1); times in epoch seconds.

        Written out here: PyJWT's encoding costs more than the signature.
        """
        name = encode(secrets.token_bytes(12))
        said = Payload(self._engine, self._engine, subject, session, name, issued_at, expires_at, permissions)
        text = self._header + b"." + encoded(_to_json(said))
        return (text + b"." + encoded(self._key.sign(text))).decode()

    def sign(self, kind: str, payload: bytes) -> str:
        """A JWT of another kind than a session's, under the same key: `kind` is its `typ`, `payload` is JSON."""
        text = _header(kind, self.key_ids()[0]) + b"." + encoded(payload)
        return (text + b"." + encoded(self._key.sign(text))).decode()

    def read(self, token: str) -> Payload:
        """What a token of ours says. Raises TokenRefused; its expiry and its session are the caller's to look at."""
        payload = self._verified.get(token)
        if payload is None:
            payload = self._verify(token)
            if len(self._verified) >= CACHED:
                del self._verified[next(iter(self._verified))]
            self._verified[token] = payload
        return payload

    def _verify(self, token: str) -> Payload:
        if len(token) > LONGEST_TOKEN:
            raise TokenRefused("malformed")
        try:
            header = jwt.get_unverified_header(token)
            decode(token.rpartition(".")[2])  # one spelling only: the last base64url character has spare bits
            key = self._keys[header["kid"]]
            if header != {"alg": "EdDSA", "typ": TYPE, "kid": header["kid"]}:
                raise TokenRefused("malformed")
            # exp is compared with our own clock, iat with none: this engine is issuer and verifier in one.
            said = jwt.decode(
                token,
                key,
                algorithms=["EdDSA"],
                issuer=self._engine,
                audience=self._engine,
                options={
                    "require": ["iss", "aud", "sub", "sid", "jti", "iat", "exp"],
                    "verify_exp": False,
                    "verify_iat": False,
                },
            )
            return msgspec.convert(said, Payload)
        except (jwt.PyJWTError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise TokenRefused("malformed") from error

    def jwks(self) -> Mapping[str, Any]:
        """The public keys as a JWK Set (RFC 7517, 8037), the signing one first, and the `iss` of their tokens."""
        return {
            "issuer": self._engine,
            "keys": [{**_jwk(key), "kid": kid, "use": "sig", "alg": "EdDSA"} for kid, key in self._keys.items()],
        }


def _header(kind: str, kid: str) -> bytes:
    return encoded(_to_json({"alg": "EdDSA", "typ": kind, "kid": kid}))


def _jwk(key: Ed25519PublicKey) -> dict[str, str]:
    return {"kty": "OKP", "crv": "Ed25519", "x": encode(key.public_bytes(Encoding.Raw, PublicFormat.Raw))}


def key_id(key: Ed25519PublicKey) -> str:
    """The key's RFC 7638 thumbprint."""
    members = _jwk(key)
    canonical = f'{{"crv":"{members["crv"]}","kty":"{members["kty"]}","x":"{members["x"]}"}}'
    return encode(sha256(canonical.encode()).digest())
