"""The watchers: one small process a command, found again by an engine that comes later."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from engine.platform import processes, watcher
from engine.platform.processes import Child
from engine.platform.protocol import Started

_PROGRAM = watcher.__file__
_EXIT = "exit"


class Commands:
    """Each instance's folder holds the exit code of its command once there is one."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = dict(env)
        self._children: dict[Path, Child] = {}

    def ensure(
        self, folder: Path, started: Started, run: list[str], stop: list[str], variables: Mapping[str, str]
    ) -> None:
        """Start the command's watcher, unless an engine before this one has."""
        if exit_code(folder) is not None or self._find(folder):
            return
        plan = {
            "exec": run,
            "stop": stop,
            "env": {**self._env, **variables},
            "out": started.entry.log_out_path,
            "err": started.entry.log_err_path,
            "exit": str(folder / _EXIT),
            "pid": started.entry.pid,
            "ticks": started.since.rpartition(":")[2],
        }
        # Not by argument, where every user of the host could read the variables' values; nor by a file.
        fd = os.memfd_create("plan")
        try:
            os.write(fd, msgspec.json.encode(plan))
            os.lseek(fd, 0, os.SEEK_SET)
            argv = [sys.executable, "-I", "-S", _PROGRAM, str(folder)]
            self._children[folder] = Child(argv, self._env, stdin=fd)
        finally:
            os.close(fd)

    async def wait(self, folder: Path) -> None:
        """Returns when no watcher of this folder runs."""
        child = self._children.get(folder)
        if child is not None:
            await child.wait()
            self._children.pop(folder, None)
        for pid in self._find(folder):
            await processes.wait_gone(pid, processes.since(pid))

    def kill(self, folder: Path) -> None:
        for pid in self._find(folder):
            processes.kill(pid, processes.since(pid))

    def _find(self, folder: Path) -> list[int]:
        return [process.pid for process in processes.own() if process.argv[-2:] == (_PROGRAM, str(folder))]


def exit_code(folder: Path) -> int | None:
    """The exit code of the command, None while there is none."""
    with suppress(OSError, ValueError):
        return int((folder / _EXIT).read_text())
    return None
