"""Heads: signatures over the journal as it stands, for those who would know later whether it was rewritten.

A head is a JWT (RFC 7519, EdDSA) under the key of the session tokens, so that whoever has the engine's key set can
verify it: the issuer, the number and hash of the last record, the number of the first one that is kept, when, and why.
Each is appended to `log/heads` and told in the log.
"""

from __future__ import annotations

import errno
import json
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import structlog

from hatchway.engine.base import files
from hatchway.engine.base.clock import Clock
from hatchway.engine.base.errors import Refusal
from hatchway.engine.journal.files import is_torn

log = structlog.get_logger(__name__)

HEADS = "heads"
"""The file's name, in the journal's folder: one head a line."""

JOURNAL_HEAD = "journal_head"
"""The log's event for a head."""

TYPE, SIFTED_TYPE = "hatchway-head+jwt", "hatchway-sifted+jwt"
"""Explicit typing, so that neither passes for the other, or for a session's token (RFC 8725 section 3.11)."""

MOST_BYTES = 8 * 1024 * 1024
"""Size of the file at which the older half of it goes: a head a minute fills it in a fortnight."""

LONGEST_HEAD = 2048
"""Characters: one has some 450."""

Sign = Callable[[str, bytes], str]
"""From the type and the payload of a JWT to the JWT, signed by the token key."""


class HeadRefused(Refusal):
    """A head that is not one of this engine's."""

    code = "head_refused"


class Head(msgspec.Struct, frozen=True, gc=False):
    """What is signed. `first` and `seq` are the numbers of the first and last record; `iat` is in epoch seconds; `why`
    is `minute`, `rotation`, `pruning`, `asked` or `stop`."""

    iss: str
    seq: int
    hash: str
    first: int
    iat: float
    why: str


class SiftedFile(msgspec.Struct, frozen=True, gc=False):
    """What is signed of a file that was sifted: SHA-256 of all that follows its first line, in base64url."""

    iss: str
    digest: str
    iat: float


class Heads:
    """Signs heads, and keeps them."""

    def __init__(self, folder: Path, clock: Clock, issuer: str, sign: Sign) -> None:
        self._path, self._clock, self._issuer, self._sign = folder / HEADS, clock, issuer, sign
        self._last: tuple[int, int, str] = (0, 0, "")
        self._written = True
        """Whether the last head is in the file; if not, that is tried again when the next one is due."""
        self.first, self.signed_by, self.seq = _last_kept(self._path)
        """Number of the first record that was kept when the last head before this start was signed, by which key it was
        signed, by `kid`, and number of the last record; 0, None and 0 without one."""
        self.subscribers: list[Callable[[str], None]] = []
        """Called with each head: they carry it away from this host."""

    def sign(self, seq: int, digest: str, first: int, why: str) -> str:
        """A head over the journal from record `first` to `seq`, whose hash is `digest`; the last one where it says the
        same. What can't be written is told in the log alone."""
        if self._last[:2] == (seq, first):
            if not self._written:
                self._write(self._last[2])
            return self._last[2]
        head = Head(self._issuer, seq, digest, first, self._clock.wall(), why)
        signed = self._sign(TYPE, msgspec.json.encode(head))
        self._last = (seq, first, signed)
        log.info(JOURNAL_HEAD, seq=seq, why=why, head=signed)
        self._write(signed)
        for tell in self.subscribers:
            tell(signed)
        return signed

    def _write(self, signed: str) -> None:
        try:
            append_head(self._path, signed)
        except (OSError, Refusal) as error:
            log.warning("head_not_written", why=str(error))
            self._written = False
        else:
            self._written = True

    def seal_file(self, kept: bytes) -> bytes:
        """What is signed of a file whose refusals and renewals have made room: all that is kept of it."""
        told = SiftedFile(self._issuer, _digest(kept), self._clock.wall())
        return self._sign(SIFTED_TYPE, msgspec.json.encode(told)).encode()


def append_head(path: Path, signed: str) -> None:
    """One head more in a file, whose older half goes once it is too large. Raises OSError, FileRefused.

    A full disk may have cut the one before it: what is left of that is a line of its own.
    """
    fd = files.open_append(path)
    try:
        data = b"\n" * is_torn(path) + signed.encode() + b"\n"
        if os.write(fd, data) < len(data):
            raise OSError(errno.ENOSPC, "the disk took half a head")
        size = os.fstat(fd).st_size
    finally:
        os.close(fd)
    if size > MOST_BYTES:
        data = path.read_bytes()
        files.write_private(path, data[data.index(b"\n", size // 2) + 1 :])


Keys = Mapping[str, Any]
"""Public keys (Ed25519) by their `kid`."""


def read_head(signed: str, keys: Keys) -> Head:
    """What a head says. Raises HeadRefused."""
    head: Head = _read(signed, TYPE, Head, keys)
    return head


def check_sifted(signed: str, kept: bytes, keys: Keys) -> None:
    """Raises HeadRefused unless that is what was left of a file that the engine itself has sifted."""
    if _read(signed, SIFTED_TYPE, SiftedFile, keys).digest != _digest(kept):
        raise HeadRefused("the file is not what was signed when it was sifted")


def _last_kept(path: Path) -> tuple[int, str | None, int]:
    with suppress(OSError):
        for last in reversed(path.read_text("ascii", errors="replace").split()):
            with suppress(ValueError, KeyError, TypeError, HeadRefused):  # one that a full disk has cut
                said = claims(last)
                return int(said["first"]), str(_part(last, 0)["kid"]), int(said["seq"])
    return 0, None, 0


def claims(signed: str) -> dict[str, Any]:
    """What a head says, its signature not looked at. Raises HeadRefused."""
    return _part(signed, 1)


def _part(signed: str, number: int) -> dict[str, Any]:
    """The header (0) or the payload (1) of a JWT. Raises HeadRefused."""
    try:
        part = signed.split(".")[number]
        said: dict[str, Any] = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (IndexError, ValueError):
        raise HeadRefused("this is no head") from None
    return said


def _read(signed: str, kind: str, shape: type[Any], keys: Keys) -> Any:
    import jwt  # here, since an engine signs heads and reads none: it starts without this library

    try:
        header = jwt.get_unverified_header(signed)
        kid = str(header.get("kid"))
        if header != {"alg": "EdDSA", "typ": kind, "kid": kid}:
            raise HeadRefused(f"this is no {kind.removesuffix('+jwt')}")
        if kid not in keys:
            raise HeadRefused(f"the head is signed by a key that is not known here ({kid})")
        options = {"verify_signature": True, "verify_exp": False, "verify_iat": False, "verify_aud": False}
        said = jwt.decode(signed, keys[kid], algorithms=["EdDSA"], options=options)  # type: ignore[arg-type]
        return msgspec.convert(said, shape)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError, msgspec.ValidationError) as error:
        raise HeadRefused(f"the head is not what was signed: {error}") from None


def _digest(data: bytes) -> str:
    return urlsafe_b64encode(sha256(data).digest()).rstrip(b"=").decode()


# The public keys of all heads, as long as there are heads of theirs


KEYS = "head-keys.json"
"""File in the engine's folder: a JWK Set (RFC 7517) of every key that has signed heads here. The published set drops a
rotated key after a while, and its heads must stay verifiable."""


def remember_keys(path: Path, published: Mapping[str, Any]) -> None:
    """Add the keys of a JWK Set (RFC 7517) to those in the file. Raises FileRefused."""
    try:
        known = json.loads(files.read_private(path))["keys"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        known = []
    held = {key.get("kid") for key in known}
    more = [dict(key) for key in published["keys"] if key["kid"] not in held]
    if more:
        files.write_private(path, json.dumps({"keys": known + more}).encode())


def read_keys(data: bytes) -> dict[str, Any]:
    """The Ed25519 keys of a JWK Set by their `kid`. Raises HeadRefused."""
    import jwt

    try:
        found = jwt.PyJWKSet.from_dict(json.loads(data))
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise HeadRefused(f"this is no set of keys (JWK Set): {error}") from None
    return {key.key_id: key.key for key in found.keys if key.key_id and key.key_type == "OKP"}


def claimed(heads: Iterable[str]) -> Iterator[tuple[Head, str]]:
    """What heads say, their signatures not looked at."""
    for signed in heads:
        with suppress(HeadRefused, msgspec.ValidationError):
            yield msgspec.convert(claims(signed), Head), signed


def last_true(heads: Sequence[str], keys: Keys) -> Head | None:
    """The head furthest on whose signature holds: what it covers is covered by its hash. Mostly the last."""
    for head, signed in sorted(claimed(heads), key=lambda one: -one[0].seq):
        try:
            read_head(signed, keys)
        except HeadRefused:
            continue
        return head
    return None


def heads_in(folder: Path) -> list[str]:
    """The heads that lie with a journal."""
    try:
        return (folder / HEADS).read_text("ascii", errors="replace").split()
    except FileNotFoundError:
        return []
