"""What is left of `hatchway open` where it, its ssh or sshd's child is killed or stopped: nothing but the engine."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

from tests.support.fakes import effort
from tests.support.opening import Opening, opening
from tests.support.ssh_server import SshHost, command_line, is_gone, keygen, reachable, ssh_hosts

pytestmark = [pytest.mark.process, pytest.mark.sshd]

NOTHING_WITHIN = 30.0
"""Seconds after which nothing may be left on either side."""

ASLEEP = min(60.0, 22.0 * effort())
"""Seconds that a process is stopped: longer than whatever waits for a sign of life, which are ssh (15 s), the command
(15 s) and the engine (20 s)."""


class Lab(NamedTuple):
    """A host whose engine runs, with a session of somebody else, and the configuration that knows it."""

    host: SshHost
    config: Path
    engine: int
    token: str

    async def is_untouched(self) -> None:
        """The engine is the process that it was, and answers to the session of somebody else."""
        assert self.host.asked("status")["pid"] == self.engine
        assert await self.host.inspected(self.token) == 200

    async def has_nothing_left(self, one: Opening, before: list[int]) -> None:
        """On both sides: processes, sockets, files, codes, addresses of the engine, which goes on with its sessions."""
        with trio.fail_after(NOTHING_WITHIN):
            while not (
                one.private_folders == []
                and all(map(is_gone, before))
                and one.below() == []
                and self.host.children() == []
                and self.knows() == []
            ):
                await trio.sleep(0.1)
        await self.is_untouched()

    def knows(self) -> list[str]:
        """The addresses of tunnels that the engine has, and a word for each code."""
        addresses = [row["address"] for row in self.host.asked("address_list")["addresses"]]
        return addresses + ["code"] * self.host.asked("status")["codes"]


@contextmanager
def running(folder: Path) -> Iterator[Lab]:
    """A host of its own."""
    host = SshHost(folder)
    host.install_command()
    with ssh_hosts(host) as config:
        host.engine("engine", "start", "--detach", "--listen", "unix")
        yield Lab(host, config, host.asked("status")["pid"], host.signed_in())


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One for all tests that leave its engine as it was, which each of them checks."""
    with running(tmp_path_factory.mktemp("lab")) as one:
        yield one


async def connecting(one: Opening) -> None:
    """While ssh dials: its private folder is there."""
    with trio.fail_after(30):
        while not one.private_folders:
            await trio.sleep(0.005)


async def coded(one: Opening) -> None:
    """While the code is out."""
    await one.link()


async def held(one: Opening) -> None:
    """While the tunnel is held."""
    await one.sign_in()


STEPS: dict[str, Callable[[Opening], Awaitable[None]]] = {
    "dialling": connecting,
    "the code is out": coded,
    "held": held,
}


@pytest.mark.parametrize("step", STEPS)
async def test_kill_9_of_the_command(tmp_path: Path, lab: Lab, step: str) -> None:
    """Nothing of it cleans up, and nothing is left all the same."""
    async with opening(tmp_path / "laptop", "lab", lab.config) as one:
        await STEPS[step](one)
        before = one.below()
        one.kill()
        await lab.has_nothing_left(one, before)


@pytest.mark.parametrize("step", STEPS)
async def test_a_polite_end(tmp_path: Path, lab: Lab, step: str) -> None:
    """SIGTERM, and the terminal's hang-up, close it in order."""
    async with opening(tmp_path / "laptop", "lab", lab.config) as one:
        await STEPS[step](one)
        before = one.below()
        os.kill(one.pid, signal.SIGTERM)
        assert await one.screen.wait_end() == (0 if step == "held" else 1)
        await lab.has_nothing_left(one, before)


def _command(host: SshHost, one: Opening) -> list[int]:
    return [one.pid]


def _ssh(host: SshHost, one: Opening) -> list[int]:
    """The command's ssh that holds the connection."""
    return [
        pid for pid in one.below() if b"\0-M\0" in command_line(pid) and not command_line(pid).startswith(b"/bin/sh")
    ]


def _sshd(host: SshHost, one: Opening) -> list[int]:
    """sshd's processes of that connection."""
    return [pid for pid in host.children() if command_line(pid).startswith(b"sshd")]


LOSSES = {"kill -9 of its ssh": _ssh, "kill -9 of sshd's child": _sshd}


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_lost_connection_is_dialled_again(tmp_path: Path, lab: Lab, loss: str) -> None:
    """On the same local port: the console goes on with its session, and a request meanwhile waits."""
    async with opening(tmp_path / "laptop", "lab", lab.config) as one:
        url = await one.sign_in()
        lost = LOSSES[loss](lab.host, one)
        assert lost
        for pid in lost:
            os.kill(pid, signal.SIGKILL)
        await one.screen.wait_for("the connection was lost")
        assert await one.inspect(url) == 200
        await one.screen.wait_for("connected again")
        assert await one.close() == 0
        await lab.has_nothing_left(one, lost)


async def test_a_connection_that_is_lost_behind_a_terminal_that_stands_still(tmp_path: Path, lab: Lab) -> None:
    """Ctrl-S holds what is said of it, in its order, and not the tunnel: the console goes on."""
    async with opening(tmp_path / "laptop", "lab", lab.config) as one:
        url = await one.sign_in()
        one.screen.type(b"\x13")
        lost = _ssh(lab.host, one)
        for pid in lost:
            os.kill(pid, signal.SIGKILL)
        with trio.fail_after(NOTHING_WITHIN):
            while not set(_ssh(lab.host, one)) - set(lost) or await one.inspect(url) != 200:
                await trio.sleep(0.1)
        assert "the connection was lost" not in one.screen.text
        one.screen.type(b"\x11")
        await one.screen.wait_for("connected again")
        assert one.screen.text.index("the connection was lost") < one.screen.text.index("connected again")
        assert await one.close() == 0
        await lab.has_nothing_left(one, lost)


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_connection_that_is_lost_before_the_answer(tmp_path: Path, lab: Lab, loss: str) -> None:
    """Ends it with a sentence, exit code 1, and nothing left."""
    async with opening(tmp_path / "laptop", "lab", lab.config) as one:
        await one.link()
        for pid in LOSSES[loss](lab.host, one):
            os.kill(pid, signal.SIGKILL)
        assert await one.screen.wait_end() == 1
        assert "the connection to lab was lost: run the command again" in one.screen.text
        await lab.has_nothing_left(one, [])


SLEEPERS: dict[str, Callable[[SshHost, Opening], list[int]]] = {"command": _command, "ssh": _ssh, "sshd": _sshd}


class Gate:
    """Where a program of a test's own waits in the middle of a step, until it is opened."""

    def __init__(self, folder: Path) -> None:
        self._reached, self._opened = folder / "reached", folder / "opened"
        self.wait = f"touch {self._reached}; while [ ! -e {self._opened} ]; do sleep 0.1; done"

    async def reached(self) -> None:
        with trio.fail_after(60):
            while not self._reached.exists():
                await trio.sleep(0.02)

    def open(self) -> None:
        self._opened.touch()


def _asks_a_passphrase(host: SshHost, gate: Gate) -> None:
    """ssh waits for it, connected and not signed in."""
    host.user_key = host.folder / "locked_key"
    keygen(host.user_key, "open sesame")
    askpass = host.folder / "askpass"
    askpass.write_text(f"#!/bin/sh\n{gate.wait}\necho open sesame\n")
    askpass.chmod(0o755)
    host.environ_of_client |= {"SSH_ASKPASS": str(askpass), "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": ":0"}


def _attaches_slowly(host: SshHost, gate: Gate) -> None:
    """The host's command has not said anything yet."""
    slow = host.folder / "hatchway"
    slow.write_text(f'#!/bin/sh\n{gate.wait}\nexec {host.home}/bin/hatchway "$@"\n')
    slow.chmod(0o755)
    host.environ_of_client["HATCHWAY_REMOTE_COMMAND"] = str(slow)


def _forwards_slowly(host: SshHost, gate: Gate) -> None:
    """Attached, and about to forward."""
    ssh = host.folder / "ssh"
    ssh.write_text(f'#!/bin/sh\ncase "$*" in *" forward "*) {gate.wait};; esac\nexec ssh "$@"\n')
    ssh.chmod(0o755)
    host.environ_of_client["HATCHWAY_SSH"] = str(ssh)


def _is_quick(host: SshHost, gate: Gate) -> None: ...


async def asked(one: Opening) -> None:
    """While a browser waits for the answer."""
    await one.claim()


class Sleep(NamedTuple):
    """A step in which processes are stopped: what holds it there by a gate, or how it is reached without one."""

    prepare: Callable[[SshHost, Gate], None]
    reach: Callable[[Opening], Awaitable[None]] | None


SLEEPS = {
    "dialling": Sleep(_asks_a_passphrase, None),
    "attaching": Sleep(_attaches_slowly, None),
    "forwarding": Sleep(_forwards_slowly, None),
    "the code is out": Sleep(_is_quick, coded),
    "the question is asked": Sleep(_is_quick, asked),
    "held": Sleep(_is_quick, held),
}

ENDS = ("the connection to lab was lost", "lab does not answer", "pairing expired")
"""What the command says where it can't go on."""


class Sleeper(NamedTuple):
    """One run of the command whose `stopped` is to sleep."""

    stopped: str
    host: SshHost
    gate: Gate
    one: Opening

    async def fall_asleep(self, sleep: Sleep) -> list[int]:
        """In its step; the processes."""
        await (sleep.reach(self.one) if sleep.reach else self.gate.reached())
        pids = SLEEPERS[self.stopped](self.host, self.one)
        assert pids, self.stopped
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        self.gate.open()
        return pids


async def test_a_laptop_that_sleeps(tmp_path: Path) -> None:
    """The command, its ssh or sshd's child is stopped in each step. The engine forgets it meanwhile. Awake, a held
    tunnel is dialled again on the same port with the same session; before that, the command goes on, or says why not.

    Each step has a host of its own, with a way to it for each that is stopped: all wait at the same time.
    """
    async with trio.open_nursery() as nursery:
        for step in SLEEPS:
            nursery.start_soon(_sleep_in, tmp_path / step.replace(" ", "-"), step)


async def _sleep_in(folder: Path, step: str) -> None:
    home = SshHost(folder)
    home.install_command()
    await trio.to_thread.run_sync(home.engine, "engine", "start", "--detach", "--listen", "unix")
    try:
        token = await trio.to_thread.run_sync(home.signed_in)
        lab = Lab(home, folder, home.asked("status")["pid"], token)
        async with AsyncExitStack() as stack:
            sleepers = [
                await stack.enter_async_context(_ready(folder / stopped, home, step, stopped)) for stopped in SLEEPERS
            ]
            pids: list[int] = []

            async def fall_asleep(sleeper: Sleeper) -> None:
                pids.extend(await sleeper.fall_asleep(SLEEPS[step]))

            async with trio.open_nursery() as nursery:
                for sleeper in sleepers:
                    nursery.start_soon(fall_asleep, sleeper)
            slept = trio.current_time() + ASLEEP
            # A held tunnel whose ssh sleeps is dialled again meanwhile.
            again = {sleeper.one.address for sleeper in sleepers if step == "held" and sleeper.stopped != "command"}
            try:
                with trio.fail_after(NOTHING_WITHIN):
                    while not again.issuperset(lab.knows()):
                        await trio.sleep(0.2)
                await trio.sleep_until(slept)
                before = [pid for sleeper in sleepers for pid in sleeper.one.below()]
            finally:
                for pid in pids:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
            async with trio.open_nursery() as nursery:
                for sleeper in sleepers:
                    nursery.start_soon(_awake, sleeper, step)
            for sleeper in sleepers:
                await lab.has_nothing_left(sleeper.one, before)
                assert sleeper.host.children() == []
    finally:
        home.end_engines()


@asynccontextmanager
async def _ready(folder: Path, home: SshHost, step: str, stopped: str) -> AsyncIterator[Sleeper]:
    host, gate = SshHost(folder, home=home.home), Gate(folder)
    SLEEPS[step].prepare(host, gate)
    with reachable(host) as config:
        async with opening(folder / "laptop", "lab", config, **host.environ_of_client) as one:
            yield Sleeper(stopped, host, gate, one)


async def _awake(sleeper: Sleeper, step: str) -> None:
    """It goes on until Ctrl-C, or has ended with a sentence."""
    one = sleeper.one
    if step == "held":
        await one.screen.wait_for("connected again")
        assert await one.inspect(one.url) == 200
        assert await one.close() == 0
        return
    goes_on = ("opened the console with code",) if SLEEPS[step].reach is None else ()
    await one.screen.wait_for(*goes_on, *ENDS)
    if not any(words in one.screen.text for words in ENDS):
        one.screen.type(b"\x03")
    assert await one.screen.wait_end() == 1
    assert "Traceback" not in one.screen.text
    print(f"{step}, {sleeper.stopped}: {one.screen.text.splitlines()[-1]}")


async def test_two_tunnels_and_a_stop(tmp_path: Path, lab: Lab) -> None:
    """The same host opened twice: each console has a session of its own. `--stop` spares what others use."""
    async with opening(tmp_path / "one", "lab", lab.config, "--stop") as one:
        first = await one.sign_in()
        async with opening(tmp_path / "two", "lab", lab.config) as two:
            second = await two.sign_in()
            assert first != second
            assert one.session["token"] != two.session["token"]
            assert await one.inspect(first) == await two.inspect(second) == 200
            others = lab.host.asked("status")["sessions"] - 1
            assert await one.close() == 0
            assert f"goes on: {others} other sessions, 1 other tunnel" in one.screen.text
            assert await two.inspect(second) == 200
            assert await two.close() == 0
            await lab.has_nothing_left(two, [])


async def test_an_engine_that_was_started_for_nothing_is_stopped_again(tmp_path: Path) -> None:
    """A no, a code that nobody claims, a browser that can't be opened, and Ctrl-C: exit code 1, each with its sentence.
    With `--stop` so is one that served. One that its operator stops ends the tunnel. All wait at the same time."""

    async def one(name: str, way: Callable[[Opening, SshHost], Awaitable[None]], *flags: str, **environ: str) -> None:
        host = SshHost(tmp_path / name)
        host.install_command()
        with ssh_hosts(host) as config:
            async with opening(tmp_path / name / "laptop", "lab", config, *flags, **environ) as opened:
                await way(opened, host)
            assert not (host.home / ".hatchway/operator.sock").exists(), name

    async with trio.open_nursery() as nursery:
        nursery.start_soon(one, "no", _answered_by_a_no)
        nursery.start_soon(one, "nobody", _claimed_by_nobody)
        nursery.start_soon(partial(one, "browser", _without_a_browser, BROWSER="/bin/false %s"))
        nursery.start_soon(partial(one, "link", _interrupted, "--no-browser", LANG="C.UTF-8"))
        nursery.start_soon(one, "stop", _served, "--stop")
        nursery.start_soon(one, "stopped", _stopped_by_its_operator)


async def _answered_by_a_no(one: Opening, host: SshHost) -> None:
    await one.sign_in(b"n\n")
    assert await one.screen.wait_end() == 1


async def _claimed_by_nobody(one: Opening, host: SshHost) -> None:
    await one.link()
    assert await one.screen.wait_end() == 1
    assert "pairing expired" in one.screen.text


async def _without_a_browser(one: Opening, host: SshHost) -> None:
    """Said at once, with what does it otherwise."""
    assert await one.screen.wait_end() == 1
    assert "hatchway open --no-browser lab" in one.screen.text


async def _interrupted(one: Opening, host: SshHost) -> None:
    """A link and a QR code; then Ctrl-C."""
    await one.screen.wait_for("/#pair=")
    await one.screen.wait_for("\u2580")
    assert await one.close() == 1


async def _served(one: Opening, host: SshHost) -> None:
    await one.sign_in()
    assert await one.close() == 0
    assert "the engine on lab was stopped" in one.screen.text


async def _stopped_by_its_operator(one: Opening, host: SshHost) -> None:
    """Started again by its operator, it is found again; it is not started behind its operator's back."""
    url = await one.sign_in()
    await trio.to_thread.run_sync(host.engine, "engine", "stop")
    await trio.to_thread.run_sync(host.engine, "engine", "start", "--detach", "--listen", "unix")
    await one.screen.wait_for("connected again")
    assert await one.inspect(url) == 200
    await trio.to_thread.run_sync(host.engine, "engine", "stop")
    assert await one.screen.wait_end() == 1
    assert "the engine on lab no longer runs" in one.screen.text
    assert one.private_folders == []
    assert host.children() == []
