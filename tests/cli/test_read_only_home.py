"""A home that takes no file: the command does its work all the same, and leaves no session behind (E28)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import completed
from tests.support.fakes import key_file
from tests.support.processes import EngineProcess, running_engine

pytestmark = [pytest.mark.process, pytest.mark.mount]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EngineProcess]:
    with running_engine(tmp_path / "hatchway") as running:
        yield running


@pytest.fixture
def away(tmp_path: Path, engine: EngineProcess) -> EngineProcess:
    """The command on a folder that can be written until it is `sealed`, with the engine's key beside it."""
    other = EngineProcess(tmp_path / "away" / "hatchway")
    other.home.parent.mkdir()
    private = key_file(tmp_path / "key.pem", (engine.home / "private-key.pem").read_bytes())
    other.environ |= {"HATCHWAY_URL": engine.url, "HATCHWAY_KEY": str(private)}
    return other


@pytest.fixture
def sealed(away: EngineProcess) -> Iterator[Path]:
    """What the folder lies in, mounted so that nothing in it can be written once it is remounted."""
    place = away.home.parent
    subprocess.run(["mount", "--bind", str(place), str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def seal(place: Path) -> None:
    subprocess.run(["mount", "-o", "remount,bind,ro", str(place)], check=True)


def run(engine: EngineProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    return completed(engine.environ, *arguments)


def sessions(engine: EngineProcess) -> set[str]:
    return {row["session"] for row in json.loads(engine.command("session", "list", "--json"))}


def test_what_is_not_kept_is_logged_out(engine: EngineProcess, away: EngineProcess, sealed: Path) -> None:
    """E28: the answer is printed and the exit code is 0; a word on standard error; no session stays."""
    seal(sealed)
    before = sessions(engine)
    for arguments in (["instance", "list", "--json"], ["session", "list", "--json"], ["engine", "ping", "--json"]):
        done = run(away, *arguments)
        assert (done.returncode, done.stderr.count("not kept")) == (0, 1), done.stderr
        assert json.loads(done.stdout) is not None
    failed = run(away, "instance", "show", "nobody")
    assert failed.returncode == 1
    assert "Read-only" in failed.stderr
    assert sessions(engine) == before


def test_to_sign_in_and_keep_nothing_is_a_failure(engine: EngineProcess, away: EngineProcess, sealed: Path) -> None:
    """E28: `login` is there to keep a token; where it can't it says so, fails, and leaves no session either."""
    seal(sealed)
    before = sessions(engine)
    done = run(away, "login")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Read-only file system" in done.stderr
    assert sessions(engine) == before


def test_a_session_of_before_lives_on(engine: EngineProcess, away: EngineProcess, sealed: Path) -> None:
    """E28: a token that was stored while the folder could be written is used, renewed, and not logged out."""
    kept = json.loads(run(away, "engine", "ping", "--json").stdout)["session"]
    stored = away.home / "connection-token"
    aged = json.loads(stored.read_bytes())
    aged["received"] -= aged["lifetime"] * 0.75
    stored.write_text(json.dumps(aged))
    seal(sealed)
    for _ in range(2):
        done = run(away, "engine", "ping", "--json")
        assert (json.loads(done.stdout)["session"], done.stderr) == (kept, "")
    assert kept in sessions(engine)
    done = run(away, "logout")
    assert done.stdout == f"signed out of {engine.url}\n"
    assert f"the token lets nobody in any more, and stays: {stored} can't be removed: Read-only" in done.stderr
    assert kept not in sessions(engine)
