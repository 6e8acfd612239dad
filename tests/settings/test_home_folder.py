"""Where the engine's folder is: never where nobody would look for keys, and without a name or a HOME it is said so."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import httpx
import pytest

from hatchway.api.cli.host import given_path
from hatchway.engine.base.errors import RuntimeUnavailable, SettingRefused
from hatchway.engine.instances.apptainer.calls import Calls
from hatchway.engine.settings.home import expanded, home_folder, user_folder
from tests.support.command import HATCHWAY
from tests.support.fakes import ROOT
from tests.support.processes import EngineProcess

NAMELESS = 54321
AS_NAMELESS = (
    *("setpriv", f"--reuid={NAMELESS}", f"--regid={NAMELESS}", "--clear-groups"),
    # Only so that it may read this checkout and its Python, wherever they are.
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
)


def command(
    *arguments: str, where: Path, before: tuple[str, ...] = (), **environ: str
) -> subprocess.CompletedProcess[str]:
    """A command with this environment and no other."""
    return subprocess.run(
        [*before, *HATCHWAY, *arguments],
        cwd=where,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT / ".packages"),
            "PYTHONDONTWRITEBYTECODE": "1",
            **environ,
        },
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.process
@pytest.mark.parametrize(("home", "words"), [("", "HOME is empty"), (".", "HOME is '.'"), ("~/x", "no path from /")])
@pytest.mark.parametrize(
    "arguments", [("engine", "start", "--port", "0"), ("config", "set", "port", "1"), ("key", "list")]
)
def test_a_home_that_is_no_path(tmp_path: Path, home: str, words: str, arguments: tuple[str, ...]) -> None:
    """Empty or relative, it is refused with the way out, and nothing is written below the folder one stands in, nor at
    the root."""
    was = os.path.exists("/.hatchway")
    done = command(*arguments, where=tmp_path, HOME=home)
    assert done.returncode == 1
    assert words in done.stderr
    assert "set HATCHWAY_HOME" in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert os.listdir(tmp_path) == []
    assert os.path.exists("/.hatchway") == was


@pytest.mark.process
@pytest.mark.mount
def test_a_user_without_a_name(tmp_path: Path) -> None:
    """A container's user by number: with HATCHWAY_HOME the engine starts, keys sign in and every command works; only
    instances want what the system does not know. Without a HOME that is said, and no traceback."""
    tmp_path.chmod(0o755)
    home = tmp_path / "own"
    home.mkdir()
    os.chown(home, NAMELESS, NAMELESS)

    def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return command(*arguments, where=home, before=AS_NAMELESS, **environ)

    done = run("config", "list")
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert f"the user {NAMELESS} has no entry" in done.stderr
    named = {"HATCHWAY_HOME": str(home / "h")}
    assert run("config", "list", **named).returncode == 0
    assert f"User={NAMELESS}\n" in run("engine", "unit", "--system", **named).stdout
    assert run("config", "set", "volume_roots", "~/x", **named).returncode == 1
    engine = EngineProcess(home / "h")
    more = {"PYTHONDONTWRITEBYTECODE": "1", "HATCHWAY_REGISTRIES": "docker.io"}
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / ".packages"), **more, **named}
    with engine.log_path.open("wb") as log:
        started = subprocess.Popen(
            [*AS_NAMELESS, *HATCHWAY, "engine", "start", "--port", "0"], env=environ, cwd=home, stdout=log, stderr=log
        )
    engine._process = started
    try:
        engine.wait_ready()
        assert httpx.get(f"{engine.url}/readyz").status_code == 200
        assert run("login", **named).returncode == 0
        done = run("instance", "start", "docker://x/y", **named)
        assert done.returncode == 1
        assert f"user {NAMELESS} had no entry" in done.stderr
    finally:
        engine.close()


@pytest.mark.mount
def test_another_users_home(tmp_path: Path) -> None:
    """Root with another's HOME (sudo): no folder is made there, and the way out is named. HATCHWAY_HOME is obeyed."""
    theirs = tmp_path / "alice"
    theirs.mkdir()
    os.chown(theirs, NAMELESS, NAMELESS)
    with pytest.raises(SettingRefused, match=f"belongs to the user {NAMELESS} and not to 0.*sudo -H.*HATCHWAY_HOME"):
        home_folder({"HOME": str(theirs)})
    assert home_folder({"HOME": str(theirs), "HATCHWAY_HOME": str(theirs / "x")}) == theirs / "x"
    os.chown(theirs, 0, 0)
    assert home_folder({"HOME": str(theirs)}) == theirs / ".hatchway"


def test_what_a_tilde_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a setting, a flag or HATCHWAY_HOME: HOME's folder or a user's; where there is none it is told in words."""
    assert expanded("~/x", {"HOME": "/home/a"}) == Path("/home/a/x")
    assert expanded("~root/x", {}) == Path("/root/x")
    assert expanded("a/~/x", {"HOME": ""}) == Path("a/~/x")
    assert user_folder({}) == Path("~").expanduser()
    monkeypatch.setenv("HOME", "")
    with pytest.raises(SettingRefused, match=r"~/key\.pem: HOME is empty"):
        given_path("~/key.pem")
    with pytest.raises(SettingRefused, match="no user 'nobody-of-that-name'"):
        given_path("~nobody-of-that-name/key.pem")


def test_the_runtime_waits_for_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine whose user has no entry has the platform all the same, which refuses in words."""
    monkeypatch.setattr(os, "geteuid", lambda: NAMELESS)
    calls = Calls()
    with pytest.raises(RuntimeUnavailable, match=f"user {NAMELESS} had no entry"):
        _ = calls.program
