"""What an instance on Slurm may be ended by from outside, each brought about for real; all at once: some take long."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import trio

from hatchway.engine.instances import processes
from tests.support.containers import LONG, Place
from tests.support.instance_client import InstanceClient
from tests.support.slurm_cluster import Cluster
from tests.support.slurm_engine import signed_in

NAMES = f"end-{secrets.token_hex(3)}-"
"""How the names of these instances begin: other tests of the run must not take them for what they left behind."""

TOO_MUCH = "dd if=/dev/zero bs=400M count=1 | sleep 1000"
"""Holds what it has read, for nobody takes it."""

WITHIN = 90
"""Seconds an end may take. slurmctld looks at time limits every 30, and finds a node dead after 25."""

Shown = Mapping[str, Any]


class End(NamedTuple):
    """What is asked for, what is done to it once it runs, and what it has to come to."""

    fields: Mapping[str, Any]
    bring_about: Callable[[Cluster, Shown], object]
    state: str
    failure: str | None


def _kill_program(place_in_tree: int) -> Callable[[Cluster, Shown], object]:
    """One of the two programs that mind an instance on its node, the guard first."""

    def kill(cluster: Cluster, shown: Shown) -> None:
        os.kill(sorted(pid for pid in left_of(shown["identity"], "node.py"))[place_in_tree], signal.SIGKILL)

    return kill


def _out_of_time(cluster: Cluster, shown: Shown) -> None:
    """A second that is over when slurmctld hears of it is refused, so it is one to come."""
    cluster.say("scontrol", "update", f"JobId={shown['job']}", "EndTime=now+10seconds")


def _make_room(cluster: Cluster, _: Shown) -> None:
    """A job of more weight wants the whole node."""
    cluster.say("sbatch", "--partition=urgent", "--exclusive", "--output=/dev/null", "--wrap=true")


ENDS: dict[str, End] = {
    "time": End({}, _out_of_time, "failed", "the job's time limit ended"),
    "node": End(
        {"partition": "third"}, lambda cluster, _: cluster.kill_node("third"), "failed", "the job's node failed"
    ),
    "memory": End(
        {"memory": "300M", "command": ["sh", "-c", TOO_MUCH]},
        lambda *_: None,
        "failed",
        "the job used more memory than it has",
    ),
    "preemption": End({"partition": "fifth"}, _make_room, "failed", "the job had to make room for another"),
    "scancel": End({}, lambda cluster, shown: cluster.say("scancel", shown["job"]), "failed", "the job was cancelled"),
    "instance killed": End({"command": []}, lambda _, shown: os.kill(shown["pid"], signal.SIGKILL), "stopped", None),
    "guard killed": End({}, _kill_program(0), "failed", "the job failed"),
    "runner killed": End({}, _kill_program(1), "failed", "the job failed"),
}


async def end_all(cluster: Cluster, place: Place) -> dict[str, Shown]:
    """What each came to; at the end nothing is left of any, though the dead node has come back."""
    told: dict[str, Shown] = {}
    async with signed_in(place, partition="fourth", allow_request=("partition",)) as at, trio.open_nursery() as nursery:
        for what in ENDS:
            nursery.start_soon(_end, at, cluster, what, told)
    cluster.start_node("third")
    with trio.fail_after(WITHIN):
        while left_of(NAMES):
            await trio.sleep(0.1)
    return told


async def _end(at: InstanceClient, cluster: Cluster, what: str, told: dict[str, Shown]) -> None:
    name, end = NAMES + what.replace(" ", "-"), ENDS[what]
    reply = await at.start(**{"identity": name, "command": ["sleep", LONG], **end.fields})
    assert reply.status == 201, reply.body
    end.bring_about(cluster, await at.show(name))
    told[what] = await at.until(end.state, name, seconds=WITHIN)


def left_of(*words: str) -> list[int]:
    """Processes with all of these words in their arguments."""
    return [one.pid for one in processes.own() if all(word in " ".join(one.argv) for word in words)]
