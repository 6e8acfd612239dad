"""Ends what a process has begun when that process dies: a shell that waits on a pipe whose other end it alone has.

`kill -9` leaves no time to clean up. The guard has a session of its own, so that no signal of a terminal reaches it. It
is there before the folder is, and whoever begins something in the folder writes into its file `end` what ends it.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

END = "end"
"""The file of commands for a shell that ends what was begun."""

# The folder is moved first: a process that has not noted yet what it is about to begin finds no folder, and begins
# nothing.
_PROGRAM = (
    'read -r word && exit 0; mv "$1" "$1.over" || exit 0; sh "$1.over/end" >/dev/null 2>&1; rm -rf -- "$1.over" "$1"'
)


class Guard:
    """When this process dies, ends what was begun in `folder` and removes the folder; not after `dismiss`."""

    def __init__(self, folder: Path) -> None:
        waiting, self._held = os.pipe()
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _PROGRAM, "hatchway-guard", str(folder)],
                stdin=waiting,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        finally:
            os.close(waiting)

    def dismiss(self) -> None:
        """End the guard, since all was ended in order."""
        with suppress(BrokenPipeError):  # the guard was killed
            os.write(self._held, b"dismissed\n")
        os.close(self._held)
        self._process.wait()
