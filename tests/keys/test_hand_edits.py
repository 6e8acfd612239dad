"""Hand edits of authorized_keys are seen at every use, and an editor at work harms nobody (section 2.4)."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hatchway.engine.base import files
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.keys import authorized_keys
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from tests.support.authorized_keys import LINE, A, B, granted, keys, put
from tests.support.fakes import Hands

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


@pytest.mark.parametrize(("age", "again"), [(0.0, True), (0.049, True), (-0.049, True), (0.06, False), (-1.0, False)])
def test_a_file_of_this_very_moment_is_read_again(
    keys: AuthorizedKeys, monkeypatch: pytest.MonkeyPatch, age: float, again: bool
) -> None:
    """Where the file system's clock ticks so slowly that a second change gets the first one's time stamp."""
    put(keys, f"{LINE} a\n")
    changed = keys.path.lstat().st_ctime
    monkeypatch.setattr(authorized_keys, "_stamp", lambda status: (1,))
    monkeypatch.setattr(authorized_keys, "SystemClock", lambda: Hands(changed + age))
    assert granted(keys) == {"a": FIVE}
    put(keys, f"{LINE} b\n")
    assert granted(keys) == {"b" if again else "a": FIVE}


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
def test_an_editor_at_work_takes_nobody_s_key(
    keys: AuthorizedKeys, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, bytes], None]
) -> None:
    """For a moment there is an empty file or none: a look just then must not end every session."""
    monkeypatch.setattr(authorized_keys, "_PAUSES", 2000)  # a busy machine may stop the editor for longer than 50 ms
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


class Editor:
    """Somebody who writes on whenever the engine waits for the file to stand still."""

    def __init__(self, path: Path, *pieces: bytes) -> None:
        self.path, self.pieces, self.waits = path, list(pieces), 0

    def sleep(self, seconds: float) -> None:
        self.waits += 1
        if self.pieces:
            self.path.write_bytes(self.pieces.pop(0))


def edited(keys: AuthorizedKeys, monkeypatch: pytest.MonkeyPatch, *pieces: bytes) -> Editor:
    """The file with nobody's key in it, looked at when the first of the pieces is there."""
    put(keys, b"# nobody\n")
    assert keys.entries() == ()
    editor = Editor(keys.path, *pieces)
    monkeypatch.setattr(time, "sleep", editor.sleep)
    editor.sleep(0)
    editor.waits = 0
    return editor


def test_a_file_is_believed_once_it_stands_still(keys: AuthorizedKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of it, nothing, half of it again: none of these is what the editor leaves in the end."""
    whole = f"{LINE} a\n{B.openssh()} b\n".encode()
    editor = edited(keys, monkeypatch, whole[:500], b"", whole[:700], whole[:300], whole)
    assert granted(keys) == {"a": FIVE, "b": FIVE}
    assert editor.waits == 5
    assert granted(keys) == {"a": FIVE, "b": FIVE}


def test_nobody_waits_long_for_a_file_that_never_does(keys: AuthorizedKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    """After ten looks it is taken as it is."""
    editor = edited(keys, monkeypatch, *(f"{LINE} {number}\n".encode() for number in range(100)))
    assert granted(keys) == {"10": FIVE}
    assert editor.waits == 10


def test_a_file_put_in_place_whole_is_believed_at_once(keys: AuthorizedKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever renames a new file over the old one, as we do, has written it; an empty one may be an editor's."""
    editor = edited(keys, monkeypatch, b"# still nobody\n")
    assert keys.entries() == ()
    editor.waits = 0
    for content, waits in ((f"{LINE} a\n".encode(), 0), (b"", 10)):
        files.write_private(keys.path, content)
        assert bool(keys.entries()) == bool(content)
        assert editor.waits == waits


def test_a_file_that_was_never_there_is_not_waited_for(keys: AuthorizedKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new engine has no keys yet, and no reason to look twice."""
    monkeypatch.setattr(time, "sleep", None)
    assert keys.version() == 1
    assert keys.entries() == ()
    assert keys.version() == 1


def test_the_version_changes_with_the_content_alone(keys: AuthorizedKeys) -> None:
    """What is kept by it holds while the file says the same, though it was written again."""
    put(keys, f"{LINE} a\n")
    version = keys.version()
    put(keys, f"{LINE} a\n")
    assert keys.version() == version
    put(keys, f"{LINE} b\n")
    assert keys.version() == version + 1
    keys.path.chmod(0o640)
    assert keys.version() == -1
    keys.path.chmod(0o600)
    assert keys.version() == version + 1
