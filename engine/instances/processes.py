"""Processes that need not be children of ours: known by a pid and a start that we wrote down, waited for by pidfd.

Never by their arguments: anybody's process can have those, one in a container too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

import msgspec
import trio

from hatchway.engine.base import files
from hatchway.engine.instances.apptainer import launcher

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Process(NamedTuple):
    """A process of our own user."""

    pid: int
    argv: tuple[str, ...]


def since(pid: int) -> str:
    """The boot and tick in which a process began; empty if there is none. A pid is used again, this is not."""
    fields = _stat(pid)
    return f"{_BOOT.read_text().strip()}:{fields[19]}" if fields else ""


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the program's name, which may itself hold spaces and parentheses."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def own() -> Iterator[Process]:
    """The processes of our user that have an argument vector (zombies have none)."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                line = Path(f"/proc/{name}/cmdline").read_bytes()
                if line and _uid(name) == os.geteuid():
                    yield Process(int(name), tuple(os.fsdecode(line).rstrip("\0").split("\0")))


def _uid(pid: str) -> int:
    """Asked of `status`: a process that may not be traced shows its folder as root's."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[2])
    return -1


class ProcessHandle:
    """A living process, held by a descriptor: its pid can't become another's unseen."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def wait(self) -> None:
        """Returns when it has ended."""
        await trio.lowlevel.wait_readable(self._fd)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._fd, signal.SIGKILL)

    def terminate(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._fd, signal.SIGTERM)


@contextmanager
def held(pid: int, begun: str) -> Iterator[ProcessHandle | None]:
    """The process that began at `begun`, or None where it has ended."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield ProcessHandle(fd) if since(pid) == begun else None
    finally:
        os.close(fd)


async def wait_gone(pid: int, begun: str) -> None:
    """Returns when the process that began at `begun` has ended: at once if it has, by an event if it has not."""
    with held(pid, begun) as process:
        if process is not None:
            await process.wait()


def kill(pid: int, begun: str) -> None:
    """SIGKILL, unless the pid is another's by now."""
    with held(pid, begun) as process:
        if process is not None:
            process.kill()


def session(pid: int) -> int:
    """The session that a process belongs to, even after whoever opened it has ended; 0 if there is no such process."""
    fields = _stat(pid)
    return int(fields[3]) if fields else 0


def in_sessions(sessions: Collection[int]) -> list[int]:
    """The processes of ours in one of these sessions."""
    return [process.pid for process in own() if session(process.pid) in sessions]


def seconds_between(one: str, other: str) -> float:
    """Seconds from one process's beginning to another's, infinite where a boot lies between."""
    (boot, ticks), (other_boot, other_ticks) = one.split(":"), other.split(":")
    return abs(int(ticks) - int(other_ticks)) / os.sysconf("SC_CLK_TCK") if boot == other_boot else float("inf")


class Child:
    """A process that we start in a session of its own, so that it outlives us. Its end comes as an event."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.DEVNULL,
        stderr: int | IO[bytes] = subprocess.DEVNULL,
    ) -> None:
        popen = subprocess.Popen(  # noqa: S603 - an argument vector of our own making, no shell
            argv,
            env=env,
            cwd="/",
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        self.pid = popen.pid
        self._code: int | None = None
        popen.returncode = 0  # a Popen complains when it goes before its child, and ours may outlive us

    async def wait(self) -> int:
        """The exit code. Cancelled, it leaves the child to go on."""
        await wait_gone(self.pid, since(self.pid))
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])  # noqa: ASYNC222 - it has ended
        return self._code


class Noted(NamedTuple):
    """A living process that was written down."""

    pid: int
    since: str


def noted(note: Path) -> Noted | None:
    """The process that is written down in the file `note`, None where there is none or it has ended."""
    with suppress(OSError, ValueError):
        pid, begun = note.read_text().split()
        if since(int(pid)) == begun and _stat(int(pid))[0] not in ("Z", "X"):
            return Noted(int(pid), begun)
    return None


async def begin(
    program: str, arguments: Sequence[str], env: Mapping[str, str], note: Path, plan: bytes, **streams: int | IO[bytes]
) -> Child:
    """Start a program of ours, and write it down in the file `note` before it is sent its plan on standard input.

    Without the whole of its plan it does nothing: no process does anything that a later engine could not find.
    `streams` are a Child's `stdout` and `stderr`. Raises FileRefused where it can't be written down.
    """
    theirs, ours = os.pipe()
    async with trio.lowlevel.FdStream(ours) as pipe:
        try:
            child = Child([sys.executable, "-I", "-S", program, *arguments], env, stdin=theirs, **streams)
        finally:
            os.close(theirs)
        try:
            files.write_private(note, f"{child.pid} {since(child.pid)}\n".encode())
            with suppress(trio.BrokenResourceError):  # it has ended: whoever waits for it will see
                await pipe.send_all(plan)
        except BaseException:
            kill(child.pid, since(child.pid))
            with trio.CancelScope(shield=True):
                await child.wait()
            raise
    return child


async def launch(argv: Sequence[str], env: Mapping[str, str], note: Path, **streams: int | IO[bytes]) -> Child:
    """Run `argv` by a launcher, whose exit code is its own. `give_up` ends it with all that came of it."""
    return await begin(launcher.__file__, (), env, note, msgspec.json.encode(list(argv)), **streams)


async def give_up(note: Path) -> None:
    """Have the launcher that is written down there undo what it does; returns when it has ended."""
    process = noted(note)
    if process is not None:
        with held(*process) as living:
            if living is not None:
                living.terminate()
                await living.wait()
