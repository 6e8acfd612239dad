"""The launcher, a program of its own on the standard library alone: runs another program and clears up if that failed.

It reads an argument vector from standard input, whole or not at all: the engine notes its pid before it sends that. It
ends with the program's exit code. Processes that the program has detached go on where that is 0, and are killed else.
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
"""Seconds until killed processes must be gone."""

_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2)."""

_HEARD = (signal.SIGTERM, signal.SIGCHLD)


def main() -> int:
    try:
        argv = json.load(sys.stdin.buffer)
    except ValueError:
        return NOT_RUN  # the engine ended before it had sent all
    # As a subreaper, this process becomes the parent of whatever the program detaches, and so can find and kill it.
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
    """Kill all descendants. The children of a killed process become ours, and are killed next."""
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
