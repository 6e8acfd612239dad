"""Every end that an instance on Slurm may come to, for real: each lands in its own state, with its cause."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import trio

from engine.platform import processes
from engine.platform.slurm import HEARD_WITHIN
from tests.cluster import NODE_CPUS, Cluster
from tests.containers import LONG, Place, living, new_name, place
from tests.slurm_doors import at_cluster, cluster, doors

__all__ = ["at_cluster", "cluster", "place"]

AS_ORDINARY_USER = True
pytest_plugins = ["tests.ordinary"]
pytestmark = [pytest.mark.slurm, pytest.mark.apptainer]


def node_programs(name: str) -> list[int]:
    """The two processes that mind an instance on its node, the guard first."""
    found = [one for one in processes.own() if one.argv[-1].split("/")[-2:-1] == [name] and "node.py" in one.argv[-2]]
    return sorted(process.pid for process in found)


TOO_MUCH = "dd if=/dev/zero bs=400M count=1 | sleep 1000"
"""Holds what it has read, for nobody takes it."""

ENDS: dict[str, tuple[dict[str, Any], str]] = {
    "time": ({}, "the job's time limit ended"),
    "node": ({"partition": "third"}, "the job's node failed"),
    "memory": ({"memory": "300M", "command": ["sh", "-c", TOO_MUCH]}, "the job used more memory than it has"),
    "scancel": ({}, "the job was cancelled"),
}


async def test_ends_from_outside(place: Place, at_cluster: Cluster) -> None:
    """Out of time, its node dead, out of memory, cancelled: each lands in `failed`, with its own cause told and logged.

    All at once: slurmctld looks at time limits every 30 seconds, and finds a node dead after a while only.
    """
    names = {what: new_name() for what in ENDS}
    async with doors(place, allow_request=("partition",)) as at:
        for what, (fields, _) in ENDS.items():
            reply = await at.start(**{"identity": names[what], "command": ["sleep", LONG], **fields})
            assert reply.status == 201, reply.body
        jobs = {what: (await at.show(name))["job"] for what, name in names.items()}
        at_cluster.kill_node("third")
        at_cluster.say("scontrol", "update", f"JobId={jobs['time']}", "EndTime=now")
        at_cluster.say("scancel", jobs["scancel"])
        for what in ("scancel", "memory", "node", "time"):
            shown = await at.until("failed", names[what], seconds=90)
            assert shown["failure"] == ENDS[what][1]
        at_cluster.start_node("third")  # and it clears away what it had
        with trio.fail_after(60):
            while living():
                await trio.sleep(0.1)


async def test_killed_on_its_node(place: Place, at_cluster: Cluster) -> None:
    """kill -9 of the instance is its end; of one of the two programs that mind it, the job's failure. None stays."""
    whole, guard, runner = names = [new_name() for _ in range(3)]
    async with doors(place) as at:
        for name in names:
            await at.start(identity=name, command=[] if name == whole else ["sleep", LONG])
        os.kill((await at.show(whole))["pid"], signal.SIGKILL)
        os.kill(node_programs(guard)[0], signal.SIGKILL)
        os.kill(node_programs(runner)[1], signal.SIGKILL)
        await at.until("stopped", whole)
        for name in (guard, runner):
            assert (await at.until("failed", name))["failure"] == "the job failed"
        with trio.fail_after(20):
            while living():
                await trio.sleep(0.1)


async def test_the_controller_is_away(place: Place, at_cluster: Cluster) -> None:
    """A start is refused with a later try, so is a stop, soon; what was told to stop does so once it is back."""
    async with doors(place) as at:
        name, queued = new_name(), new_name()
        await at.start(identity=name, command=["sleep", LONG])
        with trio.move_on_after(2):
            await at.start(identity=queued, cpu=str(NODE_CPUS))
        await at.until("queued", queued)
        at_cluster.stop_controller()
        try:
            refused = await at.start(identity=new_name())
            assert (refused.status, refused.json()["code"]) == (503, "runtime_unavailable")
            assert "retry-after" in refused.headers
            assert (await at.show(name))["state"] == "running"
            for one in (name, queued):
                with trio.fail_after(2 * HEARD_WITHIN):
                    refused = await at.ask("DELETE", f"{one}/")
                assert (refused.status, refused.json()["code"]) == (503, "runtime_unavailable")
                assert "retry-after" in refused.headers
                assert (await at.show(one))["state"] == "stopping"
        finally:
            at_cluster.start_controller()
        await at.until("stopped", name)
        await at.until("failed", queued)
        assert not living()


async def test_slurm_forgets(place: Place, at_cluster: Cluster) -> None:
    """It keeps ended jobs for minutes only: an exit code is found all the same; an instance that it dropped is lost."""
    name, dropped = new_name(), new_name()
    async with doors(place) as at:
        await at.start(identity=name, command=["sh", "-c", "sleep 1; exit 4"])
        await at.start(identity=dropped)
    at_cluster.until(lambda: at_cluster.jobs()[name]["job_state"] == "COMPLETED")
    at_cluster.stop_controller()
    at_cluster.start_controller("-c")
    assert name not in at_cluster.jobs()
    async with doors(place) as at:
        assert (await at.until("stopped", name))["exit_code"] == 4
        assert "no longer knows" in (await at.until("failed", dropped))["failure"]
    at_cluster.until(lambda: not living())
