"""The command as the first process of a container, without an init: orphans are reaped, and no signal is lost."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.fakes import ROOT
from tests.support.processes import HATCHWAY, prepare

pytestmark = [pytest.mark.mount, pytest.mark.process]

TERM_BIT = 1 << (signal.SIGTERM - 1)


def until(true: Callable[[], object], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def status(pid: int, name: str) -> str:
    found = re.search(rf"^{name}:\s*(.*)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return found[1] if found else ""


def children(pid: int) -> list[int]:
    """Of any state, zombies too."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Container:
    """A PID namespace whose first process is the command."""

    def __init__(self, home: Path, *arguments: str) -> None:
        environ = {name: text for name, text in os.environ.items() if not name.startswith("HATCHWAY_")}
        self.log = home.parent / "container.log"
        with self.log.open("ab") as log:
            self.outside = subprocess.Popen(
                ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--", *HATCHWAY, *arguments],
                env=environ | {"HATCHWAY_HOME": str(home)},
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(lambda: children(self.outside.pid))
        (self.first,) = children(self.outside.pid)

    def inside(self, *arguments: str) -> None:
        """Another program in the namespace, waited for."""
        subprocess.run(["nsenter", "-t", str(self.first), "-p", "-m", "--", *arguments], check=True)

    def ended(self, seconds: float = 30) -> int:
        """The first process's exit code."""
        return self.outside.wait(seconds)


@contextmanager
def container(home: Path, *arguments: str) -> Iterator[Container]:
    here = Container(home, *arguments)
    try:
        yield here
    finally:
        with suppress(ProcessLookupError):
            here.outside.kill()
        here.outside.wait()


def test_orphans_are_reaped(home: Path) -> None:
    """Whoever loses its parent becomes the first process's child, and its end is taken: no zombie stays."""
    prepare(home)
    with container(home, "engine", "start", "--port", "0") as here:
        until((home / "operator.sock").exists)
        before = set(children(here.first))
        for _ in range(3):
            here.inside("sh", "-c", "sleep 0.2 & exit 0")
        until(lambda: set(children(here.first)) - before)
        until(lambda: set(children(here.first)) == before)
        os.kill(here.first, signal.SIGTERM)
        assert here.ended() == 0, here.log.read_text()


def test_a_signal_before_anything_is_loaded(home: Path) -> None:
    """From the first moments of the process a SIGTERM ends the start, with exit code 0, and is never lost."""
    with container(home, "engine", "start", "--port", "0") as here:
        until(lambda: status(here.first, "Name") != "unshare")  # which blocks the same signal for a moment
        until(lambda: int(status(here.first, "SigBlk"), 16) & TERM_BIT, 10)
        os.kill(here.first, signal.SIGTERM)
        assert here.ended() == 0, here.log.read_text()
        assert not (home / "operator.sock").exists()


def test_the_exit_code_is_the_commands(home: Path) -> None:
    """What the command comes to is what the container comes to."""
    for arguments, code in ((["config", "list"], 0), (["config", "get", "no_such"], 1), (["no-such"], 2)):
        with container(home, *arguments) as here:
            assert here.ended() == code, here.log.read_text()


def test_a_reload_reaches_the_engine(home: Path) -> None:
    """What the first process is sent goes on to the engine, and only a stop ends it."""
    prepare(home)
    with container(home, "engine", "start", "--port", "0") as here:
        until((home / "operator.sock").exists)
        os.kill(here.first, signal.SIGHUP)
        until(lambda: "reloaded" in here.log.read_text())
        os.kill(here.first, signal.SIGINT)
        assert here.ended() == 0, here.log.read_text()
