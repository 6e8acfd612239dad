"""The watcher, a program of its own on the standard library alone: runs an instance's command and bounds its logs.

It outlives the engine. It reads its plan from standard input, writes the command's exit code to a file, then stops the
instance (section 2.6).

A log holds the beginning of what was written, up to half of what it may take. What has no room there goes into files
beside it, `LOG.HEAD+START`, each of a quarter: HEAD bytes are in the log itself, START is the position in all that was
written at which the file begins. The newest two of them are kept. So a reader always knows how much was left out.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import Any

NOT_RUN = 127
"""The exit code where the runtime itself could not be run."""

LOOK_INTERVAL = 0.25
"""Seconds between two looks at what the container itself has written into the log."""

CHUNK, PIPE = 1 << 16, 1 << 20
"""Bytes that are read at once; and at most at the end, which is more than a pipe holds."""

GOES_ON = b"\n[hatchway: the log is full here; the newest of what followed is in the files %s.* beside this one]\n"


def main() -> None:
    try:
        plan = json.load(sys.stdin.buffer)
    except ValueError:
        return  # the engine ended before it had sent the whole plan
    # Signals of the terminal are meant for the engine. The command gets their default handling back.
    for ignored in (signal.SIGHUP, signal.SIGINT):
        signal.signal(ignored, signal.SIG_IGN)
    logs = [BoundedLog(path, begin, plan["most"]) for path, begin in plan["logs"]]
    if plan["exec"]:
        command = Command(plan["exec"], plan["env"], logs)
        write_code(plan["exit"], command.wait())
        if began(plan["pid"]) == plan["ticks"]:
            Command(plan["stop"], plan["env"], []).wait()
        command.read_rest()
    while began(plan["pid"]) == plan["ticks"]:
        time.sleep(LOOK_INTERVAL)
        for log in logs:
            log.bound()
    for log in logs:
        log.bound()


class BoundedLog:
    """One stream's log, which begins at `begin` of its file and may take `most` bytes."""

    def __init__(self, path: str, begin: int, most: int) -> None:
        self._path, self._head, self._size = path, most // 2, most // 4
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        self._full = begin + self._head
        self._parts: list[str] = []
        self._part, self._room = -1, 0
        self._at = self._head
        """The position, in all that was written, of the next byte that goes into a file beside the log."""

    def write(self, data: bytes) -> None:
        room = 0 if self._parts else max(0, self._full - os.fstat(self._file).st_size)
        if data[:room]:
            with suppress(OSError):  # a full disk must not hold up the command that writes
                os.write(self._file, data[:room])
        if data[room:]:
            self._spill(data[room:])

    def bound(self) -> None:
        """Cut off what the container itself has written past the bound: it has the file open and knows no bound."""
        excess = os.fstat(self._file).st_size - self._full
        if excess > 0:
            kept = os.pread(self._file, min(excess, self._size), self._full + max(0, excess - self._size))
            os.ftruncate(self._file, self._full)
            if excess > len(kept):
                self._skip(excess - len(kept))
            self._spill(kept)

    def _spill(self, data: bytes) -> None:
        while data:
            try:
                if not self._room:
                    self._open_part()
                written = os.write(self._part, data[: self._room])
            except OSError:
                self._skip(len(data))
                return
            self._at, self._room, data = self._at + written, self._room - written, data[written:]

    def _skip(self, count: int) -> None:
        """Leave out `count` bytes: what follows goes into a new file."""
        self._at, self._room = self._at + count, 0

    def _open_part(self) -> None:
        name = f"{self._path}.{self._head}+{self._at}"
        part = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        if self._part >= 0:
            os.close(self._part)
        self._part, self._room = part, self._size
        if not self._parts:
            with suppress(OSError):
                self._full += os.write(self._file, GOES_ON % os.fsencode(os.path.basename(self._path)))
        self._parts.append(name)
        while len(self._parts) > 2:
            with suppress(OSError):
                os.unlink(self._parts.pop(0))


class Command:
    """A program whose output goes into `logs`, out and err, or nowhere where there are none."""

    def __init__(self, argv: list[str], env: dict[str, str], logs: list[BoundedLog]) -> None:
        self._logs: dict[int, BoundedLog] = {}
        self._open: list[int] = []
        self._ended, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake)
        actions: list[Any] = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
        theirs = []
        for target in (1, 2):
            if logs:
                reading, writing = os.pipe()
                os.set_blocking(reading, False)
                self._logs[reading] = logs[target - 1]
                self._open.append(reading)
            else:
                writing = os.open(os.devnull, os.O_WRONLY)
            theirs.append(writing)
            actions.append((os.POSIX_SPAWN_DUP2, writing, target))
        self._pid = 0
        with suppress(OSError):
            own = [signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ]  # Python ignores the last two
            self._pid = os.posix_spawn(argv[0], argv, env, file_actions=actions, setsigdef=own)
        for writing in theirs:
            os.close(writing)

    def wait(self) -> int:
        """Take what the program writes until it ends. Returns its exit code, or 128 and the number of the signal that
        ended it."""
        if not self._pid:
            return NOT_RUN
        while True:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self.read_rest()
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            # The end of a child wakes this up, and what the container writes into the log itself does not: it is looked
            # for every `LOOK_INTERVAL` seconds.
            ready = select.select([self._ended, *self._open], [], [], LOOK_INTERVAL)[0]
            for reading in ready:
                self._read(reading, CHUNK)
            for log in self._logs.values():
                log.bound()

    def read_rest(self) -> None:
        """Take what is in the pipes. It does not wait for their end: a process in the container may have them open."""
        for reading in list(self._open):
            self._read(reading, PIPE)

    def _read(self, reading: int, most: int) -> None:
        with suppress(BlockingIOError):
            data = os.read(reading, most)
            if reading == self._ended:
                return
            if data:
                self._logs[reading].write(data)
            else:
                self._open.remove(reading)
                os.close(reading)


def write_code(path: str, code: int) -> None:
    """Write the exit code, whole or not at all; it is on the disk when this returns."""
    temporary = path + ".new"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    os.write(fd, b"%d\n" % code)
    os.fsync(fd)
    os.close(fd)
    os.rename(temporary, path)


def began(pid: int) -> str:
    """The clock tick in which a process began. By it a later process of the same pid, of another instance, is told."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        return ""


if __name__ == "__main__":
    main()
