"""RSA keys of sign-in: what they are called, which are taken, signing and verifying with them (sections 2.4 and 5)."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from hatchway.engine.base.errors import KeyRefused, SignatureRefused
from hatchway.engine.keys import key_files, weak_keys
from hatchway.engine.keys.key_files import PassphraseWanted

__all__ = [
    "Algorithm",
    "PassphraseWanted",
    "PrivateKey",
    "PublicKey",
    "generate_key",
    "generate_token_key",
    "identity_of",
    "parse_openssh",
    "read_openssh",
    "read_private_key",
    "read_public_half",
    "read_public_key",
    "read_token_key",
    "refused_as_weak",
    "sign",
    "token_key_pem",
    "verify",
]

Algorithm = Literal["RS256", "PS256", "EdDSA"]
KEY_TYPES = ("rsa", "ed25519")
"""What the setting `key_types` may name."""

ED25519_BITS, ED25519_SIGNATURE = 256, 64
"""Bits of such a key, and bytes of its signatures (RFC 8032, 5.1)."""

NEW_KEY_BITS = 3072

_SHA256 = SHA256()
_PADDINGS: dict[str, padding.PKCS1v15 | padding.PSS] = {
    "RS256": padding.PKCS1v15(),
    "PS256": padding.PSS(padding.MGF1(_SHA256), 32),  # AUTO would take salts of any length
}


@dataclass(frozen=True, slots=True)
class PublicKey:
    """An RSA public key of permitted size and exponent, or an Ed25519 one. `identity` is its OpenSSH fingerprint;
    `comment` is its file's."""

    identity: str
    key: RSAPublicKey | Ed25519PublicKey
    bits: int
    comment: str = ""
    sound: bool = field(default=False, init=False, compare=False, repr=False)
    """Whether `weakness` has checked the key and found no weak kind: once, and not before the key is used, since that
    takes 0.5 ms."""

    @property
    def rsa(self) -> RSAPublicKey:
        """The key of an RSA one."""
        assert isinstance(self.key, RSAPublicKey)
        return self.key

    @property
    def kind(self) -> str:
        """Which of KEY_TYPES it is."""
        return "ed25519" if self.bits == ED25519_BITS else "rsa"

    @property
    def signature_length(self) -> int:
        """Bytes of each signature: as many as hold the modulus (RFC 8017, 8.1 and 8.2), or an Ed25519 key's 64."""
        return ED25519_SIGNATURE if self.bits == ED25519_BITS else (self.bits + 7) // 8

    def may_have_made(self, signature: bytes) -> bool:
        """Whether a signature of the right length is a number that the key can make at all (RFC 8017, 5.2.2)."""
        return self.bits == ED25519_BITS or int.from_bytes(signature) < self.rsa.public_numbers().n

    def weakness(self) -> str | None:
        """Which weak kind it is, in words, or None."""
        if isinstance(self.key, Ed25519PublicKey):
            words = weak_keys.small_order(self.key.public_bytes_raw())
        else:
            numbers = self.key.public_numbers()
            words = weak_keys.weakness(numbers.n, numbers.e)
        return self.found(words)

    def found(self, words: str | None) -> str | None:
        """Note and return what `weakness`, or `weaknesses`, found."""
        object.__setattr__(self, "sound", words is None)
        return words

    def pem(self) -> bytes:
        """SPKI PEM."""
        return self.key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def openssh(self) -> str:
        """`ssh-rsa AAAA...` or `ssh-ed25519 AAAA...`, without comment or line end."""
        return self.key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """A private key with its public half."""

    key: RSAPrivateKey | Ed25519PrivateKey
    public: PublicKey

    @property
    def rsa(self) -> RSAPrivateKey:
        """The key of an RSA one."""
        assert isinstance(self.key, RSAPrivateKey)
        return self.key

    @property
    def identity(self) -> str:
        """The identity of the public half."""
        return self.public.identity

    def pem(self) -> bytes:
        """PKCS#8 PEM, without a passphrase."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def weaknesses(keys: Sequence[PublicKey]) -> list[str | None]:
    """What `PublicKey.weakness` returns of each, in a quarter of the time where they are many."""
    numbers = [key.key.public_numbers() for key in keys if isinstance(key.key, RSAPublicKey)]
    found = iter(weak_keys.weaknesses([(number.n, number.e) for number in numbers]))
    return [key.found(next(found)) if isinstance(key.key, RSAPublicKey) else key.weakness() for key in keys]


def identity_of(key: RSAPublicKey | Ed25519PublicKey) -> str:
    """OpenSSH's fingerprint: `SHA256:` and 43 characters of base64, as `ssh-keygen -l` prints it."""
    return _fingerprint(base64.b64decode(key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).split(b" ")[1]))


def _fingerprint(blob: bytes) -> str:
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def read_public_key(data: bytes, types: Collection[str] = ("rsa",)) -> PublicKey:
    """The one key of a file, of one of these types: SPKI PEM, PKCS#1 PEM or an OpenSSH line.

    Raises `KeyRefused` with the one reason: no key, of another type, out of bounds, or of a known weak kind.
    """
    public = _of_type(_bounded(*key_files.load_public(data)), types)
    _refuse(public.weakness(), public.kind)
    if isinstance(public.key, RSAPublicKey):
        _refuse(weak_keys.prime_modulus(public.key.public_numbers().n))
    return public


def parse_openssh(line: str) -> PublicKey:
    """The key of `ssh-rsa AAAA... comment`. Raises `KeyRefused`; a prime modulus alone is not looked for (cost)."""
    public = read_openssh(line)
    _refuse(public.weakness(), public.kind)
    return public


def read_openssh(line: str) -> PublicKey:
    """As `parse_openssh`, in a twentieth of the time: whether the key is of a weak kind is not looked at."""
    found = key_files.canonical_openssh(line)
    if found is None:
        return _bounded(*key_files.load_openssh(line))
    numbers, blob, comment = found
    _refuse(weak_keys.out_of_bounds(numbers.n, numbers.e))
    return PublicKey(_fingerprint(blob), numbers.public_key(), numbers.n.bit_length(), comment)


def refused_as_weak(words: str, kind: str = "rsa") -> KeyRefused:
    """The refusal of a key of that kind for the weakness that `words` name."""
    return KeyRefused(f"the {'Ed25519' if kind == 'ed25519' else 'RSA'} key is refused: {words}", cause="weak")


def read_private_key(data: bytes, passphrase: bytes | None = None, types: Collection[str] = ("rsa",)) -> PrivateKey:
    """The one key of a file, PKCS#1 or PKCS#8 PEM, of one of these types. Validation takes 40 ms at 2048 bits of RSA:
    read once.

    Raises `KeyRefused` with the one reason; `PassphraseWanted` where it has a passphrase and none is given.
    """
    key = key_files.load_private(data, passphrase)
    return PrivateKey(key, _of_type(_bounded(key.public_key()), types))


def _of_type(public: PublicKey, types: Collection[str]) -> PublicKey:
    if public.kind not in types:
        raise KeyRefused("this is not an RSA key", cause="not_rsa")
    return public


def read_public_half(data: bytes) -> PublicKey:
    """The public half of the one private key of a file that Hatchway made. The engine reads it at each start.

    The numbers must belong together. That the primes are primes is not checked again, which would take 40 ms.
    Raises `KeyRefused`.
    """
    key = key_files.load_private(data, None, proven=True)
    if not isinstance(key, RSAPrivateKey):
        raise KeyRefused("this is not an RSA key", cause="not_rsa")
    numbers = key.private_numbers()
    p, q, n, e = numbers.p, numbers.q, numbers.public_numbers.n, numbers.public_numbers.e
    if p * q != n or any(numbers.d * e % (prime - 1) != 1 for prime in (p, q)):
        raise KeyRefused("the private key is damaged: its numbers are no key", cause="damaged")
    return _bounded(key.public_key())


def generate_key(bits: int = NEW_KEY_BITS) -> PrivateKey:
    """A new key. Takes from 0.1 s to a few seconds: call it in a thread."""
    key = generate_private_key(public_exponent=65537, key_size=bits)
    return PrivateKey(key, _bounded(key.public_key()))


def sign(private: PrivateKey, message: bytes, algorithm: Algorithm = "PS256") -> bytes:
    """The signature of `message`, as long as the modulus; an Ed25519 key's is EdDSA whatever is asked for."""
    if isinstance(private.key, Ed25519PrivateKey):
        return private.key.sign(message)
    return private.key.sign(message, _PADDINGS[algorithm], _SHA256)


def verify(public: PublicKey, algorithm: str, message: bytes, signature: bytes) -> None:
    """Raises `SignatureRefused` unless `signature` is of `message` under exactly that algorithm. 25 to 250 us."""
    if algorithm not in _PADDINGS and algorithm != "EdDSA":
        raise SignatureRefused("unknown_algorithm")
    if (algorithm == "EdDSA") != (public.bits == ED25519_BITS):
        raise SignatureRefused("another_algorithm")
    if len(signature) != public.signature_length:
        raise SignatureRefused("signature_length")
    try:
        if isinstance(public.key, RSAPublicKey):
            public.key.verify(signature, message, _PADDINGS[algorithm], _SHA256)
        else:
            public.key.verify(signature, message)
    except InvalidSignature:
        raise SignatureRefused("wrong_signature") from None


def generate_token_key() -> Ed25519PrivateKey:
    """A new key for session tokens: never the RSA key, which signs strings that others choose."""
    return Ed25519PrivateKey.generate()


def token_key_pem(key: Ed25519PrivateKey) -> bytes:
    """PKCS#8 PEM, as `token-key.pem` holds it."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def read_token_key(data: bytes) -> Ed25519PrivateKey:
    """The key in `token-key.pem`. Raises `KeyRefused`."""
    try:
        key = load_pem_private_key(data, None)
    except (ValueError, TypeError):
        raise KeyRefused("the token key is damaged: its file is not one PKCS#8 PEM key", cause="damaged") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyRefused("the token key is not an Ed25519 key", cause="not_ed25519")
    return key


def _bounded(key: RSAPublicKey | Ed25519PublicKey, comment: str = "") -> PublicKey:
    if isinstance(key, Ed25519PublicKey):
        return PublicKey(identity_of(key), key, ED25519_BITS, comment)
    numbers = key.public_numbers()
    _refuse(weak_keys.out_of_bounds(numbers.n, numbers.e))
    return PublicKey(identity_of(key), key, key.key_size, comment)


def _refuse(words: str | None, kind: str = "rsa") -> None:
    if words:
        raise refused_as_weak(words, kind)
