"""One job: what sbatch is told of it, and as squeue shows it, which start it may belong to and what its state means."""

from __future__ import annotations

from pathlib import Path

import msgspec

from hatchway.engine.instances.request import InstanceRequest

MARK = "hatchway:"
"""How the comment of our jobs begins; the key of the start follows. It finds a job whose number is not known yet. Where
the number is known it is only a check, since a site may write comments of its own."""

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
"""Parts of slurmstepd's messages: of OverMemoryKill, and of cgroups in older and newer releases."""

_MIB = 1 << 20


class SlurmJob(msgspec.Struct, frozen=True):
    """One job as squeue prints it. `job_state` is a word in Slurm 22.05, and a list of words in later releases."""

    job_id: int
    job_state: str | list[str]
    state_reason: str | None = ""
    comment: str | None = ""
    user_name: str | None = ""
    command: str | None = ""

    @property
    def states(self) -> frozenset[str]:
        """The job's state and its flags, such as COMPLETING."""
        return frozenset([self.job_state] if isinstance(self.job_state, str) else self.job_state)

    @property
    def mark(self) -> str:
        """The key that our mark in the comment names; empty where a site has written something else there."""
        comment = self.comment or ""
        return comment.removeprefix(MARK) if comment.startswith(MARK) else ""

    def may_be(self, key: str) -> bool:
        """Whether a job of the right number can be that of this start. After a cold start Slurm gives numbers out
        anew."""
        return self.mark == key if self.mark else not self.command or key in self.command

    @property
    def waits(self) -> bool:
        """Whether the job is not running yet."""
        return bool(self.states & _WAITING)

    @property
    def ended(self) -> bool:
        """Whether the job is over, with its last process."""
        return bool(self.states & {"COMPLETED", *_ENDS}) and "COMPLETING" not in self.states

    @property
    def end(self) -> tuple[str, str] | None:
        """Why Slurm ended the job, for programs and for people; None where it ended by itself."""
        return next((_ENDS[state] for state in sorted(self.states) if state in _ENDS), None)

    def why_ended(self, output: str) -> tuple[str, str] | None:
        """As `end`, but looks into the job's output too: Slurm calls a job failed that it has killed for its memory."""
        out_of_memory = any(phrase in output for phrase in _OUT_OF_MEMORY)
        return _ENDS["OUT_OF_MEMORY"] if "FAILED" in self.states and out_of_memory else self.end


def sbatch_options(request: InstanceRequest, output: Path) -> list[str]:
    """The options of sbatch; the job's own output goes to the file `output`.

    No variable goes with the job, neither of the engine's environment nor of the request.
    """
    asked = {
        "cpus-per-task": None if request.cpu is None else -(-request.cpu // 1000),
        "mem": None if request.memory is None else f"{-(-request.memory // _MIB)}M",
        "gpus": request.gpu,
        "partition": request.partition,
        "account": request.account,
        "time": None if request.time_limit is None else -(-request.time_limit // 60),
    }
    return [
        *(f"--job-name={request.identity}", "--nodes=1", "--ntasks=1", "--no-requeue", "--export=NIL", "--chdir=/"),
        *("--input=/dev/null", f"--output={str(output).replace('%', '%%')}"),
        *(f"--{name}={value}" for name, value in asked.items() if value is not None),
    ]
