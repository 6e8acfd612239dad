"""`hatchway instance ...` against a real engine and a real runtime."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from tests.support.containers import LONG, Gate, Place, living, new_name, place
from tests.support.live_engine import Live, command, live_engine, told
from tests.support.terminal import terminal

__all__ = ["place"]

AS_ORDINARY_USER = True
pytest_plugins = ["tests.support.ordinary_user"]
pytestmark = [pytest.mark.apptainer, pytest.mark.process]


@asynccontextmanager
async def engine(place: Place) -> AsyncIterator[Live]:
    async with live_engine(place.home, image_folders=(str(place.images),), volume_roots=(str(place.volumes),)) as at:
        yield at


async def test_a_commands_life(place: Place) -> None:
    """Started with all that can be asked here, listed, its log and exit code read by hand."""
    (place.volumes / "word").write_text("from outside\n")
    name = new_name()
    script = ["sh", "-c", 'cat /in; echo "$A"; echo oops >&2; exit 3']
    options = ["--name", name, "--env", "A=b c", "--volume", f"{place.volumes}/word:/in"]
    async with engine(place):
        done = await command(place.home, "instance", "start", "box.sif", *options, "--json", "--", *script)
        started = json.loads(done.stdout)
        assert (started["identity"], started["img"]) == (name, str(place.images / "box.sif"))
        followed = await command(place.home, "instance", "log", name, "--follow")
        assert followed.stdout == b"from outside\nb c\n"
        assert (await command(place.home, "instance", "log", name, "--stream", "err")).stdout == b"oops\n"
        (row,) = await told(place.home, "instance", "list")
        assert (row["identity"], row["env"]) == (name, ["A"])
        shown = (await command(place.home, "instance", "show", name)).stdout.decode()
        assert "sh -c cat /in;" in shown
        assert "requested_at" in shown
        stopped = await command(place.home, "instance", "stop", name, code=1)
        assert stopped.stderr.decode().splitlines() == [
            "this engine has no such instance that is live",
            "see which instances there are: hatchway instance list",
        ]
        assert (await told(place.home, "instance", "show", name))["exit_code"] == 3
        table = (await command(place.home, "instance", "list")).stdout.decode().splitlines()
        assert table[0].split() == ["NAME", "STATE", "WHY", "EXIT", "AGE", "IMAGE"]
        assert table[1].split()[:4] == [name, "stopped", "-", "3"]


async def test_a_stop(place: Place) -> None:
    """The command returns once the instance has ended."""
    name = new_name()
    async with engine(place):
        started = await command(place.home, "instance", "start", "box.sif", "--name", name, "--", "sleep", LONG)
        assert started.stdout.decode().splitlines()[0] == f"started {name}"
        assert (await command(place.home, "instance", "stop", name)).stdout.decode() == f"stopped {name}\n"
        silent = await command(place.home, "instance", "log", name)
        assert (silent.stdout, f"instance log {name} --stream err" in silent.stderr.decode()) == (b"", True)
        assert not living()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gone.sif"], "there is no such .sif image in the image folders"),
        (["docker://other.example/x"], "the registry other.example is not listed in the setting `registries`"),
        (["box.sif", "--name", ".."], "identity: must be 1 to 63 letters"),
        (["box.sif", "--fakeroot"], "fakeroot: is off: the setting `allow_fakeroot` allows it"),
        (["box.sif", "--cpu", "-1"], "cpu: must be a number of processors"),
    ],
)
async def test_refusals_in_words(place: Place, arguments: list[str], words: str) -> None:
    """The engine's own sentence on standard error, exit code 1, nothing on standard output."""
    async with engine(place):
        done = await command(place.home, "instance", "start", *arguments, code=1)
        assert done.stderr.decode().startswith(words)
        assert done.stdout == b""


async def test_a_followed_log_of_an_engine_that_stops(place: Place) -> None:
    """The instance runs on, so the command does not end as if its log had."""
    name, gate = new_name(), Gate(place)
    script = ["--volume", gate.volume, "--", "sh", "-c", f"echo begun; {gate.wait}"]
    async with engine(place) as at:
        await command(place.home, "instance", "start", "box.sif", "--name", name, *script)
        async with terminal("instance", "log", name, "--follow", home=place.home) as screen:
            await screen.wait_for("begun")
            at.engine.stopping.set()
            await screen.wait_for(f"may run on: hatchway instance show {name}")
            assert await screen.wait_end() == 1
        assert "the connection ended" in screen.text
        assert "https" not in screen.text
    gate.open()
    with trio.fail_after(60):
        while living():
            await trio.sleep(0.1)


async def test_progress_on_a_terminal(place: Place) -> None:
    """While somebody watches, the start says what it is doing; a log acts upon no terminal."""
    name = new_name()
    async with engine(place):
        arguments = ["box.sif", "--name", name, "--", "printf", "\\033[2Jred\\n"]
        async with terminal("instance", "start", *arguments, home=place.home) as screen:
            await screen.wait_for(f"{name}: starting")
            await screen.wait_for(f"started {name}")
            assert await screen.wait_end() == 0
        async with terminal("instance", "log", name, "--follow", home=place.home) as screen:
            assert await screen.wait_end() == 0
            assert screen.text == "\\x1b[2Jred\n"
        (row,) = json.loads((await command(place.home, "instance", "list", "--json")).stdout)
        assert row["identity"] == name
