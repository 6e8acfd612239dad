"""A real terminal for a real command: a pty that the test types into and reads from."""

from __future__ import annotations

import fcntl
import os
import subprocess
import termios
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from tests.support.command import HATCHWAY
from tests.support.fakes import ROOT
from tests.support.forked import ForkedCommand, RunningCommand, can_fork


def at_terminal(
    program: Sequence[str], arguments: Sequence[str], environ: Mapping[str, str], folder: Path = ROOT
) -> tuple[RunningCommand, int]:
    """A program at a terminal of its own, and the end of the terminal where a person types and reads."""
    master, slave = os.openpty()
    try:
        if program == HATCHWAY and can_fork(environ):
            return ForkedCommand(arguments, environ, folder, (slave, slave, slave), terminal=True), master
        process = subprocess.Popen(
            [*program, *arguments],
            cwd=folder,
            env=environ,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        return process, master
    finally:
        os.close(slave)


class Screen:
    """One command on a pty. `text` is all that it has shown."""

    def __init__(self, process: RunningCommand, master: int) -> None:
        self.process, self._master = process, master
        self.shown = b""

    @property
    def text(self) -> str:
        """What was shown, with the terminal's line ends as one character."""
        return self.shown.decode(errors="replace").replace("\r\n", "\n")

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._master, keys)

    async def wait_for(self, *words: str) -> None:
        """Read until the words, or one of several, are on the screen."""
        with trio.fail_after(60):
            while not any(some in self.text for some in words):
                assert await self._read(), f"ended without {words!r}: {self.text}"

    async def wait_end(self) -> int:
        """Read to the end; the exit code."""
        with trio.fail_after(60):
            while await self._read():
                pass
            return await trio.to_thread.run_sync(self.process.wait)

    async def _read(self) -> bool:
        await trio.lowlevel.wait_readable(self._master)
        try:
            data = os.read(self._master, 65536)
        except OSError:
            return False
        self.shown += data
        return bool(data)


@asynccontextmanager
async def terminal(
    *arguments: str, home: Path, folder: Path = ROOT, program: Sequence[str] = HATCHWAY, **environment: str
) -> AsyncIterator[Screen]:
    """The command, or another program, in `folder`, on a terminal of its own, which is hung up at the end."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    environ = {**kept, "HATCHWAY_HOME": str(home), "TERM": "xterm", **environment}
    process, master = at_terminal(program, arguments, environ, folder)
    try:
        yield Screen(process, master)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(master)
