"""The number of the last record that a full disk did not take, so that no later engine gives it out again.

It is written over in place: the file has its few bytes on the disk since the journal was first opened.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from hatchway.engine.base import files
from hatchway.engine.base.errors import FileRefused

NAME = "last-number"
"""In the journal's folder."""

_FORM = b"%020d\n"


def take_up(folder: Path) -> int:
    """The number, 0 where none was lost. Makes the file where there is none, and room for it."""
    path = folder / NAME
    with suppress(OSError, FileRefused):
        if not path.exists():
            files.write_new(path, _FORM % 0)
        found = files.read_private(path).strip()
        return int(found) if found.isdigit() else 0
    return 0


def note(folder: Path, number: int) -> None:
    """Keep the number of a record that was not written."""
    with suppress(OSError):  # then the next engine gives it out again
        fd = os.open(folder / NAME, os.O_WRONLY | os.O_NOFOLLOW)
        try:
            os.pwrite(fd, _FORM % number, 0)
        finally:
            os.close(fd)
