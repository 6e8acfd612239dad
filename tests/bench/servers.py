"""Servers as processes on the first core: Hatchway, the yardstick on stock Hypercorn-trio, and the peers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.fakes import ROOT
from tests.support.forked import RunningCommand

TICKS = os.sysconf("SC_CLK_TCK")
START_SECONDS = 30.0

CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, CLIENT_CORE = CORES[0], CORES[-1]


class Server(NamedTuple):
    """A running one: its port, and the processes that are it."""

    process: RunningCommand
    port: int

    def family(self) -> list[int]:
        """The process and its children (gunicorn's worker)."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [self.process.pid, *map(int, children)]

    def cpu(self) -> float:
        """CPU seconds it has used, all threads and children."""
        return sum(map(cpu_of, self.family()))

    def memory(self) -> int:
        """Bytes resident."""
        return sum(map(_resident, self.family()))

    def memory_of_engine(self) -> int:
        """Bytes resident in the process that was started, without its children."""
        return _resident(self.process.pid)


def cpu_of(pid: int) -> float:
    """CPU seconds that one process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def pin(*cores: int) -> None:
    """This process, and what it starts, on one core: client and server must not take from each other. On several, they
    do, and that is what is measured."""
    os.sched_setaffinity(0, cores)


@contextmanager
def serving(arguments: Sequence[str | Path], port: int, *cores: int, **environ: str) -> Iterator[Server]:
    """A server of ours or theirs on the first core, or those given, until left; it listens when this yields."""
    process = subprocess.Popen(
        [str(argument) for argument in arguments],
        cwd=ROOT,
        env=os.environ | {"HATCHWAY_LIMITS_SESSIONS_PER_IDENTITY": "1000000"} | environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: pin(*(cores or (SERVER_CORE,))),
    )
    try:
        wait_open(process, port)
        yield Server(process, port)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_open(process: subprocess.Popen[bytes], port: int) -> None:
    """Until somebody accepts at the port. Raises RuntimeError if the process ends first, or takes too long."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.005)
        else:
            return
    raise RuntimeError(f"{process.args!r} does not listen on {port}")


def yardstick(port: int) -> list[str]:
    """A bare ASGI hello on Hypercorn's trio worker as it comes."""
    return [sys.executable, "-m", "tests.bench.peers.stock", str(port)]


def hatchway(port: int) -> list[str]:
    """`hatchway engine start`; the environment says where and how."""
    return [sys.executable, "-c", "from hatchway.api.cli import main; main()", "engine", "start", "--port", str(port)]
