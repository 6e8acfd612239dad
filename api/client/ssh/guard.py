"""The end of what a process has begun, should it die first: a shell that waits on a pipe which only that process holds.

`kill -9` leaves no time to clean up. The guard has a session of its own, so that no signal of a terminal reaches it.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

_PROGRAM = 'folder=$1; shift; read -r word && exit 0; "$@" >/dev/null 2>&1; rm -rf -- "$folder"'


class Guard:
    """Runs `command` and removes `folder` once this process is gone; not after `dismiss`."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        waiting, self._held = os.pipe()
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _PROGRAM, "hatchway-guard", str(folder), *command],
                stdin=waiting,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        finally:
            os.close(waiting)

    def dismiss(self) -> None:
        """What was guarded has been ended in good order, or has another guard."""
        with suppress(BrokenPipeError):  # somebody has ended the guard
            os.write(self._held, b"dismissed\n")
        os.close(self._held)
        self._process.wait()
