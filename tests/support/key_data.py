"""Key files that the tests have in common, and what editors, tools and bad luck do to them."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import shake_256
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from hatchway.engine.base.errors import KeyRefused
from hatchway.engine.keys.key_files import load_private
from hatchway.engine.keys.keys import PrivateKey, read_private_key, read_public_half, read_public_key
from tests.support.fakes import ROOT

OWN = ROOT / "tests/data/own/keys"
MANIFEST = json.loads((OWN.parent / "keys_manifest.json").read_text())
BASELINE = "SHA256:Dcz1btrL4mk5rosgMQ7YaetTZKvkNg3s7NaYKSkVJEE"
"""Fingerprint of rsa2048, as `ssh-keygen -l` prints it."""

PKCS8 = (OWN / "rsa2048.pkcs8.pem").read_bytes()
PKCS1 = (OWN / "rsa2048.pkcs1.pem").read_bytes()
SPKI = (OWN / "rsa2048.spki.pub").read_bytes()
OPENSSH_PUBLIC = (OWN / "rsa2048.ssh.pub").read_bytes()


def refusal(read: Callable[..., object], data: bytes, *more: Any) -> KeyRefused:
    """The refusal that reading makes."""
    with pytest.raises(KeyRefused) as refused:
        read(data, *more)
    return refused.value


def odd_key() -> PrivateKey:
    """A key of 2049 bits, whose signatures are a byte longer than those of 2048."""
    data = (ROOT / "tests/data/rsa2049.pem").read_bytes()
    return PrivateKey(load_private(data, None, proven=True), read_public_half(data))


BOM = b"\xef\xbb\xbf"
HARMLESS: dict[str, Callable[[bytes], bytes]] = {
    "CRLF": lambda data: data.replace(b"\n", b"\r\n"),
    "CR": lambda data: data.replace(b"\n", b"\r"),
    "BOM": lambda data: BOM + data,
    "BOM and CRLF": lambda data: BOM + data.replace(b"\n", b"\r\n"),
    "blank lines": lambda data: b"\n\r\n" + data.replace(b"\n", b"\n\n") + b"\n \n",
    "no final newline": lambda data: data.rstrip(),
    "indented": lambda data: b"".join(b"  " + line + b"\n" for line in data.splitlines()),
    "one long line": lambda data: _unwrapped(data),
    "attributes first": lambda data: b"Bag Attributes\n    friendlyName: k\n" + data,
    "words after": lambda data: data + b"this was the key of k\xc3\xa9vin\n",
}


def _unwrapped(data: bytes) -> bytes:
    first, *body, last = data.splitlines()
    return b"\n".join((first, b"".join(body), last, b""))


def _swap(data: bytes, old: bytes, new: bytes) -> bytes:
    return data.replace(b"BEGIN " + old, b"BEGIN " + new).replace(b"END " + old, b"END " + new)


BROKEN: dict[str, tuple[Callable[..., object], bytes, str]] = {
    "empty": (read_private_key, b"", "empty"),
    "blank": (read_private_key, BOM + b" \n", "empty"),
    "words": (read_private_key, b"hello\n", "no key in PEM form"),
    "UTF-16": (read_private_key, PKCS8.decode().encode("utf-16"), "UTF-16"),
    "DER": (read_public_key, b"\x30\x82\x01\x22\x00", "DER"),
    "binary": (read_private_key, b"\x7fELF\0\0", "not text"),
    "too large": (read_private_key, PKCS8 + b" " * 65536, "64 KiB"),
    "no END": (read_private_key, PKCS8[:500], "END line"),
    "cut": (read_private_key, PKCS8[:500] + PKCS8[-26:], "base64|no key"),
    "\\n for newline": (read_private_key, PKCS8.replace(b"\n", b"\\n"), "base64"),
    "two private": (read_private_key, PKCS8 + PKCS1, "more than one"),
    "public first": (read_private_key, SPKI + PKCS8, "more than one"),
    "PEM and line": (read_public_key, SPKI + OPENSSH_PUBLIC, "more than one"),
    "two lines": (read_public_key, OPENSSH_PUBLIC * 2, "neither one"),
    "PKCS#8 called PKCS#1": (read_private_key, _swap(PKCS8, b"PRIVATE", b"RSA PRIVATE"), "BEGIN line"),
    "PKCS#1 called PKCS#8": (read_private_key, _swap(PKCS1, b"RSA PRIVATE", b"PRIVATE"), "BEGIN line"),
    "encrypted called plain": (
        read_private_key,
        _swap((OWN / "rsa2048.enc-pkcs8.pem").read_bytes(), b"ENCRYPTED PRIVATE", b"PRIVATE"),
        "BEGIN line",
    ),
    "RSASSA-PSS only": (read_private_key, (OWN / "rsapss.pem").read_bytes(), "RSASSA-PSS"),
    "ssh-rsa as private": (read_private_key, OPENSSH_PUBLIC, "public key; give the private"),
    "Ed25519 line": (read_public_key, b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA== me\n", "is damaged"),
    "certificate line": (read_public_key, b"ssh-rsa-cert-v01@openssh.com AAAA me\n", "certificate"),
    "options": (read_public_key, b'permissions="MASTER" ' + OPENSSH_PUBLIC, "options before the key"),
    "bad base64": (read_public_key, OPENSSH_PUBLIC.replace(b"AAAAB3", b"AAAA=B3"), "base64"),
    "not a blob": (read_public_key, b"ssh-rsa AAAAB3NzaC1yc2EAAAAD\n", "no key"),
    "other blob": (read_public_key, b"ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIA==\n", "no key|base64"),
}


def line_of(number: int, bits: int = 2048) -> str:
    """A line of authorized_keys with a key that is nobody's, another for each number: made in no time."""
    drawn = bytearray(shake_256(str(number).encode()).digest(bits // 8))
    drawn[0] |= 0x80
    drawn[-1] |= 1
    key = RSAPublicNumbers(65537, int.from_bytes(drawn)).public_key()
    return f"{key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()} user{number}"
