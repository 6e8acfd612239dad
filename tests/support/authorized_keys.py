"""A file of authorized keys for one test, and three keys to put there."""

from __future__ import annotations

from pathlib import Path

import pytest

from hatchway.engine.base import files
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from tests.support.key_writers import pool

A, B, C, *_ = pool()
LINE = A.openssh()


@pytest.fixture
def keys(tmp_path: Path) -> AuthorizedKeys:
    """An empty file's place, in a private folder."""
    files.make_private_dir(tmp_path / "home")
    return AuthorizedKeys(tmp_path / "home" / "authorized_keys")


def put(keys: AuthorizedKeys, data: bytes | str) -> None:
    """Write the file as an editor would: in place."""
    keys.path.touch(0o600)
    keys.path.write_bytes(data if isinstance(data, bytes) else data.encode())


def granted(keys: AuthorizedKeys) -> dict[str, tuple[str, ...]]:
    """Permissions by comment."""
    return {entry.comment: entry.permissions for entry in keys.entries()}
