"""`hatchway engine start | stop | status | reload` as real processes, plain and with TLS."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from hatchway.api.cli.host import load_stored
from hatchway.api.client.operator import runs
from tests.support.command import process
from tests.support.fakes import ROOT, key_file
from tests.support.live_engine import command
from tests.support.ports import free_port
from tests.support.processes import HATCHWAY, EngineProcess, prepare, running_engine, tls_engine
from tests.support.terminal import terminal
from tests.support.waits import PATIENCE, until

pytestmark = pytest.mark.process


def commands_of(engine: EngineProcess, home: Path) -> EngineProcess:
    """The command on another folder, as on another machine."""
    other = EngineProcess(home)
    other.environ["HATCHWAY_URL"] = engine.url
    return other


async def test_a_terminal_that_stands_still(home: Path) -> None:
    """Ctrl-S holds what the engine has to say, from the start page to the last sentence, and nothing else."""
    prepare(home)
    async with terminal("engine", "start", "--port", "0", home=home) as screen:
        screen.type(b"\x13")
        with trio.fail_after(PATIENCE):
            while not runs(home):
                await trio.sleep(0.05)
        for _ in range(3):
            await command(home, "engine", "reload")
        assert (await command(home, "engine", "stop")).stdout == b"stopped\n"
        with trio.fail_after(PATIENCE):
            while screen.process.poll() is None:
                await trio.sleep(0.05)
        assert screen.process.poll() == 0
        assert screen.shown == b""


async def test_the_first_start_on_a_terminal(home: Path) -> None:
    """The start page tells address, key and how to go on; the files are private; Ctrl-C ends it with 0 and a sentence,
    and the signed head of the journal goes to its file alone."""
    async with terminal("engine", "start", "--port", "0", home=home) as screen:
        await screen.wait_for("hatchway engine stop")
        assert "Hatchway is running at http://127.0.0.1:" in screen.text
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        for name in (
            "private-key.pem",
            "token-key.pem",
            "authorized_keys",
            "engine.db",
            "operator.sock",
            "engine.lock",
        ):
            assert stat.S_IMODE((home / name).lstat().st_mode) == 0o600, name
        screen.type(b"\x03")
        assert await screen.wait_end() == 0
        assert screen.text.endswith("\nHatchway has stopped.\n")
        assert "head" not in screen.text
    assert len((home / "log" / "heads").read_text().splitlines()) == 1
    assert not (home / "operator.sock").exists()


def test_stop_waits_until_it_is_gone(home: Path) -> None:
    """`engine stop` returns when the folder is free; a new engine starts at once, and the session is still there."""
    with running_engine(home, free_port()) as engine:
        session = json.loads(engine.command("engine", "ping", "--json"))["session"]
        assert engine.command("engine", "stop") == "stopped\n"
        assert engine.process.wait(20) == 0
        engine.start(engine.port)
        assert json.loads(engine.command("engine", "ping", "--json"))["session"] == session


def test_the_local_engine_is_found_whatever_its_port(home: Path) -> None:
    """Port 0: the command asks the operator socket where the engine listens, also after a restart elsewhere."""
    with running_engine(home, free_port()) as engine:
        first = json.loads(engine.command("engine", "ping", "--json"))["url"]
        engine.terminate()
        with socket.create_server(("127.0.0.1", engine.port)):
            engine.start()
            assert json.loads(engine.command("engine", "ping", "--json"))["url"] == engine.url != first
            until(lambda: f'"{engine.url}/"' in engine.log(), what="the log to tell the address")


def test_a_second_engine_is_refused_in_words(home: Path) -> None:
    """One engine a folder: the other exits with 1 and names the command that stops the first."""
    with running_engine(home) as engine:
        engine.command("engine", "start", "--port", "0", code=1)
        assert json.loads(engine.command("engine", "status", "--json"))["pid"] == engine.process.pid


def test_a_port_in_use_is_refused_in_words(home: Path, tmp_path: Path) -> None:
    """No stack trace: a sentence with the address, exit code 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        engine = EngineProcess(home)
        with pytest.raises(AssertionError) as failed:
            engine.start(taken.getsockname()[1])
        said = str(failed.value)
        assert engine.process.returncode == 1
        assert str(taken.getsockname()[1]) in said
        assert "Traceback" not in said
    told = [json.loads(line) for line in (home / "log" / "events.jsonl").read_text().splitlines()]
    assert [(record["event"], record["cause"]) for record in told] == [
        ("start", None),
        ("stop", "engine_unavailable"),
    ], "an auditor tells a start that failed from an engine that was killed"


def test_a_folder_that_others_may_enter_is_refused(home: Path) -> None:
    """The refusal ends with the command that mends it."""
    home.mkdir(0o700)
    home.chmod(0o750)
    done = process("engine", "start", "--port", "0", HATCHWAY_HOME=str(home))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{home} is open to other users; ")
    assert done.stderr.endswith(f"; mend it with: chmod 700 {home}\n")
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("listen", ["tcp", "unix", "both"])
def test_a_file_limit_without_room_for_anybody_is_told(home: Path, listen: str) -> None:
    """The start is refused with what mends it, rather than everybody's first request."""
    script = "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (100, 100)); from hatchway.api.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "engine", "start", "--port", "0", "--listen", listen],
        env=EngineProcess(home).environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "give it 101 or more (ulimit -n)" in done.stderr


def test_an_engine_without_standard_streams(home: Path) -> None:
    """`hatchway engine start <&- >&- 2>&-`: what would be said goes nowhere, and not into a file of the engine's."""
    engine = EngineProcess(home)
    try:
        engine.start(preexec=lambda: os.closerange(0, 3))
        opened = [os.readlink(f"/proc/{engine.process.pid}/fd/{number}") for number in range(3)]
        assert opened == [os.devnull] * 3
        engine.command("engine", "ping")
        engine.terminate()
    finally:
        engine.close()


def test_settings_reach_the_running_engine(home: Path) -> None:
    """`config set` says how, `engine reload` does it and names what waits for a restart."""
    with running_engine(home) as engine:
        engine.command("config", "set", "max_instances", "3")
        engine.command("config", "set", "tls", "auto")
        assert engine.command("engine", "reload") == "reloaded\n"
        engine.command("config", "unset", "tls")
        engine.command("config", "set", "max_instances", "many", code=1)
        assert engine.command("engine", "reload") == "reloaded\n"
        (home / "config.toml").write_text("prot = 1\n")
        engine.command("engine", "reload", code=1)
        assert engine.process.poll() is None
        engine.process.send_signal(signal.SIGHUP)
        (home / "config.toml").unlink()
        engine.command("engine", "status")


def test_tls_of_this_host_needs_no_question(home: Path) -> None:
    """The command takes the certificate's fingerprint from the operator socket, also after it was made anew."""
    with tls_engine(home) as engine:
        ping = json.loads(engine.command("engine", "ping", "--json"))
        assert ping["url"].startswith("https://127.0.0.1:")
        (home / "tls-cert.pem").unlink()
        engine.command("engine", "reload")
        assert json.loads(engine.command("engine", "ping", "--json"))["session"] == ping["session"]


def test_tls_elsewhere_is_pinned(home: Path, tmp_path: Path) -> None:
    """Another machine remembers the certificate, and stops when it changes until told otherwise."""
    with tls_engine(home) as engine:
        key_file(tmp_path / "own.pem", (home / "private-key.pem").read_bytes())
        away = commands_of(engine, tmp_path / "away")
        away.command("login", "--key", str(tmp_path / "own.pem"))
        away.command("engine", "ping")
        (home / "tls-cert.pem").unlink()
        engine.command("engine", "reload")
        away.command("engine", "ping", code=1)
        assert load_stored(away.home) is not None
        away.command("login", "--key", str(tmp_path / "own.pem"), "--accept-certificate")
        away.command("engine", "ping")


def test_many_commands_at_once(home: Path) -> None:
    """Ten pings side by side each succeed, and the stored token is a whole one."""
    with running_engine(home) as engine:
        running = [
            subprocess.Popen([*HATCHWAY, "engine", "ping"], env=engine.environ, stdout=subprocess.DEVNULL)
            for _ in range(10)
        ]
        assert [process.wait(60) for process in running] == [0] * 10
        assert load_stored(home) is not None
