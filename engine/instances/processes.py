"""Processes that need not be children of the engine: known by pid and start time, waited for by pidfd.

They are never recognised by their arguments: any process can have those, in a container too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import CompletedProcess
from typing import IO, NamedTuple

import msgspec
import trio

from hatchway.engine.base import files
from hatchway.engine.base.errors import RuntimeUnavailable
from hatchway.engine.instances.apptainer import launcher

CALL_WITHIN = 30.0
"""Seconds in which a call of another program must end. A network folder or a daemon that is away may hold it."""

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Process(NamedTuple):
    """A process of our own user."""

    pid: int
    argv: tuple[str, ...]


def since(pid: int) -> str:
    """The boot and clock tick in which a process began, empty if there is none. Unlike a pid it is never used again."""
    fields = _stat(pid)
    return f"{_BOOT.read_text().strip()}:{fields[19]}" if fields else ""


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the program's name, which may itself hold any bytes; none where there is no
    such process that we may see."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []  # any other error, as where too many files are open, says nothing of the process


def own(sessions: Collection[int] | None = None) -> Iterator[Process]:
    """The processes of our user that have an argument vector (zombies have none), in these sessions or in all."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        if sessions is None or session(int(name)) in sessions:  # asked first: it costs least, and few are in them
            with suppress(OSError):
                line = Path(f"/proc/{name}/cmdline").read_bytes()
                if line and _uid(name) == os.geteuid():
                    yield Process(int(name), tuple(os.fsdecode(line).rstrip("\0").split("\0")))


def _uid(pid: str) -> int:
    """The user of a process, from its `status`: the owner of its folder in /proc is root where it may not be traced."""
    for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[2])
    return -1


class ProcessHandle:
    """A running process, by a pidfd: a signal never reaches another process that got the same pid."""

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
    """A handle of the process `pid` that began at `begun`, for the block; None where it has ended."""
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
    """Wait until the process `pid` that began at `begun` has ended."""
    with held(pid, begun) as process:
        if process is not None:
            await process.wait()


def kill(pid: int, begun: str) -> None:
    """Send SIGKILL, unless the pid belongs to another process by now."""
    with held(pid, begun) as process:
        if process is not None:
            process.kill()


def session(pid: int) -> int:
    """The session id of a process, 0 if there is no such process. It outlives the process that began the session."""
    fields = _stat(pid)
    return int(fields[3]) if fields else 0


def in_sessions(sessions: Collection[int]) -> list[int]:
    """The pids of our user's processes that are in one of these sessions. It reads of every process of the host."""
    return [process.pid for process in own(sessions)]


def seconds_between(one: str, other: str) -> float:
    """Seconds from one process's beginning to another's, infinite where a boot lies between."""
    (boot, ticks), (other_boot, other_ticks) = one.split(":"), other.split(":")
    return abs(int(ticks) - int(other_ticks)) / os.sysconf("SC_CLK_TCK") if boot == other_boot else float("inf")


@contextmanager
def _starting(program: str) -> Iterator[None]:
    """For a block that starts a program. Raises RuntimeUnavailable where it can't: a host may be out of processes,
    memory or open files for a moment."""
    try:
        yield
    except OSError as error:
        name, why = Path(program).name, files.reason(error)
        raise RuntimeUnavailable(f"{name} can't be run at the moment: {why}", retry_after=30) from error


async def call(argv: Sequence[str], env: Mapping[str, str]) -> CompletedProcess[bytes]:
    """Run a program to its end, without input. Raises RuntimeUnavailable where it can't be started, or does not end in
    time: it is ended then."""
    with _starting(argv[0]), trio.move_on_after(CALL_WITHIN):
        return await trio.run_process(
            argv, env=env, cwd="/", stdin=b"", capture_stdout=True, capture_stderr=True, check=False
        )
    raise RuntimeUnavailable(f"{Path(argv[0]).name} does not answer", retry_after=30)


class Child:
    """A process that is started in a session of its own, so that it outlives the engine. Raises RuntimeUnavailable
    where it can't be started."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.DEVNULL,
        stderr: int | IO[bytes] = subprocess.DEVNULL,
    ) -> None:
        with _starting(argv[0]):
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
        popen.returncode = 0  # else Popen warns when it is collected before its child has ended

    async def wait(self) -> int:
        """Wait for the exit code. When cancelled, the child goes on."""
        await wait_gone(self.pid, since(self.pid))
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])  # noqa: ASYNC222 - it has ended
        return self._code


class Noted(NamedTuple):
    """A running process that was noted in a file, by pid and start."""

    pid: int
    since: str


def noted(note: Path) -> Noted | None:
    """The process that is noted in the file `note`; None where there is no such file, or it has ended."""
    with suppress(FileNotFoundError, ValueError):
        pid, begun = note.read_text().split()
        if since(int(pid)) == begun and _stat(int(pid))[0] not in ("Z", "X"):
            return Noted(int(pid), begun)
    return None


async def begin(
    program: str, arguments: Sequence[str], env: Mapping[str, str], note: Path, plan: bytes, **streams: int | IO[bytes]
) -> Child:
    """Start a program of ours and note it in the file `note`, then send it its plan on standard input.

    Without its whole plan the program does nothing. So nothing is done by a process that a later engine can't find.
    `streams` are a Child's `stdout` and `stderr`. Raises FileRefused where the note can't be written,
    RuntimeUnavailable where the program can't be started.
    """
    with _starting(program):
        theirs, ours = os.pipe()
    async with trio.lowlevel.FdStream(ours) as pipe:
        try:
            child = Child([sys.executable, "-I", "-S", program, *arguments], env, stdin=theirs, **streams)
        finally:
            os.close(theirs)
        try:
            files.write_private(note, f"{child.pid} {since(child.pid)}\n".encode())
            with suppress(trio.BrokenResourceError):  # it has ended already, which the caller sees by waiting for it
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
