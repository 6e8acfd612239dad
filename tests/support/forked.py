"""The command `hatchway` in a process that has its modules loaded already: that is nine tenths of what a start costs.

It is a process like any other, with its own id, environment, folder, descriptors, signals and exit code. What it does
not show is how an interpreter starts: in /proc it has the arguments and the environment of the forkserver, and the
variables that Python itself reads (PYTHONPATH and so on) are read no more.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from tests.support.fakes import ROOT


class ForkedCommand:
    """One that runs, with `subprocess.Popen`'s names. `streams` are its standard input, output and errors; with
    `terminal` they are its terminal, and it leads a session of its own."""

    def __init__(
        self,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        folder: Path,
        streams: Sequence[int],
        terminal: bool = False,
    ) -> None:
        self.args = ("hatchway", *arguments)
        self.returncode: int | None = None
        self._told, theirs = os.pipe()
        request = {
            "arguments": arguments,
            "environ": dict(environ),
            "folder": str(folder),
            "terminal": terminal,
            "umask": int(re.findall(r"Umask:\s*(\d+)", Path("/proc/thread-self/status").read_text())[0], 8),
        }
        with open("/proc/thread-self/ns/net") as network:
            passed = [theirs, *streams, network.fileno()]
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
            with suppress(ProcessLookupError):  # it has ended since, as Popen takes it too
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def fileno(self) -> int:
        """What is readable once it has ended."""
        return self._told


class CapturedCommand(ForkedCommand):
    """One whose standard input is `typed`, of at most 64 KiB, and which writes to files of its own."""

    def __init__(
        self, arguments: Sequence[str], environ: Mapping[str, str], folder: Path = ROOT, typed: bytes = b""
    ) -> None:
        self._written = [tempfile.TemporaryFile(), tempfile.TemporaryFile()]  # noqa: SIM115 - `completed` closes them
        reading, typing = os.pipe()
        os.write(typing, typed)
        os.close(typing)
        super().__init__(arguments, environ, folder, (reading, *(file.fileno() for file in self._written)))
        os.close(reading)

    def completed(self, seconds: float = 60) -> subprocess.CompletedProcess[bytes]:
        """What it has written, once it has ended. After so long it is killed, and TimeoutExpired raised."""
        try:
            code = self.wait(seconds)
            told = [os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0) for file in self._written]
        finally:
            self.kill()
            for file in self._written:
                file.close()
        return subprocess.CompletedProcess(self.args, code, *told)


RunningCommand = subprocess.Popen[bytes] | ForkedCommand


def can_fork(environ: Mapping[str, str]) -> bool:
    """Whether a fork is what these variables would make of an interpreter as it starts."""
    ours = ("PYTHON", "LANG", "LC_")
    return all(os.environ.get(name) == text for name, text in environ.items() if name.startswith(ours))


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
