"""Hand edits of authorized_keys are seen at every use, and an editor at work harms nobody (section 2.4)."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import files
from engine.trust.authorized_keys import AuthorizedKeys
from tests.authorized import LINE, A, keys, put

__all__ = ["keys"]


def test_a_missing_file_grants_nothing_and_comes_to_life(keys: AuthorizedKeys) -> None:
    """No file, a file, no file again: each is seen at the next look."""
    assert keys.find(A.identity) is None
    put(keys, LINE)
    assert keys.find(A.identity) is not None
    keys.path.unlink()
    assert keys.entries() == ()


def test_every_edit_is_seen_at_the_next_look(keys: AuthorizedKeys) -> None:
    """In place, of the same size, within one tick of the file system's clock."""
    for turn in range(60):
        name = ("SHELL", "AGENT")[turn % 2]
        put(keys, f'permissions="{name}" {LINE}\n')
        entry = keys.find(A.identity)
        assert entry is not None
        assert entry.permissions == (name,), turn


def test_an_unchanged_file_is_not_read_again(keys: AuthorizedKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at a file that settled is one lstat."""
    put(keys, LINE)
    time.sleep(0.06)
    version = keys.version()
    monkeypatch.setattr(files, "read_private", None)
    assert keys.find(A.identity) is not None
    assert keys.version() == version


def empty_first(path: Path, data: bytes) -> None:
    """Write as a shell or nano does."""
    with path.open("r+b", buffering=0) as file:
        file.truncate()
        time.sleep(0.002)
        file.write(data)


def move_first(path: Path, data: bytes) -> None:
    """Write as vim does: the old file becomes the backup, and a new one is written in its place."""
    path.rename(path.with_name("authorized_keys~"))
    time.sleep(0.002)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    time.sleep(0.002)
    os.write(fd, data)
    os.close(fd)


@pytest.mark.parametrize("write", [empty_first, move_first])
def test_an_editor_at_work_takes_nobody_s_key(keys: AuthorizedKeys, write: Callable[[Path, bytes], None]) -> None:
    """For a moment there is an empty file or none: a look just then must not end every session."""
    put(keys, f"{LINE}\n")
    assert keys.find(A.identity) is not None
    done = threading.Event()

    def edit() -> None:
        for turn in range(12):
            write(keys.path, f"{LINE}\n# {turn}\n".encode() + b"#" * turn)
            time.sleep(0.03)
        done.set()

    editor = threading.Thread(target=edit)
    editor.start()
    looks = 0
    while not done.is_set():
        assert keys.find(A.identity) is not None, looks
        looks += 1
    editor.join()
    assert looks > 10


def test_a_file_that_stays_empty_is_empty(keys: AuthorizedKeys) -> None:
    """An editor gets 50 ms; then nobody holds a key."""
    put(keys, LINE)
    assert keys.find(A.identity) is not None
    put(keys, b"")
    assert keys.find(A.identity) is None
