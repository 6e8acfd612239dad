"""Apptainer on this host: an instance is started, confirmed by the runtime's own list, watched, and ended."""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import structlog
import trio

from engine import files
from engine.errors import InstanceExists, RuntimeUnavailable
from engine.platform import argv, binds, processes
from engine.platform.calls import Calls
from engine.platform.commands import Commands, exit_code
from engine.platform.host import Host, check_limits, this_host
from engine.platform.processes import Child
from engine.platform.protocol import Report, Started, StartFailed, Stream
from engine.platform.request import InstanceRequest
from engine.platform.words import progress_of, refusal_of

log = structlog.get_logger(__name__)

STOP_SECONDS = 10
"""Seconds an instance has to end by itself once it is told to."""

CLEARED_WITHIN = 5.0
"""Seconds that what belongs to an ended instance has to go too, before it is killed."""

BEGUN_WITHIN = 60.0
"""Seconds between an instance's beginning and that of the processes which serve it."""

RUNTIME = ".apptainer"
"""Where the runtime keeps its own where the user's home takes nothing. No instance can be named so."""

_WORDS = "start.log"
"""What the runtime said of a start. It is there from the moment the runtime is asked."""


class Apptainer:
    """The platform of one host. `folder` is a private one of the engine's, for what belongs to each instance."""

    def __init__(self, folder: Path, allow_root: Callable[[], bool], host: Callable[[], Host] = this_host) -> None:
        self._folder, self._allow_root, self._host = folder, allow_root, host
        self._userns = os.geteuid() == 0
        self._calls = Calls(folder / RUNTIME)
        self._launchers: dict[str, Child] = {}
        self._stops: dict[str, trio.Lock] = {}

    @cached_property
    def _commands(self) -> Commands:
        return Commands(self._calls.env)

    def admit(self, request: InstanceRequest) -> None:
        """Raises RuntimeUnavailable, ResourcesUnavailable."""
        if self._userns and not self._allow_root():
            raise RuntimeUnavailable(
                "the engine runs as root: run it as an ordinary user, or set `allow_root_instances`"
            )
        _ = self._calls.program
        check_limits(request, self._host())

    async def run(self) -> None:
        """Nothing: each instance is minded by itself."""

    # Starting

    async def start(self, request: InstanceRequest, report: Report | None = None) -> Started:
        identity = request.identity
        self.forget(identity)
        if identity in await self._calls.list():
            raise StartFailed(InstanceExists("an instance of that name runs that this engine did not start"), 1)
        sizes = {path: _size(path) for path in self._calls.logs(identity)}
        _refuse_if(binds.moved(argv.binds(request)), identity)
        self._launchers[identity] = self._launch(request)
        code = await self._launchers[identity].wait()
        del self._launchers[identity]
        if code:
            words = self._words(identity)
            log.warning("instance_start_failed", instance=identity, exit_code=code, words=words[-2000:])
            raise self._failed(identity, code)
        return await self._confirm(request, sizes)

    def _failed(self, identity: str, code: int) -> StartFailed:
        refusal = refusal_of(self._words(identity))
        if isinstance(refusal, InstanceExists):
            self.forget(identity)  # what runs under that name is somebody else's: there is nothing to undo
        return StartFailed(refusal, code)

    def _launched(self, identity: str) -> bool:
        """Whether the runtime was asked to start that name for us, by this engine or by one before it."""
        return (self._folder / identity / _WORDS).exists()

    def _launch(self, request: InstanceRequest) -> Child:
        folder = self._folder / request.identity
        files.make_private_dir(folder)
        files.make_private_dir(folder / argv.EMPTY)
        files.write_private(folder / _WORDS, b"")
        with open(folder / _WORDS, "ab") as words:
            start = argv.start_argv(self._calls.program, request, folder, userns=self._userns)
            return Child(start, self._calls.env | argv.variables(request), stderr=words)

    async def adopt(self, request: InstanceRequest, report: Report | None = None) -> Started:
        for launcher in _launchers_of(request.identity):
            await processes.wait_gone(launcher, processes.since(launcher))
        refusal = refusal_of(self._words(request.identity))
        if not self._launched(request.identity) or isinstance(refusal, InstanceExists):
            raise self._failed(request.identity, 1)
        return await self._confirm(request, {})

    async def _confirm(self, request: InstanceRequest, sizes: dict[str, int]) -> Started:
        entry = (await self._calls.list()).get(request.identity)
        since = processes.since(entry.pid) if entry else ""
        if entry is None or not since:
            raise StartFailed(RuntimeUnavailable("the instance was gone before it had started"), 1)
        _refuse_if(binds.differs(entry.pid, argv.binds(request)), request.identity)
        begins = (sizes.get(entry.log_out_path, 0), sizes.get(entry.log_err_path, 0))
        started = Started(entry, since, begins, processes.session(entry.pid))
        if request.command:
            run = argv.exec_argv(self._calls.program, request, userns=self._userns)
            stop = argv.stop_argv(self._calls.program, request.identity, STOP_SECONDS)
            self._commands.ensure(self._folder / request.identity, started, run, stop, argv.variables(request))
        return started

    async def heard(self) -> None:
        """The runtime is on this host: it is never away."""

    async def undo(self, identity: str) -> None:
        if not self._launched(identity):
            return
        child = self._launchers.pop(identity, None)
        sessions = {processes.session(launcher) for launcher in _launchers_of(identity)}
        sessions |= {child.pid} if child else set()
        await _kill_all(lambda: processes.in_sessions(sessions))
        if child is not None:
            await child.wait()
        entry = (await self._calls.list()).get(identity)
        if entry is not None:
            processes.kill(entry.pid, processes.since(entry.pid))
        await self._clear(identity, None, CLEARED_WITHIN if entry else 0)

    # Running

    async def wait_ended(self, request: InstanceRequest, started: Started) -> int | None:
        folder = self._folder / request.identity
        async with trio.open_nursery() as nursery:
            scope = nursery.cancel_scope
            nursery.start_soon(_then_cancel, scope, self._wait_process, started)
            if request.command:
                nursery.start_soon(_then_cancel, scope, self._commands.wait, folder)
        if processes.since(started.entry.pid) == started.since:
            # The watcher is gone and the instance is not: somebody killed it, and the command's end with it.
            await self.stop(request, started)
        await self._clear(request.identity, started, CLEARED_WITHIN)
        # A stop that is still under way would strike the next instance of the name.
        async with self._stop_turn(request.identity):
            return exit_code(folder)

    async def _wait_process(self, started: Started) -> None:
        """By an event: its descriptor is opened first and the list read again after, so no end goes unseen."""
        with processes.held(started.entry.pid, started.since) as process:
            if process is None:
                return
            with suppress(RuntimeUnavailable):
                listed = (await self._calls.list()).get(started.entry.instance)
                if listed is None or listed.pid != started.entry.pid:
                    return
            await process.wait()

    async def stop(self, request: InstanceRequest, started: Started) -> None:
        arguments = argv.stop_argv(self._calls.program, request.identity, STOP_SECONDS)
        async with self._stop_turn(request.identity):
            if processes.since(started.entry.pid) != started.since:
                return
            if (await self._calls.run(arguments)).returncode:
                await self.kill(request, started)

    def _stop_turn(self, identity: str) -> trio.Lock:
        return self._stops.setdefault(identity, trio.Lock())

    async def kill(self, request: InstanceRequest, started: Started) -> None:
        processes.kill(started.entry.pid, started.since)

    async def _clear(self, identity: str, started: Started | None, seconds: float) -> None:
        """Wait for what belongs to an ended instance; kill what stays, listed or not."""
        folder = self._folder / identity
        with trio.move_on_after(seconds):
            for pid in self._belonging(identity, started):
                await processes.wait_gone(pid, processes.since(pid))
            await self._commands.wait(folder)
        await _kill_all(lambda: self._belonging(identity, started))
        self._commands.kill(folder)
        await self._commands.wait(folder)

    def _belonging(self, identity: str, started: Started | None) -> list[int]:
        """Whoever minds an instance opens a session; its file system's process stays in it, whatever becomes of him."""
        title = self._calls.title(identity)
        heads = {processes.session(process.pid) for process in processes.own() if process.argv[0].rstrip() == title}
        pids = processes.in_sessions(heads)
        if started is not None:
            # A session's number may be another's by now: only what began with the instance belongs to it.
            orphans = processes.in_sessions({started.session})
            pids += [pid for pid in orphans if _apart(pid, started.since) < BEGUN_WITHIN]
        return pids

    # Beside it

    def progress(self, identity: str) -> str:
        return progress_of(self._words(identity))

    def _words(self, identity: str) -> str:
        with suppress(OSError):
            return (self._folder / identity / _WORDS).read_text(errors="replace")
        return ""

    def log(self, started: Started, stream: Stream) -> tuple[Path, int]:
        entry, error = started.entry, stream == "err"
        return Path(entry.log_err_path if error else entry.log_out_path), started.log_from[error]

    def forget(self, identity: str) -> None:
        self._stops.pop(identity, None)
        shutil.rmtree(self._folder / identity, ignore_errors=True)


def _launchers_of(identity: str) -> list[int]:
    """The runtime's own start commands for that name, of this engine or of one before it."""
    return [
        process.pid
        for process in processes.own()
        if process.argv[1:3] == ("instance", "start") and process.argv[-1] == identity
    ]


def _refuse_if(why: str, identity: str) -> None:
    """Raises StartFailed, whereupon the start is undone."""
    if why:
        log.warning("instance_volume_refused", instance=identity, why=why)
        raise StartFailed(refusal_of(why), 1)


def _apart(pid: int, since: str) -> float:
    own = processes.since(pid)
    return processes.seconds_between(own, since) if own else float("inf")


async def _kill_all(find: Callable[[], list[int]]) -> None:
    """SIGKILL until nobody is left: a process that was about to fork may have."""
    while left := [(pid, processes.since(pid)) for pid in find()]:
        for pid, since in left:
            processes.kill(pid, since)
        for pid, since in left:
            await processes.wait_gone(pid, since)


async def _then_cancel(scope: trio.CancelScope, wait: Callable[..., Awaitable[None]], *arguments: object) -> None:
    await wait(*arguments)
    scope.cancel()


def _size(path: str) -> int:
    with suppress(OSError):
        return os.stat(path).st_size
    return 0
