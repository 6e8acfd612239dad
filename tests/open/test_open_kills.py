"""What is left of `hatchway open` where it, its ssh or sshd's child is killed or stopped: nothing but the engine."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.support.opening import Opening, opening
from tests.support.ssh_server import SshHost, command_line, ssh_hosts

pytestmark = [pytest.mark.process, pytest.mark.sshd]

NOTHING_WITHIN = 30.0
"""Seconds after which nothing may be left on either side."""


@asynccontextmanager
async def running(tmp_path: Path) -> AsyncIterator[tuple[SshHost, Path]]:
    """A host whose engine runs, with the session of somebody else."""
    host = SshHost(tmp_path)
    host.install_command()
    with ssh_hosts(host) as config:
        host.engine("engine", "start", "--detach", "--listen", "unix")
        host.engine("engine", "ping")
        yield host, config


def is_stopped(pid: int) -> bool:
    """Whether a process is gone, or a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


async def nothing_left(host: SshHost, one: Opening, before: list[int]) -> None:
    """On both sides: processes, sockets, files, codes, addresses of the engine, which goes on with its sessions."""
    with trio.fail_after(NOTHING_WITHIN):
        while not (
            one.private_folders == []
            and all(map(is_stopped, before))
            and one.below() == []
            and host.children() == []
            and json.loads(host.engine("engine", "address", "list", "--json")) == []
            and json.loads(host.engine("engine", "status", "--json"))["codes"] == 0
        ):
            await trio.sleep(0.2)
    assert json.loads(host.engine("engine", "status", "--json"))["sessions"] >= 1
    assert "answered" in host.engine("engine", "ping")


async def connecting(one: Opening) -> None:
    """While ssh dials: its private folder is there."""
    with trio.fail_after(30):
        while not one.private_folders:
            await trio.sleep(0.005)


async def asked(one: Opening) -> None:
    """While the code is out."""
    await one.link()


async def held(one: Opening) -> None:
    """While the tunnel is held."""
    await one.sign_in()


STEPS = {"dialling": connecting, "the code is out": asked, "held": held}


@pytest.mark.parametrize("step", STEPS)
async def test_kill_9_of_the_command(tmp_path: Path, step: str) -> None:
    """Nothing of it cleans up, and nothing is left all the same."""
    async with running(tmp_path) as (host, config), opening(tmp_path / "laptop", "lab", config) as one:
        await STEPS[step](one)
        before = one.below()
        one.kill()
        await nothing_left(host, one, before)


@pytest.mark.parametrize("step", STEPS)
async def test_a_polite_end(tmp_path: Path, step: str) -> None:
    """SIGTERM, and the terminal's hang-up, close it in order."""
    async with running(tmp_path) as (host, config), opening(tmp_path / "laptop", "lab", config) as one:
        await STEPS[step](one)
        before = one.below()
        os.kill(one.pid, signal.SIGTERM)
        assert await one.screen.wait_end() == (0 if step == "held" else 1)
        await nothing_left(host, one, before)


def _ssh(host: SshHost, one: Opening) -> list[int]:
    """The command's ssh that holds the connection."""
    return [
        pid for pid in one.below() if b"\0-M\0" in command_line(pid) and not command_line(pid).startswith(b"/bin/sh")
    ]


def _sshd(host: SshHost, one: Opening) -> list[int]:
    """sshd's child of that connection."""
    return [pid for pid in host.children() if command_line(pid).startswith(b"sshd")]


LOSSES = {"kill -9 of its ssh": _ssh, "kill -9 of sshd's child": _sshd}


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_lost_connection_is_dialled_again(tmp_path: Path, loss: str) -> None:
    """On the same local port: the console goes on with its session, and a request meanwhile waits."""
    async with running(tmp_path) as (host, config), opening(tmp_path / "laptop", "lab", config) as one:
        url = await one.sign_in()
        lost = LOSSES[loss](host, one)
        assert lost
        for pid in lost:
            os.kill(pid, signal.SIGKILL)
        await one.screen.wait_for("the connection was lost")
        assert await one.inspect(url) == 200
        await one.screen.wait_for("connected again")
        assert await one.close() == 0
        await nothing_left(host, one, lost)


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_connection_that_is_lost_before_the_answer(tmp_path: Path, loss: str) -> None:
    """Ends it with a sentence, exit code 1, and nothing left."""
    async with running(tmp_path) as (host, config), opening(tmp_path / "laptop", "lab", config) as one:
        await one.link()
        for pid in LOSSES[loss](host, one):
            os.kill(pid, signal.SIGKILL)
        assert await one.screen.wait_end() == 1
        assert "the connection to lab was lost: run the command again" in one.screen.text
        await nothing_left(host, one, [])


SLEEPERS: dict[str, Callable[[SshHost, Opening], list[int]]] = {
    "command": lambda host, one: [one.pid],
    "ssh": _ssh,
    "sshd": _sshd,
}


async def test_a_laptop_that_sleeps(tmp_path: Path) -> None:
    """Stopped for long, the engine drops its address; awake, it dials again on the same port with the same session.

    The command, its ssh or sshd's child is stopped, each of a host of its own: they wait at the same time.
    """
    async with trio.open_nursery() as nursery:
        for stopped in SLEEPERS:
            (tmp_path / stopped).mkdir()
            nursery.start_soon(_sleeps, tmp_path / stopped, stopped)


async def _sleeps(folder: Path, stopped: str) -> None:
    async with running(folder) as (host, config), opening(folder / "laptop", "lab", config) as one:
        url = await one.sign_in()
        pids = SLEEPERS[stopped](host, one)
        assert pids
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        with trio.fail_after(NOTHING_WITHIN):
            if stopped == "command":
                while json.loads(await trio.to_thread.run_sync(host.engine, "engine", "address", "list", "--json")):
                    await trio.sleep(0.5)
            else:
                await one.screen.wait_for("the connection was lost")
        for pid in pids:
            if not is_stopped(pid):
                os.kill(pid, signal.SIGCONT)
        await one.screen.wait_for("connected again")
        assert await one.inspect(url) == 200
        assert await one.close() == 0
        await nothing_left(host, one, [])


async def test_an_engine_that_is_stopped_ends_it(tmp_path: Path) -> None:
    """It is not started again behind its operator's back."""
    async with running(tmp_path) as (host, config), opening(tmp_path / "laptop", "lab", config) as one:
        await one.sign_in()
        host.engine("engine", "stop")
        assert await one.screen.wait_end() == 1
        assert "the engine on lab no longer runs" in one.screen.text
        assert one.private_folders == []
        assert host.children() == []


async def test_two_tunnels_and_a_stop(tmp_path: Path) -> None:
    """The same host opened twice: each console has a session of its own. `--stop` spares what others use."""
    async with running(tmp_path) as (_, config), opening(tmp_path / "one", "lab", config, "--stop") as one:
        first = await one.sign_in()
        async with opening(tmp_path / "two", "lab", config) as two:
            second = await two.sign_in()
            assert first != second
            assert one.session["token"] != two.session["token"]
            assert await one.inspect(first) == await two.inspect(second) == 200
            assert await one.close() == 0
            assert "goes on: 2 other sessions, 1 other tunnel" in one.screen.text
            assert await two.inspect(second) == 200
            assert await two.close() == 0


async def test_stop_ends_an_engine_that_nobody_else_uses(tmp_path: Path) -> None:
    """Ctrl-C, with `--stop`."""
    host = SshHost(tmp_path)
    host.install_command()
    with ssh_hosts(host) as config:
        async with opening(tmp_path / "laptop", "lab", config, "--stop") as one:
            await one.sign_in()
            assert await one.close() == 0
            assert "the engine on lab was stopped" in one.screen.text
        assert not (host.home / ".hatchway/operator.sock").exists()


async def test_a_no_and_a_code_that_nobody_claims(tmp_path: Path) -> None:
    """Exit code 1; an engine that was started for it is stopped again."""
    host = SshHost(tmp_path)
    host.install_command()
    with ssh_hosts(host) as config:
        async with opening(tmp_path / "laptop", "lab", config) as one:
            await one.sign_in(b"n\n")
            assert await one.screen.wait_end() == 1
        assert not (host.home / ".hatchway/operator.sock").exists()
        async with opening(tmp_path / "laptop", "lab", config) as one:
            await one.link()
            assert await one.screen.wait_end() == 1
            assert "pairing expired" in one.screen.text
        assert not (host.home / ".hatchway/operator.sock").exists()


async def test_a_browser_that_can_not_be_opened(tmp_path: Path) -> None:
    """Said at once, with what does it otherwise: a link and a QR code. Ended while the code is out, it stops the engine
    that was started for it."""
    host = SshHost(tmp_path)
    host.install_command()
    with ssh_hosts(host) as config:
        async with opening(tmp_path / "laptop", "lab", config, BROWSER="/bin/false %s") as one:
            assert await one.screen.wait_end() == 1
            assert "hatchway open --no-browser lab" in one.screen.text
        assert not (host.home / ".hatchway/operator.sock").exists()
        async with opening(tmp_path / "laptop", "lab", config, "--no-browser", LANG="C.UTF-8") as one:
            await one.screen.wait_for("/#pair=")
            await one.screen.wait_for("\u2580")
            assert await one.close() == 1
        assert not (host.home / ".hatchway/operator.sock").exists()
