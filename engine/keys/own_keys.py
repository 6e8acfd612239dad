"""The engine's own keys, made where there are none: the RSA key it signs in with, and the Ed25519 key of its tokens."""

from __future__ import annotations

from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from hatchway.engine.base import files
from hatchway.engine.base.clock import SystemClock
from hatchway.engine.base.errors import KeyRefused
from hatchway.engine.base.permissions import MASTER
from hatchway.engine.keys import keys
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.keys.keys import PublicKey

OLD_KEY_KEPT = 24 * 3600
"""Seconds a rotated token key still verifies: no token lasts longer (section 8)."""


PRIVATE_KEY, TOKEN_KEY, OLD_TOKEN_KEY = "private-key.pem", "token-key.pem", "token-key-old.pub"
"""The files' names."""

NEXT_KEY = "private-key-next.pem"
"""A new key until it is authorized; then it becomes `private-key.pem`."""

OWN = "engine"
"""Comment of an engine's own key."""


def load_own_key(home: Path, authorized: AuthorizedKeys) -> PublicKey:
    """The engine's own public key; at first start it is made, and authorized with MASTER (section 2.3)."""
    known = read_own_key(home)
    if known is not None:
        return known
    made = make_next_key(home)
    authorized.register(made, (MASTER,), comment=OWN, own=True)
    take_next_key(home)
    return made


def make_next_key(home: Path) -> PublicKey:
    """The key that is to become the engine's own, made where there is none yet.

    It is on the disk before it is authorized, and becomes `private-key.pem` after. So no line of authorized_keys is of
    a key that nobody has, and no engine is locked out of itself. Where a start or a rotation was killed in between, the
    next one goes on with the same key.
    """
    path = home / NEXT_KEY
    known = _read_public_half(path)
    if known is not None:
        return known
    made = keys.generate_key()
    files.write_private(path, made.pem())
    return made.public


def take_next_key(home: Path) -> None:
    """Make the key of `make_next_key` the engine's own."""
    files.move_private(home / NEXT_KEY, home / PRIVATE_KEY)


def read_own_key(home: Path) -> PublicKey | None:
    """The engine's own public key, None where there is none yet."""
    return _read_public_half(home / PRIVATE_KEY)


def _read_public_half(path: Path) -> PublicKey | None:
    try:
        return keys.read_public_half(files.read_private(path))
    except FileNotFoundError:
        return None


def make_own_key(home: Path) -> PublicKey:
    """The engine's own public key, made where there is none. The caller has to authorize it."""
    known = read_own_key(home)
    if known is not None:
        return known
    made = keys.generate_key()
    files.write_private(home / PRIVATE_KEY, made.pem(), overwrite=False)
    return made.public


def load_token_keys(home: Path) -> tuple[Ed25519PrivateKey, Ed25519PublicKey | None]:
    """The token key, made where there is none, and the public half of the one before, for as long as its tokens
    last."""
    path, old = home / TOKEN_KEY, home / OLD_TOKEN_KEY
    try:
        key = keys.read_token_key(files.read_private(path))
    except FileNotFoundError:
        key = keys.generate_token_key()
        try:
            files.write_private(path, keys.token_key_pem(key), overwrite=False)
        except FileExistsError:  # another engine that shares the folder was first
            key = keys.read_token_key(files.read_private(path))
    try:
        fresh = SystemClock().wall() - old.stat().st_mtime < OLD_KEY_KEPT
        return key, read_public_token_key(files.read_private(old)) if fresh else None
    except FileNotFoundError:
        return key, None


def read_public_token_key(data: bytes) -> Ed25519PublicKey:
    """The key in `token-key-old.pub`. Raises KeyRefused."""
    try:
        key: object = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise KeyRefused("token-key-old.pub is not an Ed25519 key: remove it")
    return key
