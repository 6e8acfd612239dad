"""base64url without padding, as tokens and challenges have it (RFC 7515 section 2)."""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64

_TO_URL, FROM_URL = bytes.maketrans(b"+/", b"-_"), bytes.maketrans(b"-_+/", b"+/\0\0")


def encode(part: bytes) -> str:
    """base64url without padding (RFC 7515 section 2)."""
    return encoded(part).decode()


def encoded(part: bytes) -> bytes:
    """The same as ASCII."""
    return b2a_base64(part, newline=False).rstrip(b"=").translate(_TO_URL)


def decode(part: str) -> bytes:
    """The bytes of canonical base64url; raises ValueError for any other spelling."""
    said = part.encode("ascii")
    data = decode_any(said)
    if encoded(data) != said:
        raise ValueError("not canonical base64url")
    return data


def decode_any(part: bytes) -> bytes:
    """The bytes of any spelling: for what a MAC shows to be ours. Raises ValueError where there are none."""
    return a2b_base64(part.translate(FROM_URL) + b"=" * (-len(part) % 4))
