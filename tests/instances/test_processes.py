"""Processes that need not be ours: what the engine makes of a host that is short of them, or has thousands."""

from __future__ import annotations

import ctypes
import errno
import multiprocessing
import os
import resource
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import trio

from hatchway.engine.base.errors import RuntimeUnavailable
from hatchway.engine.instances import processes
from hatchway.engine.instances.apptainer.apptainer import Apptainer
from hatchway.engine.instances.apptainer.calls import Calls
from hatchway.engine.instances.protocol import ConfirmedStart, ListedInstance

_SET_NAME = 15
"""PR_SET_NAME of prctl(2)."""


@contextmanager
def no_more_files() -> Iterator[None]:
    """For the block, this process has as many files open as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = os.open("/", os.O_RDONLY)
    os.close(last)
    resource.setrlimit(resource.RLIMIT_NOFILE, (last, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    """Whatever the system says of it, it is a refusal after which a later try can succeed, and names no path."""
    (tmp_path / "program").touch(0o700)  # empty, which the kernel does not take for a program
    with pytest.raises(RuntimeUnavailable) as refused:
        await processes.call([str(tmp_path / "program")], {})
    assert refused.value.retry_after
    assert refused.value.detail.startswith("program can't be run at the moment: ")
    with no_more_files(), pytest.raises(RuntimeUnavailable) as refused:
        await processes.launch(["/bin/true"], {}, tmp_path / "note")
    assert refused.value.retry_after


async def test_a_program_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one does whose network folder is away: the caller is told, and the program ended."""
    monkeypatch.setattr(processes, "CALL_WITHIN", 0.1)
    seconds = f"{os.getpid()}.5"
    with trio.fail_after(20), pytest.raises(RuntimeUnavailable, match="sleep does not answer"):
        await processes.call(["/bin/sleep", seconds], {})
    assert not [process for process in processes.own() if process.argv[-1] == seconds]


async def test_a_fork_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a limit of processes too, of the system's own programs and of those that outlive the engine."""

    def fails(*arguments: object, **options: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr("subprocess.Popen", fails)
    with pytest.raises(RuntimeUnavailable, match="temporarily"):
        await processes.call(["/bin/true"], {})
    with pytest.raises(RuntimeUnavailable, match="temporarily"):
        await processes.launch(["/bin/true"], {}, tmp_path / "note")


def test_too_many_open_files_end_no_process(tmp_path: Path) -> None:
    """A process that can't be looked at for want of a file is not taken for one that has ended."""
    note = tmp_path / "note"
    note.write_text(f"{os.getpid()} {processes.since(os.getpid())}\n")
    assert processes.noted(note)
    with no_more_files():
        with pytest.raises(OSError, match="Too many open files"):
            processes.since(os.getpid())
        with pytest.raises(OSError, match="Too many open files"):
            processes.noted(note)


def _named(told: Connection) -> None:
    os.setsid()
    ctypes.CDLL(None).prctl(_SET_NAME, b"\xff) S 1 (", 0, 0, 0)
    told.send(os.getpid())
    told.recv()


def test_names_that_are_no_text() -> None:
    """Any user may name a process with any bytes: it is found in its session, and hides none."""
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_named, args=(theirs,))
    child.start()
    try:
        pid = ours.recv()
        assert processes.in_sessions({pid}) == [pid]
    finally:
        child.kill()
        child.join()


def test_few_processes_are_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a host's processes only those in the sessions asked for, however many others there are."""
    looked_at: list[str] = []

    def uid_of(pid: str) -> int:
        looked_at.append(pid)
        return os.geteuid()

    monkeypatch.setattr(processes, "_uid", uid_of)
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as child:
        assert processes.in_sessions({child.pid}) == [child.pid]
        child.kill()
    assert looked_at == [str(child.pid)]


async def test_looking_for_processes_holds_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the host's processes are read at an instance's end, the engine's loop goes on."""
    went_on, waited = threading.Event(), []

    def slow(sessions: object) -> list[int]:
        waited.append(went_on.wait(5))
        return []

    monkeypatch.setattr(processes, "in_sessions", slow)
    started = ConfirmedStart(ListedInstance("one", os.getpid(), "", "", "", ""), "boot:1", session=os.getpid())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Apptainer(tmp_path, lambda: True)._clear, "one", started, 5)
        await trio.testing.wait_all_tasks_blocked()
        went_on.set()
    assert waited == [True, True]


class BreaksOff(Calls):
    """The runtime where it ends before it has printed anything."""

    program = "/usr/bin/apptainer"

    async def run(self, arguments: list[str]) -> CompletedProcess[bytes]:
        return CompletedProcess(arguments, 2, b"", b"runtime: failed to create new OS thread (errno=11)")


async def test_a_list_that_cannot_be_read(tmp_path: Path) -> None:
    """It tells nothing of what runs, and a later try can succeed."""
    with pytest.raises(RuntimeUnavailable) as refused:
        await BreaksOff(tmp_path / "own").list()
    assert refused.value.retry_after
