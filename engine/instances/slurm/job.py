"""One job as squeue tells it: whose it may be, and what its state means."""

from __future__ import annotations

import msgspec

MARK = "hatchway:"
"""How a job's comment begins that says whose start it is. A site may write there too: it tells of a job whose number is
not known yet, and beside the number it is no more than a check."""

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


class SlurmJob(msgspec.Struct, frozen=True):
    """One job as squeue tells it: a word for its state in Slurm 22.05, a list of words in later ones."""

    job_id: int
    job_state: str | list[str]
    state_reason: str | None = ""
    comment: str | None = ""
    user_name: str | None = ""
    command: str | None = ""

    @property
    def states(self) -> frozenset[str]:
        return frozenset([self.job_state] if isinstance(self.job_state, str) else self.job_state)

    @property
    def mark(self) -> str:
        """The key that our mark in the comment names; empty where a site has written something else there."""
        comment = self.comment or ""
        return comment.removeprefix(MARK) if comment.startswith(MARK) else ""

    def may_be(self, key: str) -> bool:
        """Whether nothing speaks against a job of the right number: one is given out again after a cold start."""
        return self.mark == key if self.mark else not self.command or key in self.command

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
