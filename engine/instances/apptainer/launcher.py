"""Runs one program, and leaves nothing of a run that failed or was given up. A program of its own, standard library
only.

Reads the argument vector from standard input, whole or not at all: whoever began it writes its pid down first. Ends
with that program's exit code; what the program has detached goes on where that is 0.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from contextlib import suppress
from typing import Any

NOT_RUN, GIVEN_UP = 127, 143
"""Exit codes: the program could not be run; the run was given up, by SIGTERM."""

CLEARED_WITHIN = 10.0
"""Seconds that killed processes have to be gone."""

_SUBREAPER = 36
"""Of prctl(2)."""

_HEARD = (signal.SIGTERM, signal.SIGCHLD)


def main() -> int:
    try:
        argv = json.load(sys.stdin.buffer)
    except ValueError:
        return NOT_RUN  # whoever began it is gone
    # Whatever the program detaches stays a descendant, and becomes a child of ours once it has no other parent.
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    code = _run(argv)
    if code:
        _clear()
    return code


def _run(argv: list[str]) -> int:
    actions: list[Any] = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
    try:
        ours = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them
        program = os.posix_spawn(argv[0], argv, os.environ, file_actions=actions, setsigmask=(), setsigdef=ours)
    except OSError:
        return NOT_RUN
    while signal.sigwait(_HEARD) != signal.SIGTERM:
        ended = dict(_reaped())
        if program in ended:
            code = os.waitstatus_to_exitcode(ended[program])
            return code if code >= 0 else 128 - code
    return GIVEN_UP


def _reaped() -> list[tuple[int, int]]:
    """Pid and status of every child that has ended."""
    found: list[tuple[int, int]] = []
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found.append(ended)
    return found


def _clear() -> None:
    """Kill all descendants: the children of one that is killed become ours, and are next."""
    until = time.monotonic() + CLEARED_WITHIN
    while (children := _children()) and time.monotonic() < until:
        for child in children:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.005)
        _reaped()


def _children() -> list[int]:
    own, found = str(os.getpid()), []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
            if file.read().rpartition(")")[2].split()[1] == own:
                found.append(int(name))
    return found


if __name__ == "__main__":
    sys.exit(main())
