"""New keys for the engine itself: the RSA key it signs in with, and the Ed25519 key that signs its tokens."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from engine import files
from engine.clock import Clock
from engine.errors import EngineUnavailable, KeyRefused
from engine.trust import keys
from engine.trust.authorized_keys import AuthorizedKeys
from engine.trust.permissions import MASTER
from statecharts.session import LONGEST_LIFETIME


def rotate_engine_key(home: Path, keys_in: Path | None = None) -> tuple[str, str]:
    """Replace private-key.pem; returns the old and the new identity. The running engine must then be told.

    `keys_in` is the folder of authorized_keys where it isn't `home`. Raises EngineUnavailable where there is no key
    yet. In this order a crash never leaves the engine without its key.
    """
    path, authorized = home / "private-key.pem", AuthorizedKeys((keys_in or home) / "authorized_keys")
    files.make_private_dir(home)
    with files.locked(home / "rotation.lock"):
        old = keys.read_private_key(_read(path)).identity
        made = keys.generate_key()
        authorized.register(made.public, (MASTER,), comment="engine", own=True)
        files.write_private(path, made.pem(), overwrite=True)
        if authorized.find(old) is not None:
            authorized.unregister(old, force=True)
    return old, made.identity


def rotate_token_key(home: Path, clock: Clock, *, force: bool = False) -> None:
    """Replace token-key.pem; the old public key stays beside it until the last token it signed has ended.

    Raises KeyRefused while the key before still verifies tokens, unless `force` gives those up.
    """
    path, kept = home / "token-key.pem", home / "token-key-old.pub"
    files.make_private_dir(home)
    with files.locked(home / "rotation.lock"):
        old = keys.read_token_key(_read(path))
        if not force and kept.exists() and (left := kept.stat().st_mtime + LONGEST_LIFETIME - clock.wall()) > 0:
            raise KeyRefused(
                f"the token key before this one still verifies tokens, for at most {int(left // 60) + 1} minutes;"
                " to end them now, add --force",
                cause="rotating",
            )
        public = old.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        files.write_private(kept, public, overwrite=True)
        files.write_private(path, keys.token_key_pem(keys.generate_token_key()), overwrite=True)


def _read(path: Path) -> bytes:
    try:
        return files.read_private(path)
    except FileNotFoundError:
        raise EngineUnavailable(f"{path} is missing: it is made at the engine's first start") from None
