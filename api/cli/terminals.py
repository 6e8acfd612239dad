"""The terminal that a person sits at, whoever's it is: what is open already is used, and no name of it is opened again.

After `su`, `runuser` or `sudo`, and in another mount namespace, the terminal's name in /dev/pts belongs to somebody
else, or isn't there, while the descriptors that the command was given work as ever.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def operator_terminal() -> Iterator[int | None]:
    """A descriptor of a terminal that can be read and written, None where there is none.

    Standard input comes first, then the controlling terminal, whatever input and output are, then standard error and
    output: `su -c` takes the controlling terminal away and leaves those.
    """
    controlling = _controlling()
    try:
        yield next((fd for fd in (0, controlling, 2, 1) if fd is not None and _both_ways(fd)), None)
    finally:
        if controlling is not None:
            os.close(controlling)


def _controlling() -> int | None:
    try:
        return os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None


def _both_ways(fd: int) -> bool:
    try:
        return os.isatty(fd) and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
    except OSError:
        return False
