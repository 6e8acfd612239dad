"""New keys for the engine itself: the RSA key it signs in with, and the Ed25519 key that signs its tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from hatchway.engine.base import file_locks, files
from hatchway.engine.base.clock import Clock
from hatchway.engine.base.errors import EngineUnavailable, KeyRefused, Refusal
from hatchway.engine.base.permissions import MASTER
from hatchway.engine.base.text import counted
from hatchway.engine.keys import key_edits, keys
from hatchway.engine.keys.key_edits import Edit
from hatchway.engine.keys.key_lines import known_lines
from hatchway.engine.keys.keys import PublicKey
from hatchway.engine.keys.own_keys import OLD_TOKEN_KEY, OWN, PRIVATE_KEY, TOKEN_KEY, make_next_key, take_next_key
from hatchway.statecharts.session import LONGEST_LIFETIME

Editor = Callable[[Edit[Any]], Any]
"""Makes an edit of authorized_keys, wherever it is kept, and returns what the edit did."""


def rotate_engine_key(home: Path, edit: Editor) -> tuple[str, str]:
    """Replace private-key.pem; returns the old and the new identity. The running engine must then be told.

    `edit` changes authorized_keys, where it is kept. Raises EngineUnavailable where there is no key yet. In this order
    a crash never leaves the engine without its key, nor a new one authorized that is not on the disk.
    """
    path = home / PRIVATE_KEY
    files.make_private_dir(home)
    with file_locks.locked(home / "rotation.lock"):
        old = keys.read_private_key(_read(path)).identity
        made = make_next_key(home)
        edit(partial(_with, key=made, like=old))
        take_next_key(home)
        try:
            edit(partial(_without, identity=old))
        except Refusal as refused:  # a second rotation would replace the new key, and leave the old one authorized
            raise type(refused)(
                f"{refused.detail}; the engine has its new key, but the old one is still authorized: remove it by"
                f" `hatchway key unregister {old} --force`, then `hatchway engine reload`",
                cause=refused.cause,
            ) from None
    return old, made.identity


def _with(data: bytes, key: PublicKey, like: str) -> tuple[bytes, Any]:
    """Authorizes the engine's key, under the comment that the one of the identity `like` has."""
    comments = (line.entry.comment for line in known_lines(data) if line.entry and line.entry.key.identity == like)
    return key_edits.register(data, key, (MASTER,), next(comments, OWN), own=True)


def _without(data: bytes, identity: str) -> tuple[bytes, None]:
    if any(line.key and line.key.identity == identity for line in known_lines(data)):
        data, _ = key_edits.unregister(data, identity, force=True)
    return data, None


def rotate_token_key(home: Path, clock: Clock, *, force: bool = False) -> None:
    """Replace token-key.pem; the old public key stays beside it until the last token it signed has ended.

    Raises KeyRefused while the key before still verifies tokens, unless `force` gives those up.
    """
    path, kept = home / TOKEN_KEY, home / OLD_TOKEN_KEY
    files.make_private_dir(home)
    with file_locks.locked(home / "rotation.lock"):
        current, rotated_at = _read(path), kept.stat().st_mtime if kept.exists() else 0.0
        made, public = next_token_key(current, rotated_at, clock.wall(), force=force)
        files.write_private(kept, public, overwrite=True)
        files.write_private(path, made, overwrite=True)


def next_token_key(current: bytes, rotated_at: float, now: float, *, force: bool = False) -> tuple[bytes, bytes]:
    """A new token key and the public half of the one it replaces, both PEM; times in epoch seconds.

    Raises KeyRefused while the key that was replaced at `rotated_at` verifies tokens, unless `force` gives those up.
    """
    old, left = keys.read_token_key(current), rotated_at + LONGEST_LIFETIME - now
    if not force and left > 0:
        raise KeyRefused(
            "the token key before this one still verifies tokens, for at most "
            f"{counted(int(left // 60) + 1, 'minute')}; to end them now, add --force",
            cause="rotating",
        )
    public = old.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return keys.token_key_pem(keys.generate_token_key()), public


def _read(path: Path) -> bytes:
    try:
        return files.read_private(path)
    except FileNotFoundError:
        raise EngineUnavailable(f"{path} is missing: it is made at the engine's first start") from None
