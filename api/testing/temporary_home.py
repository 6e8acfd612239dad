"""The folder of an engine under test: private, in memory where that can be, and gone in the end."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hatchway.api.testing.people import Keys
from hatchway.engine.base import files
from hatchway.engine.base.permissions import MASTER
from hatchway.engine.keys.authorized_keys import AUTHORIZED_KEYS, AuthorizedKeys
from hatchway.engine.keys.keys import generate_key, read_public_half
from hatchway.engine.keys.own_keys import PRIVATE_KEY


def images_of(home: Path) -> Path:
    """Beside the engine's folder, which no image is taken from."""
    return home.parent / "images"


def prepare(home: Path, keys: Keys, kept: str) -> None:
    """The folder as it is at a start: the engine's own key and the test's key `kept`, and nothing else."""
    shutil.rmtree(home / "log", ignore_errors=True)
    shutil.rmtree(home / "instances", ignore_errors=True)
    keys.forget_all_but(kept)
    (home / AUTHORIZED_KEYS).unlink(missing_ok=True)
    for folder in (home / "instances", images_of(home)):
        files.make_private_dir(folder)
    (images_of(home) / "test.sif").touch()
    if not (home / PRIVATE_KEY).exists():
        files.write_private(home / PRIVATE_KEY, generate_key(2048).pem())
    own = files.read_private(home / PRIVATE_KEY)
    AuthorizedKeys(home / AUTHORIZED_KEYS).register(read_public_half(own), (MASTER,), own=True)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A private folder in memory, where there is such a place, that goes in the end. The process keeps its umask."""
    before = os.umask(0o077)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - mkdtemp makes it ours alone
    folder = Path(tempfile.mkdtemp(prefix="hatchway-test-", dir=memory))
    try:
        yield folder / "home"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.umask(before)
