"""Watchers: one small process for each command, which a later run of the engine finds again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from hatchway.engine.instances import processes
from hatchway.engine.instances.apptainer import watcher
from hatchway.engine.instances.processes import Child, Noted
from hatchway.engine.instances.protocol import ConfirmedStart

_PROGRAM = watcher.__file__
_EXIT, _WATCHER = "exit", "watcher"


class Commands:
    """Starts watchers and waits for them. Each leaves its command's exit code in the instance's folder."""

    def __init__(self, env: Mapping[str, str], log_bytes: Callable[[], int]) -> None:
        self._env, self._log_bytes = dict(env), log_bytes
        self._children: dict[Path, Child] = {}

    async def ensure(
        self, folder: Path, started: ConfirmedStart, run: list[str], stop: list[str], variables: Mapping[str, str]
    ) -> None:
        """Start the instance's watcher, unless an earlier run of the engine has. `run` is empty without a command.

        `run` and `stop` are the runtime's command lines, `variables` what their environment holds besides.
        """
        if exit_code(folder) is not None or self._find(folder):
            return
        plan = {
            "exec": run,
            "stop": stop,
            "env": {**self._env, **variables},
            "logs": list(zip((started.entry.log_out_path, started.entry.log_err_path), started.log_from, strict=True)),
            "most": self._log_bytes(),
            "exit": str(folder / _EXIT),
            "pid": started.entry.pid,
            "ticks": started.since.rpartition(":")[2],
        }
        # The plan holds the values of variables, so it is sent by a pipe: every user can read a process's arguments.
        told, note = msgspec.json.encode(plan), folder / _WATCHER
        self._children[folder] = await processes.begin(_PROGRAM, [str(folder)], self._env, note, told)

    def known(self, folder: Path) -> bool:
        """Whether a watcher was noted in the folder. Where none was, only the end of the instance itself can be
        seen."""
        return (folder / _WATCHER).exists()

    async def wait(self, folder: Path) -> None:
        """Wait until no watcher of this folder runs."""
        child = self._children.get(folder)
        if child is not None:
            await child.wait()
            self._children.pop(folder, None)
        watcher = self._find(folder)
        if watcher is not None:
            await processes.wait_gone(*watcher)

    def kill(self, folder: Path) -> None:
        watcher = self._find(folder)
        if watcher is not None:
            processes.kill(*watcher)

    def _find(self, folder: Path) -> Noted | None:
        return processes.noted(folder / _WATCHER)


def exit_code(folder: Path) -> int | None:
    """The exit code of the command, None while there is none."""
    with suppress(OSError, ValueError):
        return int((folder / _EXIT).read_text())
    return None
