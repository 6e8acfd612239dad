"""Apptainer for real where the user's home takes no files: what the runtime keeps lies in the engine's folder."""

from __future__ import annotations

import os
import pwd
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from hatchway.engine.instances.apptainer.calls import Calls, takes_files
from tests.support.containers import Gate, Place, place

__all__ = ["place"]

AS_ORDINARY_USER = True
pytest_plugins = ["tests.support.ordinary_user"]
pytestmark = pytest.mark.apptainer

MakeHome = Callable[[str], Path]


@pytest.fixture
def make_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeHome:
    """Gives the user a home of a kind, as /etc/passwd would tell it."""

    def make(kind: str) -> Path:
        home = Path("/nonexistent") if kind == "missing" else tmp_path / "svc"
        if kind != "missing":
            home.mkdir()
        if kind == "read-only":
            home.chmod(0o500)
        if kind == "its folder read-only":
            (home / ".apptainer").mkdir(mode=0o500)
        entry = list(pwd.getpwuid(os.geteuid()))
        entry[5] = str(home)
        monkeypatch.setattr("pwd.getpwuid", lambda uid: pwd.struct_passwd(entry))
        return home

    return make


@pytest.mark.parametrize("kind", ["missing", "read-only", "its folder read-only"])
async def test_a_home_that_takes_no_files(place: Place, make_home: MakeHome, kind: str) -> None:
    """A service account's instance starts, is listed, writes its log, ends, and is found by a later engine."""
    make_home(kind)
    place.platform = place.runtime()
    gate = Gate(place)
    request = place.request(command=["sh", "-c", f"echo served; {gate.wait}; exit 3"], volume=[gate.volume])
    started = await place.platform.start(request)
    assert Path(started.entry.log_out_path).is_relative_to(place.home / "instances" / ".apptainer")
    place.platform = place.runtime()
    adopted = await place.platform.adopt(request)
    gate.open()
    with trio.fail_after(60):
        assert await place.platform.wait_ended(request, adopted) == 3
    assert place.output(started) == "served\n"


def test_a_home_without_room(tmp_path: Path) -> None:
    """A home over its quota is no better than none."""
    assert takes_files(tmp_path / ".apptainer")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        took = takes_files(tmp_path / ".apptainer")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not took


def test_a_home_that_takes_files(make_home: MakeHome, tmp_path: Path) -> None:
    """There the runtime's folder is the usual one, and nothing is left of the try; once there is one of ours, that
    stays the one."""
    home = make_home("good")
    calls = Calls(tmp_path / "own")
    assert calls.config == home / ".apptainer"
    assert "APPTAINER_CONFIGDIR" not in calls.env
    assert list(home.iterdir()) == []
    assert not (tmp_path / "own").exists()
    (tmp_path / "own").mkdir(mode=0o700)
    assert Calls(tmp_path / "own").config == tmp_path / "own"
