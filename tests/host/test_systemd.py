"""Under systemd the engine says when it is ready, alive, reloading and stopping; its unit is one that systemd takes."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import structlog
import trio
from click.testing import CliRunner

from hatchway.api.cli import cli
from hatchway.api.cli.unit import quoted
from hatchway.api.host.systemd import Notifier
from tests.support.processes import running_engine


class Manager:
    """The service manager's end of NOTIFY_SOCKET."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def told(self, seconds: float = 10) -> dict[str, str]:
        """The next message."""
        self._sock.settimeout(seconds)
        return dict(line.split("=", 1) for line in self._sock.recv(4096).decode().splitlines())

    def wait(self, name: str) -> tuple[dict[str, str], int]:
        """The first message with that variable, and how many signs of life came before it."""
        lives = 0
        while name not in (message := self.told()):
            assert message == {"WATCHDOG": "1"}
            lives += 1
        return message, lives


@contextmanager
def listening(address: str) -> Iterator[Manager]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(address)
        yield Manager(sock)


@pytest.mark.process
def test_an_engine_process_tells_its_life(tmp_path: Path, home: Path) -> None:
    """READY once it serves, signs of life, RELOADING then READY at SIGHUP, STOPPING at SIGTERM."""
    path = str(tmp_path / "notify")
    with (
        listening(path) as manager,
        running_engine(home, NOTIFY_SOCKET=path, WATCHDOG_USEC="200000") as engine,
    ):
        message, _ = manager.wait("READY")
        assert message == {"READY": "1", "STATUS": f"Serving {engine.url}/"}
        assert [manager.told() for _ in range(5)] == [{"WATCHDOG": "1"}] * 5
        engine.process.send_signal(signal.SIGHUP)
        message, _ = manager.wait("RELOADING")
        assert message["MONOTONIC_USEC"].isdigit()
        assert manager.wait("READY")[1] == 0
        engine.process.send_signal(signal.SIGTERM)
        message, _ = manager.wait("STOPPING")
        assert message == {"STOPPING": "1", "STATUS": "Stopping"}
        assert engine.process.wait(20) == 0


@pytest.mark.process
def test_a_reload_that_is_refused_is_over_too(tmp_path: Path, home: Path) -> None:
    """Where the new settings can't be read, the engine goes on with the old ones, and systemd hears that it does."""
    path = str(tmp_path / "notify")
    with listening(path) as manager, running_engine(home, NOTIFY_SOCKET=path) as engine:
        manager.wait("READY")
        (home / "config.toml").write_text("nonsense = 1\n")
        (home / "config.toml").chmod(0o600)
        engine.process.send_signal(signal.SIGHUP)
        manager.wait("RELOADING")
        manager.wait("READY")
        assert engine.process.poll() is None


def test_an_abstract_socket_is_one_too() -> None:
    """A name with @ in front is an abstract address (unix(7))."""
    name = f"hatchway-test-{os.getpid()}"
    with listening("\0" + name) as manager:
        Notifier({"NOTIFY_SOCKET": "@" + name}).ready("http://127.0.0.1:7420/")
        assert manager.told()["READY"] == "1"


def test_nobody_listening_harms_nobody(tmp_path: Path) -> None:
    """Without systemd nothing is sent; a socket that is gone is a line in the log."""
    Notifier({}).stopping()
    with structlog.testing.capture_logs() as lines:
        Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).stopping()
    assert [line["event"] for line in lines] == ["systemd_not_told"]


async def test_signs_of_life_come_from_the_event_loop(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """Twice as often as asked, by trio's clock: an event loop that stands still gives none."""
    path = str(tmp_path / "notify")
    with listening(path) as manager:
        notifier = Notifier({"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())})
        with trio.move_on_after(61):
            await notifier.watch()
        assert [manager.told(0) for _ in range(5)] == [{"WATCHDOG": "1"}] * 5
        with pytest.raises(BlockingIOError):
            manager.told(0)


@pytest.mark.parametrize("environ", [{}, {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "x"}])
async def test_a_watchdog_that_is_not_ours_is_left_alone(environ: dict[str, str]) -> None:
    """Without a watchdog, or with another process's, there are no signs of life."""
    notifier = Notifier(environ)
    assert notifier.watchdog == 0
    with trio.fail_after(1):
        await notifier.watch()


def unit(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["engine", "unit", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def lines_of(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))


@pytest.mark.usefixtures("command_folder")
@pytest.mark.systemd
@pytest.mark.parametrize("arguments", [(), ("--system", "--user", "root")])
def test_systemd_takes_the_unit(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """`systemd-analyze verify` has nothing to say about it, for the user's manager and for the system's."""
    path = tmp_path / "hatchway.service"
    path.write_text(unit(*arguments))
    scope = "--system" if arguments else "--user"
    done = subprocess.run(
        ["systemd-analyze", scope, "verify", str(path)],
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ, XDG_RUNTIME_DIR=str(tmp_path)),
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.usefixtures("command_folder")
def test_the_unit_keeps_its_promises(home: Path) -> None:
    """Notify with a watchdog; instances outlive a restart; nothing that containers can't start under; nothing
    that was stopped is started again."""
    found = lines_of(unit())
    assert found["Type"] == "notify"
    assert found["WatchdogSec"] == "30"
    assert found["KillMode"] == "process"
    assert (found["Restart"], found["SuccessExitStatus"]) == ("on-failure", "SIGALRM")
    assert found["UMask"] == "0077"
    assert found["Environment"] == f"HATCHWAY_HOME={home}"
    assert found["WantedBy"] == "default.target"
    assert "NoNewPrivileges" not in found
    assert "User" not in found
    program = shlex.split(found["ExecStart"])
    assert os.access(program[0], os.X_OK)
    assert program[-2:] == ["engine", "start"]
    assert lines_of(unit("--system", "--user", "runner")) | {"WantedBy": "multi-user.target", "User": "runner"} == (
        lines_of(unit("--system", "--user", "runner"))
    )


@pytest.mark.usefixtures("command_folder")
def test_a_user_who_may_not_run_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else systemd says 203/EXEC at the start, and not why. What is open to all is no news, nor is root."""
    nobody, root = ("--system", "--user", "nobody"), ("--system", "--user", "root")
    with tempfile.TemporaryDirectory(prefix="hatchway-unit-") as folder:
        place = Path(folder)
        (place / "hatchway").touch(0o755)
        (place / "python").symlink_to("/usr/bin/env")
        monkeypatch.setattr(sys, "executable", str(place / "python"))
        place.chmod(0o755)
        assert warning(*nobody) == ""
        place.chmod(0o700)
        assert warning(*nobody).startswith(f"the user nobody may not enter {place}, where this program is")
        assert (warning(*root), warning()) == ("", "")


def warning(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["engine", "unit", *arguments])
    assert done.exit_code == 0
    return done.stderr


def test_a_user_goes_with_a_system_unit() -> None:
    """A unit of one's own manager runs as oneself: another user is a usage error."""
    done = CliRunner().invoke(cli, ["engine", "unit", "--user", "runner"])
    assert done.exit_code == 2
    assert "--system" in done.stderr


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("/usr/bin/hatchway", "/usr/bin/hatchway"),
        ("/opt/my engine", '"/opt/my engine"'),
        ("100%", '"100%%"'),
        ("$HOME", '"$$HOME"'),
        ('a"b\\c', '"a\\"b\\\\c"'),
    ],
)
def test_words_are_quoted_for_systemd(word: str, written: str) -> None:
    """Spaces, quotes, `%` and `$` in a path mean themselves (systemd.service(5))."""
    assert quoted(word) == written
