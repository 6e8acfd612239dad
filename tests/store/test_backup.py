"""A backup that was taken as the handbook says makes an engine that knows its keys and sessions."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from hatchway.engine.base.errors import FileRefused
from hatchway.engine.store.backup import back_up
from tests.support.command import process
from tests.support.processes import running_engine, sign_in

INSPECT = "/api/auth/inspect/"


@contextmanager
def lenient_umask() -> Iterator[None]:
    """What most users have: files that a program makes are readable for all, unless it sees to it."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


def backup(home: Path, copy: Path) -> subprocess.CompletedProcess[str]:
    with lenient_umask():
        return process("engine", "backup", str(copy), HATCHWAY_HOME=str(home))


@pytest.mark.process
def test_a_backup_of_a_running_engine(home: Path, tmp_path: Path) -> None:
    """Put back, it takes the token of before. Nothing in it is open to others."""
    copy = tmp_path / "copy"
    with running_engine(home) as engine, httpx.Client(base_url=engine.url) as client:
        bearer = {"Authorization": f"Bearer {sign_in(client)['token']}"}
        assert backup(home, copy).stdout == f"copied to {copy}\n"
        before = client.get(INSPECT, headers=bearer).json()
    for path in (copy, *copy.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    with running_engine(copy) as engine, httpx.Client(base_url=engine.url) as client:
        assert client.get(INSPECT, headers=bearer).json() == before


@pytest.mark.process
def test_a_backup_put_over_what_a_killed_engine_left(home: Path, tmp_path: Path) -> None:
    """SQLite would write the sessions of later into it, from the WAL that is there: the start is refused, in words that
    lead to a sound engine."""
    copy = tmp_path / "copy"
    with running_engine(home) as engine, httpx.Client(base_url=engine.url) as client:
        assert backup(home, copy).returncode == 0
        later = {"Authorization": f"Bearer {sign_in(client)['token']}"}
        engine.kill()
    shutil.copy(copy / "engine.db", home / "engine.db")
    refused = process("engine", "start", "--port", "0", HATCHWAY_HOME=str(home))
    assert refused.returncode == 1
    (mend,) = re.findall(r"with: (rm \S+)", refused.stderr)
    subprocess.run(shlex.split(mend), check=True)
    with running_engine(home) as engine, httpx.Client(base_url=engine.url) as client:
        assert client.get(INSPECT, headers=later).status_code == 401


@pytest.mark.process
def test_a_backup_of_a_stopped_engine(home: Path, tmp_path: Path) -> None:
    """What the engine has written last is in it too."""
    copy = tmp_path / "copy"
    with running_engine(home) as engine, httpx.Client(base_url=engine.url) as client:
        bearer = {"Authorization": f"Bearer {sign_in(client)['token']}"}
    assert backup(home, copy).returncode == 0
    with running_engine(copy) as engine, httpx.Client(base_url=engine.url) as client:
        assert client.get(INSPECT, headers=bearer).json()["valid"]


@pytest.mark.process
def test_nothing_is_written_over(home: Path, tmp_path: Path) -> None:
    """A folder that is there stays as it was, and the command says what to do."""
    (tmp_path / "copy").mkdir()
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "engine.lock").touch()
    done = backup(home, tmp_path / "copy")
    assert (done.returncode, done.stdout) == (1, "")
    assert "is there already: name a folder that is not" in done.stderr
    assert list((tmp_path / "copy").iterdir()) == []


@pytest.mark.parametrize("name", [None, "connection-token"])
def test_a_folder_that_is_no_engines_is_refused(tmp_path: Path, name: str | None) -> None:
    """A wrong HATCHWAY_HOME, or one where only commands ran: nothing is called a backup that holds no engine."""
    home = tmp_path / "home"
    home.mkdir()
    if name is not None:
        (home / name).touch()
    with pytest.raises(FileRefused, match=f"no engine has run on {home}"):
        back_up(home, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_folder_is_not_copied_into_itself(tmp_path: Path) -> None:
    """The copy would copy itself without an end."""
    home = tmp_path / "home"
    (home / "log").mkdir(parents=True)
    (home / "engine.lock").touch()
    for copy in (home / "copy", home / "log" / "copy"):
        with pytest.raises(FileRefused, match="name one outside of it"):
            back_up(home, copy)
        assert not copy.exists()


def test_a_copy_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """Half a backup is none: a database that can't be read ends it, and takes what was copied away."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "engine.lock").touch()
    (home / "engine.db").write_bytes(b"this is no database" * 1000)
    with pytest.raises(Exception, match="can't be read as Hatchway's store"):
        back_up(home, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
