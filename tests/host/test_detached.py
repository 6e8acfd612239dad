"""An engine that is started in the background: `hatchway engine start --detach`."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from hatchway.api.host import detached
from hatchway.api.host.detached import UserService, start_detached
from hatchway.engine.base.errors import EngineUnavailable
from tests.support.live_engine import command


async def test_three_at_once_on_a_new_folder(home: Path) -> None:
    """As a job array starts them: one engine runs, and all are told where, or once that it does, however often that was
    written."""
    told: list[tuple[int, str]] = []

    async def start() -> None:
        done = await command(home, "engine", "start", "--detach", "--port", "0", code=None)
        told.append((done.returncode, (done.stdout + done.stderr).decode()))

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(start)
    await command(home, "engine", "stop")
    started = {words for code, words in told if code == 0}  # those too whose own engine ended after another answered
    why = f"the engine did not start: another engine runs on {home}: stop it with `hatchway engine stop`\n"
    assert len(started) == 1
    assert started.pop().startswith("started at http://127.0.0.1:")
    assert {(code, words) for code, words in told if code} <= {(1, why)}


def program(folder: Path, name: str, script: str) -> None:
    """A program that stands in for one of systemd's."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o700)


@pytest.mark.parametrize(
    ("answer", "ended"),
    [
        ("echo 'Failed to connect to bus: Connection timed out' >&2; exit 1", False),
        ("exec sleep 60", False),
        ("echo active", False),
        ("echo activating; exit 3", False),
        ("echo inactive; exit 3", True),
        ("echo failed; exit 3", True),
    ],
)
def test_only_systemd_says_that_a_unit_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, ended: bool
) -> None:
    """An engine's new folder is removed for it: where systemd can't be asked, the engine may be starting."""
    program(tmp_path, "systemctl", answer)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(detached, "_UNIT_WAIT", 0.2 if "sleep" in answer else 60)
    monkeypatch.setattr(detached, "UNIT_LOOKS", 0.0)
    assert UserService("hatchway.service").has_ended() is ended


def test_an_engine_that_takes_its_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not said to have failed, and keeps its folder."""

    class Starting:
        def has_ended(self) -> bool:
            return False

    monkeypatch.setattr(detached, "START_WAIT", 0.1)
    monkeypatch.setattr(detached, "_in_own_session", lambda *arguments: Starting())
    with pytest.raises(EngineUnavailable, match=r"does not answer after .*engine\.log"):
        start_detached(home, (), lambda home: False)
    assert home.exists()
