"""Runs instances as jobs of Slurm: a job's script runs Apptainer on its node, in a folder that all nodes share."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog
import trio

from hatchway.engine.base import files
from hatchway.engine.base.errors import Refusal, ResourcesUnavailable, RuntimeUnavailable
from hatchway.engine.instances import argv, binds
from hatchway.engine.instances.apptainer import watcher
from hatchway.engine.instances.apptainer.calls import PATH, Calls
from hatchway.engine.instances.apptainer.commands import exit_code
from hatchway.engine.instances.protocol import ConfirmedStart, ListedInstance, Lost, Report, StartFailed, Stream
from hatchway.engine.instances.request import InstanceRequest
from hatchway.engine.instances.runtime_messages import progress_of, refusal_of
from hatchway.engine.instances.slurm import node
from hatchway.engine.instances.slurm.job import SlurmJob, sbatch_options
from hatchway.engine.instances.slurm.jobs import Jobs, Unsure
from hatchway.engine.settings.settings import Limits

log = structlog.get_logger(__name__)

STOP_SECONDS = 10
"""Seconds an instance has to end by itself once its job is told to."""

LOOK_INTERVAL = 0.25
"""Seconds between two looks for files that a job leaves in its folder. (Shared file systems have no notifications.)"""

WRITTEN_WITHIN = 5.0
"""Seconds after a job's end until what its node has written is seen from here."""

HEARD_WITHIN = 3.0
"""Seconds that a stop waits for Slurm's answer."""

UNDONE_WITHIN = 10.0
"""Seconds after which a start that can't be undone yet is left for a later try."""

_KEY, _SCRIPT, _OUTPUT = "key", "job.sh", "job.log"
_NODE, _WATCHER, _BINDS = Path(node.__file__), Path(watcher.__file__), Path(binds.__file__)
_RUNTIME = "apptainer"
"""The runtime's program, found by the node's own PATH."""


class _Begun(msgspec.Struct):
    """The file that the node's program leaves once the instance runs."""

    entry: ListedInstance
    node: str


class Slurm:
    """Runs instances on a cluster. `folder` is a private folder that every node has under the same path."""

    def __init__(
        self,
        folder: Path,
        allow_root: Callable[[], bool],
        log_bytes: Callable[[], int] = lambda: Limits().instance_log_bytes,
    ) -> None:
        self._folder, self._allow_root, self._log_bytes = folder, allow_root, log_bytes
        self._calls = calls = Calls()
        self._userns = os.geteuid() == 0
        self._env = {"PATH": PATH, "HOME": calls.user.pw_dir, "APPTAINER_CACHEDIR": str(folder / "cache")}
        self._jobs = Jobs(calls.env, calls.user.pw_name)
        self._unheard: set[str] = set()

    async def run(self) -> None:
        """Poll for all jobs, for ever."""
        await self._jobs.run()

    def admit(self, request: InstanceRequest) -> None:
        """Raises RuntimeUnavailable, ResourcesUnavailable."""
        if self._userns and not self._allow_root():
            raise RuntimeUnavailable(
                "the engine runs as root: run it as an ordinary user, or set `allow_root_instances`"
            )
        self._calls.check_user()
        self._jobs.program("sbatch")
        if request.gpu == "all":
            why = "Slurm gives GPUs by their count"
            raise ResourcesUnavailable(f"gpu: {why}", errors={"gpu": why})

    # Starting

    async def start(self, request: InstanceRequest, report: Report) -> ConfirmedStart:
        self.forget(request.identity)
        key = secrets.token_hex(12)
        folder = self._folder / request.identity / key
        script = self._write(request, folder, key)
        try:
            job = await self._jobs.submit(key, sbatch_options(request, folder / _OUTPUT), script)
        except Refusal as refused:
            if not isinstance(refused, Unsure):
                self.forget(request.identity)  # there is no job, so there is nothing to undo
            raise StartFailed(refused, 1) from None
        await report.queued(job)
        return await self._follow(request, key, report)

    def _write(self, request: InstanceRequest, folder: Path, key: str) -> Path:
        """Write all that the job needs into private files. Slurm itself gets the script alone, which holds no values of
        variables. Returns the script's path."""
        files.make_private_dir(folder)
        files.make_private_dir(folder / argv.EMPTY)
        env = self._env | {"APPTAINER_CONFIGDIR": str(folder / "apptainer")} | argv.variables(request)
        plan = {
            "identity": request.identity,
            "start": argv.start_argv(_RUNTIME, request, folder, userns=self._userns, limits=False),
            "list": argv.list_argv(_RUNTIME),
            "exec": argv.exec_argv(_RUNTIME, request, userns=self._userns) if request.command else [],
            "stop": argv.stop_argv(_RUNTIME, request.identity, STOP_SECONDS),
            "env": env,
            "binds": argv.binds(request),
            "log_bytes": self._log_bytes(),
        }
        files.write_private(folder / node.PLAN, msgspec.json.encode(plan))
        for program in (_NODE, _WATCHER, _BINDS):
            files.write_private(folder / program.name, program.read_bytes())
        run = shlex.join(["exec", "python3", "-I", "-S", str(folder / _NODE.name), str(folder)])
        files.write_private(folder / _SCRIPT, f"#!/bin/sh\nPATH={PATH}\nexport PATH\n{run}\n".encode())
        files.write_private(folder.parent / _KEY, key.encode())  # written last: from here on there may be a job
        return folder / _SCRIPT

    async def adopt(self, request: InstanceRequest, report: Report) -> ConfirmedStart:
        key = self._key(request.identity)
        if key is None:
            raise StartFailed(RuntimeUnavailable("the start was cut off before Slurm was asked"), 1)
        job = await self._find(request.identity, key)
        if job is None and self._begun(request.identity, key) is None:
            raise StartFailed(RuntimeUnavailable("Slurm has no such job"), 1)
        if job is not None:
            await report.queued(str(job.job_id))
        return await self._follow(request, key, report)

    async def _follow(self, request: InstanceRequest, key: str, report: Report) -> ConfirmedStart:
        await self._jobs.wait(key, lambda job: job is None or not job.waits)
        await report.placed()
        until = float("inf")
        while (started := self._begun(request.identity, key)) is None:
            job = self._jobs.seen(key)
            if job is None or job.ended:
                until = min(until, trio.current_time() + WRITTEN_WITHIN)
            if self._failed(request.identity) is not None or trio.current_time() >= until:
                raise self._failure(request.identity, job)
            await trio.sleep(LOOK_INTERVAL)
        return started

    async def _find(self, identity: str, key: str) -> SlurmJob | None:
        """The job of a start that an earlier run of the engine may have begun. The number of a job that is found by its
        mark is kept."""
        folder = self._folder / identity / key
        await self._jobs.submitted(key, folder)
        self._jobs.knows(key, folder)
        job = (await self._jobs.look()).get(key)
        self._jobs.learn(key, folder)
        return job

    def _begun(self, identity: str, key: str) -> ConfirmedStart | None:
        with suppress(OSError, msgspec.DecodeError):
            begun = msgspec.json.decode((self._of(identity) / node.STARTED).read_bytes(), type=_Begun)
            return ConfirmedStart(begun.entry, key, node=begun.node)
        return None

    def _failed(self, identity: str) -> int | None:
        with suppress(OSError, ValueError):
            return int((self._of(identity) / node.FAILED).read_text())
        return None

    def _failure(self, identity: str, job: SlurmJob | None) -> StartFailed:
        code, words = self._failed(identity), self._words(identity)
        log.warning("instance_start_failed", instance=identity, exit_code=code, words=words[-2000:])
        end = self._end(identity, job) if job else ("job_lost", "Slurm no longer knows the job")
        if end and (code is None or end[0] != "job_failed"):
            return StartFailed(RuntimeUnavailable(f"{end[1]} before the instance ran", cause=end[0]), code or 1)
        return StartFailed(refusal_of(words), code or 1)

    async def undo(self, identity: str) -> None:
        key = self._key(identity)
        if key is None:
            return
        with trio.move_on_after(UNDONE_WITHIN):
            job = await self._find(identity, key)
            if job is not None and not job.ended:
                await self._jobs.cancel(job)
                await self._jobs.wait(key, lambda job: job is None or job.ended)
            return
        raise RuntimeUnavailable("Slurm does not answer: the job is still to be cancelled", retry_after=30)

    # Running

    async def wait_ended(self, request: InstanceRequest, started: ConfirmedStart) -> int | None:
        folder = self._of(request.identity)
        if not self._jobs.knows(started.since, folder):
            await self._find(request.identity, started.since)
        job = await self._jobs.wait(started.since, lambda job: job is None or job.ended)
        by_itself = job is not None and job.end is None
        with trio.move_on_after(WRITTEN_WITHIN if request.command and by_itself else 0):
            while exit_code(folder) is None:  # noqa: ASYNC110 - written on another host
                await trio.sleep(LOOK_INTERVAL)
        code = exit_code(folder)
        if job is None and not (folder / node.ENDED).exists():
            raise Lost("job_lost", "Slurm no longer knows the job")
        if job is not None and (end := self._end(request.identity, job)) is not None:
            raise Lost(*end, code)
        return code

    def _end(self, identity: str, job: SlurmJob) -> tuple[str, str] | None:
        """Why Slurm ended the job, None where it ended by itself."""
        with suppress(OSError):
            return job.why_ended((self._of(identity) / _OUTPUT).read_text(errors="replace"))
        return job.end

    async def stop(self, request: InstanceRequest, started: ConfirmedStart) -> None:
        await self._cancel(started, by_force=False)

    async def kill(self, request: InstanceRequest, started: ConfirmedStart) -> None:
        await self._cancel(started, by_force=True)

    async def _cancel(self, started: ConfirmedStart, *, by_force: bool) -> None:
        """Have the job end, and try again until Slurm has taken the request. Force comes after the gentle request was
        taken."""
        if started.since in self._unheard:
            return
        self._unheard.add(started.since)
        try:
            await self._say(started, by_force=by_force)
        finally:
            self._unheard.discard(started.since)

    async def _say(self, started: ConfirmedStart, *, by_force: bool) -> None:
        while (job := (await self._jobs.look()).get(started.since)) is not None and not job.ended:
            with suppress(RuntimeUnavailable):
                await self._jobs.cancel(job, by_force=by_force)
                return
            await trio.sleep(LOOK_INTERVAL)

    async def heard(self) -> None:
        with trio.move_on_after(HEARD_WITHIN):
            await self._jobs.look()
            return
        raise RuntimeUnavailable("Slurm does not answer: the instance is stopped as soon as it does", retry_after=30)

    # Progress and logs

    def progress(self, identity: str) -> str:
        with suppress(OSError):
            job = self._jobs.seen(self._key(identity) or "")
            if job is not None and job.waits:
                return f"queued ({job.state_reason})" if job.state_reason not in (None, "", "None") else "queued"
        return progress_of(self._words(identity))

    def _words(self, identity: str) -> str:
        with suppress(OSError):
            return (self._of(identity) / node.WORDS).read_text(errors="replace")
        return ""

    def _of(self, identity: str) -> Path:
        """The folder of the name's present start. Processes left of an earlier job of that name write into another."""
        return self._folder / identity / (self._key(identity) or "none")

    def _key(self, identity: str) -> str | None:
        """The mark of the name's present start; None where there is none. Raises OSError where the host can't tell, as
        with too many open files: there may be a job then."""
        try:
            return (self._folder / identity / _KEY).read_text()
        except FileNotFoundError:
            return None

    def log(self, started: ConfirmedStart, stream: Stream) -> tuple[Path, int]:
        entry = started.entry
        return Path(entry.log_err_path if stream == "err" else entry.log_out_path), 0

    def forget(self, identity: str) -> None:
        with suppress(OSError):
            self._jobs.forget(self._key(identity) or "")
        shutil.rmtree(self._folder / identity, ignore_errors=True)
