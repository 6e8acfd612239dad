"""Runs one command in one instance and outlives the engine. A program of its own, standard library only.

Reads its plan from standard input, writes the exit code to a file, then stops the instance (section 2.6, `command`).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

NOT_RUN = 127
"""The exit code where the runtime itself could not be run."""


def main() -> None:
    try:
        plan = json.load(sys.stdin.buffer)
    except ValueError:
        return  # whoever began it is gone, and did not hand the whole plan over
    # The terminal's signals are for the engine; the children get their own defaults back.
    for ignored in (signal.SIGHUP, signal.SIGINT):
        signal.signal(ignored, signal.SIG_IGN)
    write_code(plan["exit"], run(plan["exec"], plan["env"], plan["out"], plan["err"]))
    if began(plan["pid"]) == plan["ticks"]:
        run(plan["stop"], plan["env"], os.devnull, os.devnull)


def run(argv: list[str], env: dict[str, str], out: str, err: str) -> int:
    """The exit code of `argv`; 128 and the signal's number where one ended it."""
    streams = [os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600) for path in (out, err)]
    actions: list[Any] = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
    actions += [(os.POSIX_SPAWN_DUP2, stream, target) for target, stream in enumerate(streams, 1)]
    try:
        pid = os.posix_spawn(argv[0], argv, env, file_actions=actions, setsigdef=[signal.SIGHUP, signal.SIGINT])
    except OSError:
        return NOT_RUN
    finally:
        for stream in streams:
            os.close(stream)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if code >= 0 else 128 - code


def write_code(path: str, code: int) -> None:
    """Whole or not at all, and on the medium before the instance is gone."""
    temporary = path + ".new"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    os.write(fd, b"%d\n" % code)
    os.fsync(fd)
    os.close(fd)
    os.rename(temporary, path)


def began(pid: int) -> str:
    """The tick in which the process began, so that a later instance is never stopped for this one."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        return ""


if __name__ == "__main__":
    main()
