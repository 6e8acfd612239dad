"""Calls of Slurm's programs: sbatch, scancel, and one squeue for all jobs that are waited for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import CompletedProcess

import msgspec
import structlog
import trio

from hatchway.engine.base import files
from hatchway.engine.base.errors import Refusal, ResourcesUnavailable, RuntimeUnavailable
from hatchway.engine.instances import processes
from hatchway.engine.instances.apptainer.calls import PATH
from hatchway.engine.instances.processes import Child
from hatchway.engine.instances.slurm.job import MARK, SlurmJob

log = structlog.get_logger(__name__)

SHORTEST_PAUSE, FIRST_PAUSE, LONGEST_PAUSE = 0.3, 1.0, 10.0
"""Seconds between two calls of squeue: few after something has happened, more the longer nothing does."""

_NUMBER, _WORDS, _SUBMITTER = "job", "submit.log", "submitter"
"""Files in a start's folder: what sbatch printed, its messages, and the pid of the process that ran it."""

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
"""Words in Slurm's reasons, and the fields of the request that they are about."""


class Unsure(RuntimeUnavailable):
    """Slurm was asked for a job and did not answer. There may be such a job."""

    def __init__(self) -> None:
        super().__init__("Slurm does not take jobs at the moment", cause="job_unsure", retry_after=30)


class _Answer(msgspec.Struct):
    jobs: list[SlurmJob]
    errors: list[object] = []


class Jobs:
    """The jobs that the engine submitted, by the keys of their starts. `sbatch` tells their numbers, which are kept in
    files."""

    def __init__(self, env: Mapping[str, str], user: str) -> None:
        conf = {"SLURM_CONF": os.environ["SLURM_CONF"]} if os.environ.get("SLURM_CONF") else {}
        self._env, self._user = {**env, **conf}, user
        self._seen: dict[str, SlurmJob] = {}
        self._numbers: dict[str, int] = {}
        self._submitters: dict[str, Child] = {}
        self._begun = self._done = self._waiting = 0
        self._news, self._hurry = trio.Event(), trio.Event()
        self._pause, self._silent, self._over = FIRST_PAUSE, False, False

    def program(self, name: str) -> str:
        """The path of one of Slurm's programs. Raises RuntimeUnavailable."""
        found = shutil.which(name, path=PATH) or shutil.which(name)
        if found is None:
            raise RuntimeUnavailable(f"Slurm's {name} is not installed on this host")
        return found

    # Looking

    async def run(self) -> None:
        """Ask squeue for all jobs, at once, so that the log of an engine's start says where Slurm does not answer; then
        again and again while any task waits for one, for ever."""
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
        if not self._waiting and self._begun:
            await self._hurry.wait()
        self._hurry = trio.Event()

    def hurry(self) -> None:
        """Look soon, since Slurm was just asked for something."""
        self._pause = FIRST_PAUSE
        self._hurry.set()

    async def _ask(self) -> dict[str, SlurmJob]:
        done = await self.call("squeue", "--json", "--me", "--states=all")
        try:
            answer = msgspec.json.decode(done.stdout, type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError):
            words = (done.stderr or done.stdout)[:2000].decode(errors="replace")
            log.warning("slurm_queue_unreadable", words=words)
            raise RuntimeUnavailable("the answer of Slurm's squeue can't be read", retry_after=30) from None
        if answer.errors or done.returncode:  # squeue prints an empty list where it could not ask
            raise RuntimeUnavailable("Slurm does not answer", retry_after=30)
        keys = {number: key for key, number in self._numbers.items()}
        ours = [job for job in answer.jobs if job.user_name == self._user]
        ours.sort(key=lambda job: (not job.ended, job.job_id))  # of two jobs with one key, the live one counts
        found = {self._key_of(job, keys.get(job.job_id)): job for job in ours}
        return {key: job for key, job in found.items() if key}

    def _key_of(self, job: SlurmJob, numbered: str | None) -> str | None:
        """The key of the start that the job belongs to, None for none of ours. `numbered` is the key of the start whose
        job has this number."""
        if numbered is not None and job.may_be(numbered):
            return numbered
        return job.mark if job.mark not in self._numbers else None

    async def look(self) -> Mapping[str, SlurmJob]:
        """All jobs by key, by a squeue that is called after this call. Waits for as long as Slurm does not answer."""
        wanted = self._begun + 1
        self._waiting += 1
        self.hurry()
        try:
            while self._done < wanted:
                await self._news_comes()
        finally:
            self._waiting -= 1
        return self._seen

    async def wait(self, key: str, true: Callable[[SlurmJob | None], bool]) -> SlurmJob | None:
        """Wait until `true` is true of the job, and return it. It is None where Slurm does not know it, or no
        longer."""
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

    def seen(self, key: str) -> SlurmJob | None:
        """The job as it was seen last."""
        return self._seen.get(key)

    # Asking

    async def submit(self, key: str, options: list[str], script: Path) -> str:
        """Submit a job; returns its number. Raises ResourcesUnavailable with Slurm's reason, RuntimeUnavailable,
        Unsure.

        The number, and the pid of the process that submits, are written into the script's folder, where a later run of
        the engine finds them.
        """
        argv = [self.program("sbatch"), "--parsable", f"--comment={MARK}{key}", *options, str(script)]
        folder = script.parent
        with (folder / _NUMBER).open("wb") as out, (folder / _WORDS).open("wb") as words:
            launched = processes.launch(argv, self._env, folder / _SUBMITTER, stdout=out, stderr=words)
            self._submitters[key] = await launched
        code = await self._submitted_within(key, folder)
        told = _text(folder / _WORDS)
        if code or not self.knows(key, folder):
            log.warning("job_not_taken", words=told[-2000:])
            raise refusal_of(told) if code and not _unsure(told) else Unsure()
        self.hurry()
        return str(self._numbers[key])

    async def _submitted_within(self, key: str, folder: Path) -> int | None:
        """Run sbatch; returns its exit code, None where it took too long: it would wait minutes for room in the
        queue."""
        code: int | None = None
        with trio.move_on_after(processes.CALL_WITHIN):
            code = await self._submitters[key].wait()
        if code is None:
            await processes.give_up(folder / _SUBMITTER)
            await self._submitters[key].wait()
        del self._submitters[key]
        return code

    async def submitted(self, key: str, folder: Path) -> None:
        """Wait until no sbatch for that folder runs, whether this run of the engine began it or an earlier one."""
        child, submitter = self._submitters.pop(key, None), processes.noted(folder / _SUBMITTER)
        if child is not None:
            await child.wait()
        elif submitter is not None:
            await processes.wait_gone(*submitter)

    def knows(self, key: str, folder: Path) -> bool:
        """Whether the job's number is known, here or in the folder of its start."""
        if key not in self._numbers:
            with suppress(OSError):
                number = _text(folder / _NUMBER).strip().partition(";")[0]
                if number.isdecimal():
                    self._numbers[key] = int(number)
        return key in self._numbers

    def learn(self, key: str, folder: Path) -> None:
        """Keep the number of a job that was found by its mark, since sbatch was cut off before it printed the
        number."""
        job = self._seen.get(key)
        if job is not None and not self.knows(key, folder):
            files.write_private(folder / _NUMBER, b"%d" % job.job_id)
            self._numbers[key] = job.job_id

    def forget(self, key: str) -> None:
        """Drop the number of the start's job."""
        self._numbers.pop(key, None)

    async def cancel(self, job: SlurmJob, *, by_force: bool = False) -> None:
        """Have the job end. Raises RuntimeUnavailable where Slurm has not taken that."""
        done = await self.call("scancel", *(["--full", "--signal=KILL"] if by_force else []), str(job.job_id))
        self.hurry()
        if done.returncode:
            raise RuntimeUnavailable("Slurm has not taken it that the job is to end", retry_after=30)

    async def call(self, name: str, *arguments: str) -> CompletedProcess[bytes]:
        return await processes.call([self.program(name), *arguments], self._env)


def _text(path: Path) -> str:
    return path.read_text(errors="replace")


def _unsure(words: str) -> bool:
    return any(phrase in words for phrase in _CUT_OFF)


def refusal_of(words: str) -> Refusal:
    """The refusal for a message of sbatch's: Slurm's reason, without the program's name and without paths of the
    host."""
    if any(phrase in words for phrase in _AWAY):
        return RuntimeUnavailable("Slurm does not take jobs at the moment", retry_after=30)
    lines = (line.removeprefix("sbatch: ").removeprefix("error: ") for line in words.splitlines())
    lines = (line.removeprefix("Batch job submission failed: ").strip() for line in lines if "/" not in line)
    reason = "; ".join(dict.fromkeys(filter(None, lines)))[:300]
    field = next((field for words, field in _FIELDS.items() if words in reason), None)
    errors = {field: reason} if field else {}
    return ResourcesUnavailable(f"Slurm refused it: {reason or 'the log of the engine has its words'}", errors=errors)
