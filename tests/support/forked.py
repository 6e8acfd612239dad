"""The command `hatchway` in a process that has its modules loaded already: that is nine tenths of what a start costs.

It is a process like any other, with its own id, environment, folder, descriptors, signals and exit code. What it does
not show is how an interpreter starts: in /proc it has the arguments and the environment of the forkserver, and the
variables that Python itself reads (PYTHONPATH and so on) are read no more.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import BinaryIO

from tests.support.fakes import ROOT


class ForkedCommand:
    """One that runs, with `subprocess.Popen`'s names. It reads nothing, and writes to `log`."""

    def __init__(self, arguments: Sequence[str], environ: dict[str, str], folder: Path, log: BinaryIO) -> None:
        self.args = ("hatchway", *arguments)
        self.returncode: int | None = None
        self._told, theirs = os.pipe()
        request = {"arguments": arguments, "environ": environ, "folder": str(folder)}
        with open("/proc/thread-self/ns/net") as network:
            passed = [theirs, log.fileno(), network.fileno()]
            socket.send_fds(_forkserver(), [json.dumps(request).encode()], passed)
        os.close(theirs)
        self.pid = self._read()

    def _read(self) -> int:
        told = os.read(self._told, 4)
        assert told, "the forkserver has ended"
        return int.from_bytes(told, sys.byteorder, signed=True)

    def poll(self) -> int | None:
        """The exit code; None while it runs, -N where signal N has ended it."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended. Raises TimeoutExpired after `timeout` seconds."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _ended(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], seconds)[0]:
            self.returncode = self._read()
            os.close(self._told)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


RunningCommand = subprocess.Popen[bytes] | ForkedCommand


@cache
def _forkserver() -> socket.socket:
    """The way to ask the one of this process, which ends with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "tests.support.forkserver"]
    server = subprocess.Popen(command, cwd=ROOT, stdin=theirs.fileno())
    theirs.close()

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours
