"""Hand edits of authorized_keys are seen at every use, and an editor at work harms nobody (section 2.4)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from hatchway.engine.base import files
from hatchway.engine.base.clock import SystemClock
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from tests.support.authorized_keys import LINE, A, B, granted, keys, put

__all__ = ["keys"]


class EditorsClock:
    """The host's clock, or one that stands still, where an editor writes on whenever the engine waits for it."""

    def __init__(self, now: float | None = None) -> None:
        self.now, self.pauses = now, 0
        self.writes: list[Callable[[], object]] = []

    def wall(self) -> float:
        return time.time() if self.now is None else self.now

    def pause(self, seconds: float) -> None:
        self.pauses += 1
        if self.writes:
            self.writes.pop(0)()


class PatientClock(SystemClock):
    """The host's clock, whose pauses last until an editor has written on, for two seconds at most: on a busy machine
    one may be stopped for longer than our 50 ms."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pause(self, seconds: float) -> None:
        latest = time.monotonic() + 2
        super().pause(seconds)
        while time.monotonic() < latest and not (self.path.exists() and self.path.stat().st_size):
            super().pause(0.001)


@contextmanager
def opened(path: Path) -> Iterator[list[object]]:
    """How often this process opens a file meanwhile."""
    times: list[object] = []
    _WATCHED[str(path)] = times
    try:
        yield times
    finally:
        del _WATCHED[str(path)]


_WATCHED: dict[str, list[object]] = {}


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and str(arguments[0]) in _WATCHED:
        _WATCHED[str(arguments[0])].append(arguments)


sys.addaudithook(_watch)


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


def test_an_unchanged_file_is_not_read_again(keys: AuthorizedKeys) -> None:
    """A look at a file that settled is one lstat."""
    put(keys, LINE)
    time.sleep(0.06)
    version = keys.version()
    with opened(keys.path) as times:
        assert keys.find(A.identity) is not None
        assert keys.version() == version
    assert not times


@pytest.fixture
def coarse(tmp_path: Path) -> Iterator[Path]:
    """A folder of a file system whose time stamps are those of the kernel's last tick, as many are; newer kernels tell
    changes apart on ext4, XFS, Btrfs and tmpfs."""
    folder = tmp_path / "coarse"
    folder.mkdir()
    subprocess.run(["mount", "-t", "ramfs", "-o", "mode=700", "ramfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.mount
@pytest.mark.parametrize(("age", "again"), [(0.0, True), (0.049, True), (-0.049, True), (0.06, False), (-1.0, False)])
def test_a_file_of_this_very_moment_is_read_again(coarse: Path, age: float, again: bool) -> None:
    """A change may have the time stamp of the one before it, which was seen when it was `age` seconds old."""
    stamp, clock = None, EditorsClock(0.0)
    keys = AuthorizedKeys(coarse / "authorized_keys", clock=clock)
    while stamp is None or keys.path.lstat().st_ctime_ns != stamp.st_ctime_ns:
        put(keys, f"{LINE} a\n")
        stamp = keys.path.lstat()
        clock.now = stamp.st_ctime + age
        assert granted(keys) == {"a": FIVE}
        keys.path.write_bytes(f"{LINE} b\n".encode())
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
def test_an_editor_at_work_takes_nobody_s_key(tmp_path: Path, write: Callable[[Path, bytes], None]) -> None:
    """For a moment there is an empty file or none: a look just then must not end every session."""
    path = tmp_path / "authorized_keys"
    keys = AuthorizedKeys(path, clock=PatientClock(path))
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


def edited(path: Path, *pieces: bytes) -> tuple[AuthorizedKeys, EditorsClock]:
    """The file with nobody's key in it, looked at when the first of the pieces is there."""
    clock = EditorsClock()
    keys = AuthorizedKeys(path, clock=clock)
    put(keys, b"# nobody\n")
    assert keys.entries() == ()
    path.write_bytes(pieces[0])
    clock.pauses, clock.writes = 0, [partial(path.write_bytes, piece) for piece in pieces[1:]]
    return keys, clock


def test_a_file_is_believed_once_it_stands_still(tmp_path: Path) -> None:
    """Half of it, nothing, half of it again: none of these is what the editor leaves in the end."""
    whole = f"{LINE} a\n{B.openssh()} b\n".encode()
    keys, clock = edited(tmp_path / "authorized_keys", whole[:500], b"", whole[:700], whole[:300], whole)
    assert granted(keys) == {"a": FIVE, "b": FIVE}
    assert clock.pauses == 5
    assert granted(keys) == {"a": FIVE, "b": FIVE}


def test_nobody_waits_long_for_a_file_that_never_does(tmp_path: Path) -> None:
    """After ten looks it is taken as it is."""
    pieces = (f"{LINE} {number}\n".encode() for number in range(100))
    keys, clock = edited(tmp_path / "authorized_keys", *pieces)
    assert granted(keys) == {"10": FIVE}
    assert clock.pauses == 10


def test_a_file_put_in_place_whole_is_believed_at_once(tmp_path: Path) -> None:
    """Whoever renames a new file over the old one, as we do, has written it; an empty one may be an editor's."""
    keys, clock = edited(tmp_path / "authorized_keys", b"# still nobody\n")
    assert keys.entries() == ()
    clock.pauses = 0
    for content, pauses in ((f"{LINE} a\n".encode(), 0), (b"", 10)):
        files.write_private(keys.path, content)
        assert bool(keys.entries()) == bool(content)
        assert clock.pauses == pauses


def test_a_file_that_was_never_there_is_not_waited_for(tmp_path: Path) -> None:
    """A new engine has no keys yet, and no reason to look twice."""
    keys = AuthorizedKeys(tmp_path / "authorized_keys", clock=(clock := EditorsClock()))
    assert keys.version() == 1
    assert keys.entries() == ()
    assert keys.version() == 1
    assert clock.pauses == 0


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
