"""Lock files: one holder across processes, whoever dies (section 2.4; case D34)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hatchway.engine.base import file_locks, files

HOLD = """
import sys
from pathlib import Path
from hatchway.engine.base.file_locks import locked

with locked(Path(sys.argv[1])):
    print("held", flush=True)
    input()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A private folder."""
    files.make_private_dir(tmp_path / "home")
    return tmp_path / "home"


def test_what_a_holder_says_stays(folder: Path) -> None:
    """Whole and in place of what was said before, and a holder that says nothing leaves it."""
    for says in ("a longer word", "short", None):
        with file_locks.locked(folder / "lock", says=says):
            assert (folder / "lock").read_text() == f"{says or 'short'}\n"
    assert (folder / "lock").stat().st_mode & 0o777 == 0o600


def test_a_lock_is_held_by_one_and_freed_when_its_holder_dies(folder: Path) -> None:
    """A second holder is refused or waits, across descriptors; `kill -9` of the holder frees it."""
    held = sorted(os.listdir("/proc/self/fd"))
    with (
        file_locks.locked(folder / "lock"),
        pytest.raises(file_locks.LockHeld),
        file_locks.locked(folder / "lock", wait=False),
    ):
        pass
    assert sorted(os.listdir("/proc/self/fd")) == held
    hold = [sys.executable, "-c", HOLD, str(folder / "lock")]
    with subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as principal:
        assert principal.stdout is not None
        assert principal.stdout.readline() == b"held\n"
        with pytest.raises(file_locks.LockHeld), file_locks.locked(folder / "lock", wait=False):
            pass
        principal.kill()
    with file_locks.locked(folder / "lock", wait=False):
        pass


def test_a_lock_is_waited_for_unless_it_is_said_otherwise(folder: Path) -> None:
    """The second holder goes on when the first is done, and not before."""
    done, started = [], threading.Event()

    def second() -> None:
        started.set()
        with file_locks.locked(folder / "lock"):
            done.append("second")

    waiter = threading.Thread(target=second)
    with file_locks.locked(folder / "lock"):
        waiter.start()
        started.wait()
        time.sleep(0.02)
        done.append("first")
    waiter.join()
    assert done == ["first", "second"]
