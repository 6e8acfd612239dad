"""Reads key files: the one PEM block or OpenSSH line of a file, or the one reason why not (sections 2.4 and 7)."""

from __future__ import annotations

import base64
import re
import unicodedata
from binascii import a2b_base64, b2a_base64
from typing import NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey, RSAPublicNumbers
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
    load_ssh_public_key,
)

from hatchway.engine.base.errors import KeyRefused

LARGEST_FILE = 65536
"""Bytes; a key of 8192 bits takes about 6,400."""

_UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm)
_MARK = re.compile(r"-----BEGIN ([A-Z0-9 ]{1,40})-----")
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]{1,40})-----(.*?)-----END \1-----", re.DOTALL)
_HEADERS = re.compile(r"\s*((?:[A-Za-z-]+:[^\n]*\n)+)\s*\n")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_SSH_LINE = re.compile(r"ssh-rsa[ \t]+([A-Za-z0-9+/=]+)(?:[ \t]+(.*))?")
_ED25519_LINE = re.compile(r"ssh-ed25519[ \t]+([A-Za-z0-9+/=]+)(?:[ \t]+(.*))?")
_SSH_OTHER = re.compile(r"(?:ssh|ecdsa|sk)-[A-Za-z0-9@.-]+[ \t]")
_SSH_INSIDE = re.compile(r"(?:^|\s)ssh-rsa[ \t]")
_BLOB_BEGINS = b"\0\0\0\7ssh-rsa"
_NO_TEXT = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SPACES = re.compile(r"[ \t\r\n\v\f]+")

_PUBLIC_FORMS = {"PUBLIC KEY": PublicFormat.SubjectPublicKeyInfo, "RSA PUBLIC KEY": PublicFormat.PKCS1}
_PRIVATE_LABELS = ("PRIVATE KEY", "RSA PRIVATE KEY", "ENCRYPTED PRIVATE KEY")
_PSS_ONLY = bytes.fromhex("06092a864886f70d01010a")
"""The object identifier id-RSASSA-PSS: a key that RS256 must not be used with (RFC 4055, 1.2)."""

OPENSSH_HINT = (
    "this is an OpenSSH-format private key, and PKCS#1 or PKCS#8 PEM is wanted; convert a copy of it with"
    " ssh-keygen -p -m PEM -f <key> (RSA only; it rewrites in place, so copy first)"
)
_OPENSSH = "OPENSSH PRIVATE KEY"
_KINDS = {
    _OPENSSH: ("openssh", OPENSSH_HINT),
    "EC PRIVATE KEY": ("not_rsa", "this is not an RSA key but an EC one"),
    "DSA PRIVATE KEY": ("not_rsa", "this is not an RSA key but a DSA one"),
    "CERTIFICATE": ("certificate", "this is a certificate; take the key out with openssl x509 -pubkey -noout"),
}


class PassphraseWanted(KeyRefused):
    """The private key has a passphrase and none was given: ask, and read again."""


class Block(NamedTuple):
    """One PEM block: its label, the headers of an encrypted PKCS#1 key, and its bytes."""

    label: str
    headers: str
    der: bytes

    @property
    def encrypted(self) -> bool:
        """Whether a passphrase is needed to read it."""
        return self.label == "ENCRYPTED PRIVATE KEY" or "ENCRYPTED" in self.headers

    def pem(self, label: str) -> bytes:
        """The block as a loader wants it, under `label`."""
        headers = f"{self.headers}\n" if self.headers else ""
        return f"-----BEGIN {label}-----\n{headers}{_wrapped(self.der)}-----END {label}-----\n".encode()


AnyPublicKey = RSAPublicKey | Ed25519PublicKey
AnyPrivateKey = RSAPrivateKey | Ed25519PrivateKey


def load_public(data: bytes) -> tuple[AnyPublicKey, str]:
    """The one public key of a file, and its comment. Raises `KeyRefused`; size and weakness are not looked at."""
    text = _text(data)
    if f"-----BEGIN {_OPENSSH}-----" in text:
        raise KeyRefused(
            "this is a private key; give the public one, which ssh-keygen wrote beside it under a name ending in .pub,"
            " and show this one to nobody",
            cause="private",
        )
    if _MARK.search(text):
        return _public_of_block(_only_block(text)), ""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if len(lines) > 1:
        raise KeyRefused("the file is neither one PEM key nor one ssh-rsa line", cause="many_lines")
    return load_openssh(lines[0])


def load_openssh(line: str) -> tuple[AnyPublicKey, str]:
    """The key of `ssh-rsa AAAA... comment` and its comment as `one_line` has it. Raises `KeyRefused`."""
    match = _SSH_LINE.fullmatch(line) or _ED25519_LINE.fullmatch(line)
    if match is None:
        raise _no_line(line)
    _bytes_of(match[1])
    bare = f"{line.split(None, 1)[0]} {match[1]}".encode()
    try:
        key = load_ssh_public_key(bare)
    except _UNREADABLE as error:
        raise _damaged(error) from None
    return _canonical(key, bare, Encoding.OpenSSH, PublicFormat.OpenSSH), one_line(match[2])


def canonical_openssh(line: str) -> tuple[RSAPublicNumbers, bytes, str] | None:
    """The key's numbers, its blob and the comment of a line as people usually write it, in a fifth of the time that
    `load_openssh` takes: a file may have many thousand lines.

    None for any other line: `load_openssh` reads it, or says what is wrong.
    """
    match = _SSH_LINE.fullmatch(line)
    try:
        blob = a2b_base64(match[1]) if match is not None else b""
    except ValueError:
        return None
    end = 15 + int.from_bytes(blob[11:15], "big")
    e, n = int.from_bytes(blob[15:end], "big"), int.from_bytes(blob[end + 4 :], "big")
    e_size, n_size = e.bit_length() // 8 + 1, n.bit_length() // 8 + 1
    sizes = (len(blob), end - 15, int.from_bytes(blob[end : end + 4], "big"))
    if match is None or blob[:11] != _BLOB_BEGINS or sizes != (19 + e_size + n_size, e_size, n_size):
        return None
    if not 3 <= e < n or not e & n & 1 or b2a_base64(blob, newline=False) != match[1].encode():
        return None
    return RSAPublicNumbers(e, n), blob, one_line(match[2])


def load_private(data: bytes, passphrase: bytes | None, *, proven: bool = False) -> AnyPrivateKey:
    """The one private key of a file. Raises `KeyRefused`, and `PassphraseWanted` where it needs a passphrase.

    Checking its numbers takes 40 ms. A key that is `proven`, as one of our own making, is not checked.
    """
    text = _text(data)
    if not _MARK.search(text) and _SSH_LINE.fullmatch(text.strip()):
        raise KeyRefused("this is a public key; give the private one", cause="public")
    block = _only_block(text)
    if block.label in _PUBLIC_FORMS:
        raise KeyRefused("this is a public key; give the private one", cause="public")
    if block.label not in _PRIVATE_LABELS:
        raise KeyRefused(f"the file holds no private key but a {block.label}", cause="other_kind")
    if block.encrypted and passphrase is None:
        raise PassphraseWanted("the private key has a passphrase", cause="encrypted")
    try:
        key = load_pem_private_key(
            block.pem(block.label),
            passphrase if block.encrypted else None,
            unsafe_skip_rsa_key_validation=proven,
        )
    except _UNREADABLE as error:
        raise _unreadable_private(block, error) from None
    if not isinstance(key, (RSAPrivateKey, Ed25519PrivateKey)):
        raise KeyRefused("this is not an RSA key", cause="not_rsa")
    _refuse_pss_only(block.der)
    return key


def one_line(text: str | None) -> str:
    """A name in whatever script, as it goes into one line of a file: at most 200 characters, no control characters.

    What a terminal must not get is escaped where the name is shown.
    """
    return _NO_TEXT.sub("?", _SPACES.sub(" ", text or "").strip(" "))[:200]


def same_name(one: str, other: str) -> bool:
    """Whether two names look the same: keyboards differ in whether a letter with an accent is one character or two."""
    return unicodedata.normalize("NFC", one_line(one)) == unicodedata.normalize("NFC", one_line(other))


def _text(data: bytes) -> str:
    if len(data) > LARGEST_FILE:
        raise KeyRefused("the file is larger than 64 KiB: not a key file", cause="size")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise KeyRefused("the file is UTF-16 text; save it as ASCII or UTF-8", cause="utf16")
    if data[:1] == b"\x30" and data[1:2] >= b"\x80":
        raise KeyRefused("the file is DER, not PEM; convert it with openssl (-inform DER)", cause="der")
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode()
    except UnicodeDecodeError:
        text = "\0"
    if _CONTROLS.search(text):
        raise KeyRefused("the file is not text: no PEM file", cause="binary")
    if not text.strip():
        raise KeyRefused("the file is empty", cause="empty")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _only_block(text: str) -> Block:
    labels = _MARK.findall(text)
    if not labels:
        raise KeyRefused("the file holds no key in PEM form", cause="no_key")
    if len(labels) > 1 or _SSH_INSIDE.search(text):
        raise KeyRefused("the file holds more than one key or certificate; keep one", cause="two_keys")
    if labels[0] in _KINDS:
        cause, detail = _KINDS[labels[0]]
        raise KeyRefused(detail, cause=cause)
    # Text around the block is explanation and means nothing (RFC 7468, 5.2).
    match = _BLOCK.search(text)
    if match is None:
        raise KeyRefused("the key is cut short: its END line is missing", cause="truncated")
    headers = _HEADERS.match(match[2])
    base64_text = match[2][headers.end() :] if headers else match[2]
    return Block(labels[0], headers[1] if headers else "", _bytes_of("".join(base64_text.split())))


def _bytes_of(text: str) -> bytes:
    """The bytes of base64 in its canonical spelling. Raises KeyRefused for another."""
    try:
        data = base64.b64decode(text)  # the library accepts more than canonical base64; the comparison does not
    except ValueError:
        data = b""
    if not data or base64.b64encode(data).decode() != text:
        raise KeyRefused("the key is damaged: its base64 does not decode", cause="base64")
    return data


def _wrapped(der: bytes) -> str:
    text = base64.b64encode(der).decode()
    return "".join(f"{text[at : at + 64]}\n" for at in range(0, len(text), 64))


def _public_of_block(block: Block) -> AnyPublicKey:
    if block.label in _PRIVATE_LABELS:
        raise KeyRefused("this is a private key; give the public one, and show this one to nobody", cause="private")
    if block.label not in _PUBLIC_FORMS:
        raise KeyRefused(f"the file holds no public key but a {block.label}", cause="other_kind")
    try:
        key = load_pem_public_key(block.pem(block.label))
    except _UNREADABLE as error:
        raise _damaged(error) from None
    _refuse_pss_only(block.der)
    return _canonical(key, block.der, Encoding.DER, _PUBLIC_FORMS[block.label])


def _canonical(key: object, given: bytes, encoding: Encoding, form: PublicFormat) -> AnyPublicKey:
    """The key, unless `given` is not its one canonical encoding: a key has one spelling and one identity. Raises
    KeyRefused."""
    if not isinstance(key, (RSAPublicKey, Ed25519PublicKey)):
        raise KeyRefused("this is not an RSA key", cause="not_rsa")
    if key.public_bytes(encoding, form) != given:
        raise KeyRefused("the key is damaged: its encoding is not the canonical one", cause="damaged")
    return key


def _refuse_pss_only(der: bytes) -> None:
    if _PSS_ONLY in der[:64]:
        raise KeyRefused("this is an RSASSA-PSS key; a plain RSA key is wanted", cause="pss_only")


def _no_line(line: str) -> KeyRefused:
    if "ssh-rsa-cert" in line:
        return KeyRefused("this is a certificate, not a bare key", cause="certificate")
    if line.startswith("ssh-rsa"):
        return KeyRefused("the key is damaged: its base64 does not decode", cause="base64")
    if _SSH_OTHER.match(line):
        return KeyRefused("this is not an RSA key", cause="not_rsa")
    if _SSH_INSIDE.search(line):
        return KeyRefused("there are options before the key; give the bare ssh-rsa line", cause="options")
    return KeyRefused("the file holds no key in PEM or OpenSSH form", cause="no_key")


def _damaged(error: Exception) -> KeyRefused:
    # cryptography refuses e < 3, e >= n and n < 3 itself; its sentence begins with the letter.
    number = {"e": "its public exponent is out of range", "n": "its modulus is out of range"}
    return KeyRefused(
        f"the key is damaged: {number.get(str(error)[:2].strip(), 'its bytes are no key')}", cause="damaged"
    )


def _unreadable_private(block: Block, error: Exception) -> KeyRefused:
    if isinstance(error, UnsupportedAlgorithm):
        return KeyRefused("the private key, or its encryption, is of a kind that is not supported", cause="unsupported")
    if block.encrypted:
        return KeyRefused("the passphrase is wrong, or the key is damaged", cause="passphrase")
    for label in _PRIVATE_LABELS:
        if label != block.label and _loads(block.pem(label)):
            return KeyRefused(f"the BEGIN line does not fit the key in it, which is a {label}", cause="label")
    return KeyRefused("the private key is damaged: its bytes are no key", cause="damaged")


def _loads(pem: bytes) -> bool:
    try:
        load_pem_private_key(pem, None)
    except TypeError:  # cryptography's way to say that a passphrase is needed
        return True
    except (ValueError, UnsupportedAlgorithm):
        return False
    return True
