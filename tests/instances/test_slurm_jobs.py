"""What Slurm's programs say, as the engine takes it: one question for all jobs, odd answers, reasons of refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from hatchway.engine.base.errors import Refusal, ResourcesUnavailable, RuntimeUnavailable
from hatchway.engine.instances.protocol import ConfirmedStart, ListedInstance
from hatchway.engine.instances.request import Image, InstanceRequest
from hatchway.engine.instances.slurm.job import SlurmJob
from hatchway.engine.instances.slurm.jobs import Jobs, refusal_of
from hatchway.engine.instances.slurm.slurm import Slurm

ME = "me"


class Programs(Jobs):
    """Jobs that asks a script of the test's own, which prints the file `answer` and counts in `asked`."""

    def __init__(self, folder: Path) -> None:
        super().__init__({"PATH": "/usr/bin:/bin"}, ME)
        self.folder = folder
        script = folder / "script"
        script.write_text(f"#!/bin/sh\necho $* >> {folder}/asked\ncat {folder}/answer\nexit $(cat {folder}/code)\n")
        script.chmod(0o700)
        self.answers({})

    def program(self, name: str) -> str:
        return str(self.folder / "script")

    def answers(self, jobs: dict[str, Any] | bytes, code: int = 0, errors: tuple[str, ...] = ()) -> None:
        (self.folder / "code").write_text(str(code))
        if isinstance(jobs, bytes):
            (self.folder / "answer").write_bytes(jobs)
            return
        rows = [{"job_id": place, **job} for place, job in enumerate(jobs.values(), 1)]
        for row, key in zip(rows, jobs, strict=True):
            row.setdefault("comment", f"hatchway:{key}")
            row.setdefault("user_name", ME)
        (self.folder / "answer").write_text(json.dumps({"meta": {}, "errors": errors, "jobs": rows}))

    @property
    def asked(self) -> list[str]:
        return (self.folder / "asked").read_text().splitlines()


@pytest.fixture
def jobs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


async def test_one_question_for_all_jobs(jobs: Programs) -> None:
    """Fifty wait, each for its own job; what is asked of Slurm does not grow with them."""
    jobs.answers({str(number): {"job_state": "PENDING"} for number in range(50)})
    ended = []

    async def wait(key: str) -> None:
        job = await jobs.wait(key, lambda job: job is not None and job.ended)
        ended.append(job)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(jobs.run)
            async with trio.open_nursery() as waiting:
                for number in range(50):
                    waiting.start_soon(wait, str(number))
                await jobs.look()
                jobs.answers({str(number): {"job_state": "COMPLETED"} for number in range(50)})
            nursery.cancel_scope.cancel()
    assert len(ended) == 50
    assert len(jobs.asked) < 10


GARBAGE = [b"", b"{", b"slurm_load_jobs error", b'{"jobs": [{"job_id": "x"}]}', b'{"jobs": null}', b"\xff\xfe", b"[]"]


@pytest.mark.parametrize("answer", GARBAGE)
async def test_an_odd_answer_is_none(jobs: Programs, answer: bytes) -> None:
    """Garbage tells nothing of any job: whoever waits goes on waiting, until there is an answer."""
    jobs.answers(answer)
    await no_answer_then_one(jobs)


@pytest.mark.parametrize("more", [{"code": 1}, {"errors": ("slurm_load_jobs",)}])
async def test_an_empty_list_with_an_error_is_none(jobs: Programs, more: dict[str, Any]) -> None:
    """squeue prints no jobs, and ends well, where it could not ask: no instance is given up for that."""
    jobs.answers({}, **more)
    await no_answer_then_one(jobs)


async def test_a_squeue_that_cannot_be_run(jobs: Programs) -> None:
    """For a moment, as at a limit of processes: nothing ends, and whoever waits is answered once it can be run."""
    sound = (jobs.folder / "script").read_bytes()
    (jobs.folder / "script").write_bytes(b"")  # which the kernel does not take for a program
    await no_answer_then_one(jobs, lambda: (jobs.folder / "script").write_bytes(sound))


async def test_the_log_of_a_start_tells_that_slurm_is_away(jobs: Programs) -> None:
    """Before anybody starts a job: the operator is still there."""
    jobs.answers(b"")
    with trio.fail_after(60), capture_logs() as told:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(jobs.run)
            while not any(line["event"] == "slurm_does_not_answer" for line in told):
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()


async def no_answer_then_one(jobs: Programs, mend: Callable[[], object] = lambda: None) -> None:
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(jobs.run)
            with trio.move_on_after(1) as waited:
                await jobs.look()
            assert waited.cancelled_caught
            mend()
            jobs.answers({"a": {"job_state": "RUNNING"}})
            assert list(await jobs.look()) == ["a"]
            nursery.cancel_scope.cancel()


async def test_whose_jobs_are_ours(jobs: Programs) -> None:
    """Only our user's, with our mark; of two with one key the one that lives."""
    jobs.answers(
        {
            "a": {"job_state": "RUNNING"},
            "b": {"job_state": "RUNNING", "user_name": "somebody"},
            "c": {"job_state": "RUNNING", "comment": "their own"},
            "d": {"job_state": "RUNNING", "comment": None},
            "e": {"job_state": ["CANCELLED"], "comment": "hatchway:a"},
        }
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(jobs.run)
        seen = await jobs.look()
        assert {key: job.job_id for key, job in seen.items()} == {"a": 1}
        nursery.cancel_scope.cancel()


async def test_a_job_is_known_by_its_number(jobs: Programs, tmp_path: Path) -> None:
    """A site may write what it likes into the comment; another start's mark, or another script, is another job."""
    (tmp_path / "job").write_text("1;cluster\n")
    assert jobs.knows("a", tmp_path)
    rows: list[tuple[dict[str, Any], dict[str, int]]] = [
        ({"comment": "grant-42"}, {"a": 1}),
        ({"comment": None, "command": "/home/me/slurm/one/a/job.sh"}, {"a": 1}),
        ({"comment": "grant-42", "command": "/home/me/my-own.sh"}, {}),
        ({"comment": "hatchway:b"}, {"b": 1}),
        ({"comment": "hatchway:a", "job_id": 7}, {}),
        ({"comment": "grant-42", "user_name": "somebody"}, {}),
    ]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(jobs.run)
        for row, seen in rows:
            jobs.answers({"x": {"job_state": "RUNNING"} | row})
            assert {key: job.job_id for key, job in (await jobs.look()).items()} == seen, row
        nursery.cancel_scope.cancel()


async def test_a_number_that_was_never_told(jobs: Programs, tmp_path: Path) -> None:
    """Whoever submitted the job was cut off: it is found by its mark once, and by its number from then on."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(jobs.run)
        jobs.answers({"a": {"job_state": "PENDING"}})
        assert list(await jobs.look()) == ["a"]
        jobs.learn("a", tmp_path)
        jobs.answers({"a": {"job_state": "RUNNING", "comment": "grant-42"}})
        assert (await jobs.look())["a"].states == {"RUNNING"}
        nursery.cancel_scope.cancel()
    assert Programs(tmp_path).knows("a", tmp_path)


async def test_no_force_before_the_milder_word_is_heard(jobs: Programs, tmp_path: Path) -> None:
    """Slurm was away for the whole time that a stop has: it is told to end the job, and only later to kill it."""
    slurm = Slurm(tmp_path, lambda: False)
    slurm._jobs = jobs
    started = ConfirmedStart(ListedInstance("one", 1, "", "", "", ""), "a")
    request = InstanceRequest("one", Image("box.sif"))
    jobs.answers({}, code=1)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(jobs.run)
            async with trio.open_nursery() as stopping:
                stopping.start_soon(slurm.stop, request, started)
                await trio.testing.wait_all_tasks_blocked(0.01)
                await slurm.kill(request, started)
                jobs.answers({"a": {"job_state": "RUNNING"}})
            assert [words for words in jobs.asked if "--json" not in words] == ["1"]
            await slurm.kill(request, started)
            assert "--full --signal=KILL 1" in jobs.asked
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("state", "waits", "ended", "cause"),
    [
        ("PENDING", True, False, None),
        (["PENDING"], True, False, None),
        (["RUNNING", "CONFIGURING"], True, False, None),
        ("RUNNING", False, False, None),
        ("SUSPENDED", False, False, None),
        ("COMPLETING", False, False, None),
        (["COMPLETED", "COMPLETING"], False, False, None),
        ("COMPLETED", False, True, None),
        ("CANCELLED", False, True, "job_cancelled"),
        ("FAILED", False, True, "job_failed"),
        ("TIMEOUT", False, True, "job_timed_out"),
        (["OUT_OF_MEMORY"], False, True, "job_out_of_memory"),
        ("NODE_FAIL", False, True, "job_node_failed"),
        ("PREEMPTED", False, True, "job_preempted"),
        ("DEADLINE", False, True, "job_deadline"),
    ],
)
def test_what_each_state_means(state: str | list[str], waits: bool, ended: bool, cause: str | None) -> None:
    """One word in Slurm 22.05, a list in later ones; each end but its own has a cause."""
    job = SlurmJob(1, state)
    assert (job.waits, job.ended) == (waits, ended)
    assert (job.end[0] if job.end else None) == cause


@pytest.mark.parametrize(
    "words",
    [
        "slurmstepd-n1: error: StepId=1.batch exceeded memory limit (219467776 > 41943040), being killed",
        "slurmstepd: error: Exceeded job memory limit",
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.batch cgroup.",
        "slurmstepd: error: Detected 2 oom_kill events in StepId=1.batch.",
    ],
)
def test_out_of_memory_that_is_called_failed(words: str) -> None:
    """What slurmstepd wrote tells why a failed job failed, and nothing of one that ended otherwise."""
    assert (SlurmJob(1, "FAILED").why_ended(words) or ("",))[0] == "job_out_of_memory"
    assert (SlurmJob(1, "FAILED").why_ended("node.py: a fault") or ("",))[0] == "job_failed"
    assert (SlurmJob(1, "CANCELLED").why_ended(words) or ("",))[0] == "job_cancelled"
    assert SlurmJob(1, "COMPLETED").why_ended(words) is None


TAKEN = "sbatch: error: "


@pytest.mark.parametrize(
    ("words", "kind", "told"),
    [
        (
            f"{TAKEN}Memory specification can not be satisfied\n"
            f"{TAKEN}Batch job submission failed: Requested node configuration is not available\n",
            ResourcesUnavailable,
            "Slurm refused it: Memory specification can not be satisfied; Requested node configuration is not avail",
        ),
        (
            f"{TAKEN}Batch job submission failed: Unable to contact slurm controller (connect failure)",
            RuntimeUnavailable,
            "",
        ),
        (
            f"{TAKEN}Unable to open file /home/me/job.sh",
            ResourcesUnavailable,
            "Slurm refused it: the log of the engine",
        ),
        ("sbatch: fatal: Could not establish a configuration source", RuntimeUnavailable, ""),
    ],
)
def test_why_a_job_is_refused(words: str, kind: type[Refusal], told: str) -> None:
    """Slurm's own reason, without a path of the host; where it can't be reached, that a later try may do."""
    refusal = refusal_of(words)
    assert type(refusal) is kind
    assert refusal.detail.startswith(told)
    assert "/" not in refusal.detail
    assert (refusal.retry_after is None) == (kind is ResourcesUnavailable)


async def test_a_scancel_that_fails(jobs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has not told the job to end, so that it is called again, and no force comes in its place."""
    monkeypatch.setattr(jobs, "program", lambda name: "/bin/false")
    with pytest.raises(RuntimeUnavailable, match="not taken"):
        await jobs.cancel(SlurmJob(7, "RUNNING"))


async def test_a_job_whose_mark_cannot_be_read(jobs: Programs, tmp_path: Path) -> None:
    """As with too many open files: its start is not called undone, as if there were no job."""
    slurm = Slurm(tmp_path, lambda: False)
    slurm._jobs = jobs
    (tmp_path / "one" / "key").mkdir(parents=True)
    with pytest.raises(OSError, match="Is a directory"):
        await slurm.undo("one")
    assert slurm.progress("one") == slurm.progress("none")
    slurm.forget("one")
    await slurm.undo("one")
