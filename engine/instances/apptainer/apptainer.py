"""Apptainer on this host: an instance is started, confirmed by the runtime's own list, watched, and ended."""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path

import msgspec
import structlog
import trio

from hatchway.engine.base import files
from hatchway.engine.base.errors import InstanceExists, RuntimeUnavailable
from hatchway.engine.instances import argv, binds, output, processes
from hatchway.engine.instances.apptainer.calls import Calls
from hatchway.engine.instances.apptainer.commands import Commands, exit_code
from hatchway.engine.instances.apptainer.host import Host, check_limits, this_host
from hatchway.engine.instances.processes import Child, Noted
from hatchway.engine.instances.protocol import ConfirmedStart, ListedInstance, Report, StartFailed, Stream
from hatchway.engine.instances.request import InstanceRequest
from hatchway.engine.instances.runtime_messages import progress_of, refusal_of
from hatchway.engine.settings.settings import Limits

log = structlog.get_logger(__name__)

STOP_SECONDS = 10
"""Seconds an instance has to end by itself once it is told to."""

CLEARED_WITHIN = 5.0
"""Seconds that the processes of an ended instance have to end too, before they are killed."""

BEGUN_WITHIN = 60.0
"""Seconds at most between an instance's beginning and that of the processes that serve it."""

RUNTIME = ".apptainer"
"""The runtime's folder, in `folder`, where the user's home can't be written. No instance can have that name."""

_WORDS, _LAUNCHER, _LOGS = "start.log", "launcher", "logs"
"""Files in an instance's folder: the runtime's messages at its start, made before the runtime is called; the launcher's
pid; where the logs of an ended instance are, and the offsets at which they begin and end."""


class Apptainer:
    """Runs instances on this host. `folder` is a private folder of the engine's, with a folder for each instance."""

    def __init__(
        self,
        folder: Path,
        allow_root: Callable[[], bool],
        host: Callable[[], Host] = this_host,
        log_bytes: Callable[[], int] = lambda: Limits().instance_log_bytes,
    ) -> None:
        self._folder, self._allow_root, self._host = folder, allow_root, host
        self._userns = os.geteuid() == 0
        self._log_bytes = log_bytes
        self._calls = Calls(folder / RUNTIME)
        self._launchers: dict[str, Child] = {}
        self._stops: dict[str, trio.Lock] = {}

    @cached_property
    def _commands(self) -> Commands:
        return Commands(self._calls.env, self._log_bytes)

    def admit(self, request: InstanceRequest) -> None:
        """Raises RuntimeUnavailable, ResourcesUnavailable."""
        if self._userns and not self._allow_root():
            raise RuntimeUnavailable(
                "the engine runs as root: run it as an ordinary user, or set `allow_root_instances`"
            )
        _ = self._calls.program
        check_limits(request, self._host())

    async def run(self) -> None:
        """Nothing: nothing is done for all instances together."""

    # Starting

    async def start(self, request: InstanceRequest, report: Report | None = None) -> ConfirmedStart:
        identity = request.identity
        self.forget(identity)
        if identity in await self._calls.list():
            raise StartFailed(InstanceExists("an instance of that name runs that this engine did not start"), 1)
        for path in self._calls.logs(identity):
            output.remove_rest(Path(path))
        sizes = {path: output.size(Path(path)) for path in self._calls.logs(identity)}
        _refuse_if(binds.moved(argv.binds(request)), identity)
        self._launchers[identity] = await self._launch(request)
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
            self.forget(identity)  # what runs under that name is not ours, so there is nothing to undo
        return StartFailed(refusal, code)

    def _launched(self, identity: str) -> bool:
        """Whether this engine, in this run or an earlier one, has called the runtime to start that name."""
        return (self._folder / identity / _WORDS).exists()

    async def _launch(self, request: InstanceRequest) -> Child:
        folder = self._folder / request.identity
        files.make_private_dir(folder)
        files.make_private_dir(folder / argv.EMPTY)
        files.write_private(folder / _WORDS, b"")
        with (folder / _WORDS).open("ab") as words:
            start = argv.start_argv(self._calls.program, request, folder, userns=self._userns)
            env = self._calls.env | argv.variables(request)
            return await processes.launch(start, env, folder / _LAUNCHER, stderr=words)

    async def adopt(self, request: InstanceRequest, report: Report | None = None) -> ConfirmedStart:
        launcher = processes.noted(self._folder / request.identity / _LAUNCHER)
        if launcher is not None:
            await processes.wait_gone(*launcher)
        refusal = refusal_of(self._words(request.identity))
        if not self._launched(request.identity) or isinstance(refusal, InstanceExists):
            raise self._failed(request.identity, 1)
        return await self._confirm(request, {})

    async def _confirm(self, request: InstanceRequest, sizes: dict[str, int]) -> ConfirmedStart:
        entry = (await self._calls.list()).get(request.identity)
        begun = None if entry is None else _begun(entry)
        if begun is None:
            raise StartFailed(RuntimeUnavailable("the instance was gone before it had started"), 1)
        _refuse_if(binds.differs(begun.entry.pid, argv.binds(request)), request.identity)
        begins = (sizes.get(begun.entry.log_out_path, 0), sizes.get(begun.entry.log_err_path, 0))
        started = msgspec.structs.replace(begun, log_from=begins)
        program = self._calls.program
        run = argv.exec_argv(program, request, userns=self._userns) if request.command else []
        stop = argv.stop_argv(program, request.identity, STOP_SECONDS)
        await self._commands.ensure(self._folder / request.identity, started, run, stop, argv.variables(request))
        return started

    async def heard(self) -> None:
        """Nothing: what is asked reaches the runtime at once, since it is a program of this host."""

    async def undo(self, identity: str) -> None:
        if not self._launched(identity):
            return
        await processes.give_up(self._folder / identity / _LAUNCHER)
        child = self._launchers.pop(identity, None)
        if child is not None:
            await child.wait()
        entry = (await self._calls.list()).get(identity)
        begun = None if entry is None else _begun(entry)
        if begun is not None:
            processes.kill(begun.entry.pid, begun.since)
        await self._clear(identity, begun, CLEARED_WITHIN if begun else 0)

    # Running

    async def wait_ended(self, request: InstanceRequest, started: ConfirmedStart) -> int | None:
        folder = self._folder / request.identity
        async with trio.open_nursery() as nursery:
            scope = nursery.cancel_scope
            nursery.start_soon(_then_cancel, scope, processes.wait_gone, started.entry.pid, started.since)
            if request.command and self._commands.known(folder):
                nursery.start_soon(_then_cancel, scope, self._commands.wait, folder)
        if processes.since(started.entry.pid) == started.since:
            # The watcher was killed and the instance was not. How the command ends would never be known.
            await self.stop(request, started)
        await self._clear(request.identity, started, CLEARED_WITHIN)
        # A call of `stop` that is still under way would stop the next instance of the name.
        async with self._stop_turn(request.identity):
            ends = [(path, begin, output.size(path)) for path, begin in map(partial(self.log, started), ("out", "err"))]
            files.write_private(folder / _LOGS, msgspec.json.encode([(str(path), *ends) for path, *ends in ends]))
            return exit_code(folder)

    async def stop(self, request: InstanceRequest, started: ConfirmedStart) -> None:
        arguments = argv.stop_argv(self._calls.program, request.identity, STOP_SECONDS)
        async with self._stop_turn(request.identity):
            if processes.since(started.entry.pid) != started.since:
                return
            if (await self._calls.run(arguments)).returncode:
                await self.kill(request, started)

    def _stop_turn(self, identity: str) -> trio.Lock:
        return self._stops.setdefault(identity, trio.Lock())

    async def kill(self, request: InstanceRequest, started: ConfirmedStart) -> None:
        processes.kill(started.entry.pid, started.since)

    async def _clear(self, identity: str, started: ConfirmedStart | None, seconds: float) -> None:
        """Wait until the processes of an ended instance have ended; kill those that have not after `seconds`."""
        folder = self._folder / identity
        with trio.move_on_after(seconds):
            for process in await _belonging(started):
                await processes.wait_gone(*process)
            await self._commands.wait(folder)
        await _kill_all(started)
        self._commands.kill(folder)
        await self._commands.wait(folder)

    # Progress and logs

    def progress(self, identity: str) -> str:
        return progress_of(self._words(identity))

    def _words(self, identity: str) -> str:
        with suppress(OSError):
            return (self._folder / identity / _WORDS).read_text(errors="replace")
        return ""

    def log(self, started: ConfirmedStart, stream: Stream) -> tuple[Path, int]:
        entry, error = started.entry, stream == "err"
        return Path(entry.log_err_path if error else entry.log_out_path), started.log_from[error]

    def forget(self, identity: str) -> None:
        self._stops.pop(identity, None)
        with suppress(OSError, msgspec.DecodeError):
            for log in msgspec.json.decode(
                (self._folder / identity / _LOGS).read_bytes(), type=list[tuple[str, int, int]]
            ):
                output.remove(*log)
        shutil.rmtree(self._folder / identity, ignore_errors=True)


def _begun(entry: ListedInstance) -> ConfirmedStart | None:
    """The instance of an entry in the runtime's list; None where its process has ended."""
    since = processes.since(entry.pid)
    return ConfirmedStart(entry, since, session=processes.session(entry.pid)) if since else None


def _refuse_if(why: str, identity: str) -> None:
    """Raises StartFailed where there is a reason `why`; then the caller undoes the start."""
    if why:
        log.warning("instance_volume_refused", instance=identity, why=why)
        raise StartFailed(refusal_of(why), 1)


async def _belonging(started: ConfirmedStart | None) -> list[Noted]:
    """The processes that serve an instance. Its parent process opens a session, in which they stay when it has
    ended."""
    # In a thread: a host may have thousands of processes, and reading of them all would hold everybody's requests.
    pids = await trio.to_thread.run_sync(processes.in_sessions, {started.session}) if started else []
    found = [Noted(pid, processes.since(pid)) for pid in pids]
    # The session id may have been given out again: only processes that began with the instance belong to it.
    return [process for process in found if started and _apart(process, started) < BEGUN_WITHIN]


def _apart(process: Noted, started: ConfirmedStart) -> float:
    return processes.seconds_between(process.since, started.since) if process.since else float("inf")


async def _kill_all(started: ConfirmedStart | None) -> None:
    """Send SIGKILL until no process serves the instance: one may have forked before it was killed."""
    while left := await _belonging(started):
        for process in left:
            processes.kill(*process)
        for process in left:
            await processes.wait_gone(*process)


async def _then_cancel(scope: trio.CancelScope, wait: Callable[..., Awaitable[None]], *arguments: object) -> None:
    await wait(*arguments)
    scope.cancel()
