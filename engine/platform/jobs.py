"""Slurm's own programs: sbatch, scancel, and one squeue for all jobs, whoever waits for which."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import IO

import msgspec
import structlog
import trio

from engine.errors import Refusal, ResourcesUnavailable, RuntimeUnavailable
from engine.platform import processes
from engine.platform.calls import PATH
from engine.platform.processes import Process

log = structlog.get_logger(__name__)

SHORTEST_PAUSE, FIRST_PAUSE, LONGEST_PAUSE = 0.3, 1.0, 10.0
"""Seconds between two looks at the queue: few after something happened, more the longer nothing does."""

CALL_WITHIN = 30.0
"""Seconds that one of Slurm's programs has: sbatch by itself waits minutes for room in the queue."""

_MARK = "hatchway:"
_WAITING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD"})
_ENDS = {
    "BOOT_FAIL": ("job_node_failed", "the job's node could not be started"),
    "CANCELLED": ("job_cancelled", "the job was cancelled"),
    "DEADLINE": ("job_deadline", "the job's deadline came"),
    "FAILED": ("job_failed", "the job failed"),
    "NODE_FAIL": ("job_node_failed", "the job's node failed"),
    "OUT_OF_MEMORY": ("job_out_of_memory", "the job used more memory than it has"),
    "PREEMPTED": ("job_preempted", "the job had to make room for another"),
    "REVOKED": ("job_cancelled", "the job was revoked"),
    "TIMEOUT": ("job_timed_out", "the job's time limit ended"),
}
_OUT_OF_MEMORY = ("xceeded job memory limit", "xceeded memory limit", "oom-kill", "oom_kill")
"""Words of slurmstepd's: by OverMemoryKill, and by cgroups, in older releases and in newer ones."""

_CUT_OFF = ("imed out", "Zero Bytes", "sleeping and retrying")
_AWAY = (
    *("contact slurm controller", "Connection refused", "standby", "temporarily"),
    *("uthentication", "configuration source"),
)
_FIELDS = {
    "account": "account",  # first: it may name the partition too
    "partition": "partition",
    "time limit": "time_limit",
    "Memory": "memory",
    "processors": "cpu",
    "CPU count": "cpu",
    "generic resource": "gpu",
}
"""Words of a reason of Slurm's, and the field of the request that it is about."""


class Job(msgspec.Struct, frozen=True):
    """One job as squeue tells it: a word for its state in Slurm 22.05, a list of words in later ones."""

    job_id: int
    job_state: str | list[str]
    state_reason: str | None = ""
    comment: str | None = ""
    user_name: str | None = ""

    @property
    def states(self) -> frozenset[str]:
        return frozenset([self.job_state] if isinstance(self.job_state, str) else self.job_state)

    @property
    def waits(self) -> bool:
        return bool(self.states & _WAITING)

    @property
    def ended(self) -> bool:
        """Its last process is gone too."""
        return bool(self.states & {"COMPLETED", *_ENDS}) and "COMPLETING" not in self.states

    @property
    def end(self) -> tuple[str, str] | None:
        """Why Slurm ended it, for programs and for people; None where it ended by itself."""
        return next((_ENDS[state] for state in sorted(self.states) if state in _ENDS), None)

    def why_ended(self, output: str) -> tuple[str, str] | None:
        """`end`, by what Slurm wrote into the job's output too: one that it kills for its memory it calls failed."""
        out_of_memory = any(phrase in output for phrase in _OUT_OF_MEMORY)
        return _ENDS["OUT_OF_MEMORY"] if "FAILED" in self.states and out_of_memory else self.end


class Unsure(RuntimeUnavailable):
    """Slurm was asked for a job and did not answer: there may be one all the same."""

    def __init__(self) -> None:
        super().__init__("Slurm does not take jobs at the moment", cause="job_unsure", retry_after=30)


class _Answer(msgspec.Struct):
    jobs: list[Job]
    errors: list[object] = []


class Jobs:
    """The jobs of our user that carry our mark, each by its key."""

    def __init__(self, env: Mapping[str, str], user: str) -> None:
        conf = {"SLURM_CONF": os.environ["SLURM_CONF"]} if os.environ.get("SLURM_CONF") else {}
        self._env, self._user = {**env, **conf}, user
        self._seen: dict[str, Job] = {}
        self._begun = self._done = self._waiting = 0
        self._news, self._hurry = trio.Event(), trio.Event()
        self._pause, self._silent, self._over = FIRST_PAUSE, False, False

    def program(self, name: str) -> str:
        """Its path. Raises RuntimeUnavailable."""
        found = shutil.which(name, path=PATH) or shutil.which(name)
        if found is None:
            raise RuntimeUnavailable(f"Slurm's {name} is not installed on this host")
        return found

    # Looking

    async def run(self) -> None:
        """Ask for all jobs at once, again and again, for as long as somebody waits for one."""
        try:
            await self._ask_on()
        finally:
            self._over = True
            self._news.set()

    async def _ask_on(self) -> None:
        while True:
            await self._rest()
            self._begun += 1
            number = self._begun
            try:
                seen = await self._ask()
            except RuntimeUnavailable as refused:
                if not self._silent:
                    log.warning("slurm_does_not_answer", why=refused.detail)
                self._silent = True
                continue
            self._pause = FIRST_PAUSE if seen != self._seen else min(self._pause * 1.5, LONGEST_PAUSE)
            self._seen, self._done, self._silent = seen, number, False
            self._news.set()
            self._news = trio.Event()

    async def _rest(self) -> None:
        await trio.sleep(SHORTEST_PAUSE)
        with trio.move_on_after(self._pause):
            await self._hurry.wait()
        if not self._waiting:
            await self._hurry.wait()
        self._hurry = trio.Event()

    def hurry(self) -> None:
        """Something was just asked of Slurm: look soon."""
        self._pause = FIRST_PAUSE
        self._hurry.set()

    async def _ask(self) -> dict[str, Job]:
        done = await self.call("squeue", "--json", "--me", "--states=all")
        try:
            answer = msgspec.json.decode(done.stdout, type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError):
            words = (done.stderr or done.stdout)[:2000].decode(errors="replace")
            log.warning("slurm_queue_unreadable", words=words)
            raise RuntimeUnavailable("the answer of Slurm's squeue can't be read", retry_after=30) from None
        if answer.errors or done.returncode:  # it prints an empty list where it could not ask
            raise RuntimeUnavailable("Slurm does not answer", retry_after=30)
        ours = [job for job in answer.jobs if (job.comment or "").startswith(_MARK) and job.user_name == self._user]
        ours.sort(key=lambda job: (not job.ended, job.job_id))  # of two with one key, the one that lives
        return {(job.comment or "").removeprefix(_MARK): job for job in ours}

    async def look(self) -> Mapping[str, Job]:
        """All jobs by key, as Slurm answers a question that is yet to be asked. Waits while it does not answer."""
        wanted = self._begun + 1
        self._waiting += 1
        self.hurry()
        try:
            while self._done < wanted:
                await self._news_comes()
        finally:
            self._waiting -= 1
        return self._seen

    async def wait(self, key: str, true: Callable[[Job | None], bool]) -> Job | None:
        """The job once that holds of it, None where Slurm does not know it: it may have forgotten it, long after."""
        self._waiting += 1
        if self._waiting == 1:
            self.hurry()
        try:
            wanted = self._begun + (key not in self._seen)
            while self._done < wanted or not true(self._seen.get(key)):
                await self._news_comes()
        finally:
            self._waiting -= 1
        return self._seen.get(key)

    async def _news_comes(self) -> None:
        await self._news.wait()
        if self._over:
            raise RuntimeUnavailable("the engine is stopping", retry_after=30)

    def seen(self, key: str) -> Job | None:
        """The job as it was seen last."""
        return self._seen.get(key)

    # Asking

    async def submit(self, key: str, options: list[str], script: Path, words: Path) -> str:
        """The new job's number. Raises ResourcesUnavailable with Slurm's reason, RuntimeUnavailable, Unsure."""
        argv = [self.program("sbatch"), "--parsable", f"--comment={_MARK}{key}", *options, str(script)]
        with words.open("wb") as file:
            done = await self._run(argv, file)
        told = _text(words)
        number = done.stdout.decode(errors="replace").strip().partition(";")[0] if done else ""
        if done is None or done.returncode or not number.isdecimal():
            log.warning("job_not_taken", words=told[-2000:])
            raise refusal_of(told) if done and done.returncode and not _unsure(told) else Unsure()
        self.hurry()
        return number

    async def submitted(self, key: str) -> None:
        """Returns when no sbatch of that key runs, one that an engine before this one began."""
        for pid in [process.pid for process in processes.own() if _submits(process, key)]:
            await processes.wait_gone(pid, processes.since(pid))

    async def cancel(self, job: Job, *, by_force: bool = False) -> None:
        """Have it end. Raises RuntimeUnavailable where Slurm does not answer."""
        await self.call("scancel", *(["--full", "--signal=KILL"] if by_force else []), str(job.job_id))
        self.hurry()

    async def call(self, name: str, *arguments: str) -> CompletedProcess[bytes]:
        done = await self._run([self.program(name), *arguments])
        if done is None:
            raise RuntimeUnavailable("Slurm does not answer", retry_after=30)
        return done

    async def _run(self, argv: list[str], words: IO[bytes] | None = None) -> CompletedProcess[bytes] | None:
        """None where it took too long. What it says on standard error goes to `words`."""
        run = partial(trio.run_process, argv, env=self._env, cwd="/", stdin=b"", capture_stdout=True, check=False)
        done: list[CompletedProcess[bytes]] = []
        with trio.move_on_after(CALL_WITHIN):
            done.append(await (run(stderr=words) if words else run(capture_stderr=True)))
        return done[0] if done else None


def _text(path: Path) -> str:
    return path.read_text(errors="replace")


def _unsure(words: str) -> bool:
    return any(phrase in words for phrase in _CUT_OFF)


def _submits(process: Process, key: str) -> bool:
    return f"--comment={_MARK}{key}" in process.argv


def refusal_of(words: str) -> Refusal:
    """What sbatch's words mean to whoever asked: Slurm's reason, without its program's name or a path of the host."""
    if any(phrase in words for phrase in _AWAY):
        return RuntimeUnavailable("Slurm does not take jobs at the moment", retry_after=30)
    lines = (line.removeprefix("sbatch: ").removeprefix("error: ") for line in words.splitlines())
    lines = (line.removeprefix("Batch job submission failed: ").strip() for line in lines if "/" not in line)
    reason = "; ".join(dict.fromkeys(filter(None, lines)))[:300]
    field = next((field for words, field in _FIELDS.items() if words in reason), None)
    errors = {field: reason} if field else {}
    return ResourcesUnavailable(f"Slurm refused it: {reason or 'the log of the engine has its words'}", errors=errors)
