"""Slurm for real, with Apptainer in its jobs: what is asked arrives on the node, and every end lands in the chart."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from hatchway.engine.instances import processes, supervisor
from tests.support.containers import LONG, Place, living, new_name, place
from tests.support.fakes import ROOT, key
from tests.support.slurm_cluster import NODE_CPUS, NODE_GPUS, NODE_MEMORY, NODES, Cluster
from tests.support.slurm_ends import ENDS, end_all
from tests.support.slurm_engine import at_cluster, cluster, signed_in

__all__ = ["at_cluster", "cluster", "place"]

AS_ORDINARY_USER = True
pytest_plugins = ["tests.support.ordinary_user"]
pytestmark = [pytest.mark.slurm, pytest.mark.apptainer]


async def test_a_life(place: Place, at_cluster: Cluster) -> None:
    """Started, listed, its log read, stopped: the three items are the node's instance's, the job's limits as asked."""
    (place.volumes / "in").mkdir()
    (place.volumes / "in" / "said").write_text("mounted")
    async with signed_in(place, partition="short", time_limit=600) as at:
        name = new_name()
        script = f'echo "$A|$(cat /in/said)|$1"; touch /in/no 2>/dev/null || echo read-only; sleep {LONG}'
        command, volume = ["sh", "-c", script, "sh", "two words"], [f"{place.volumes}/in:/in"]
        more: dict[str, Any] = {"env": ["A=a b,c$(id)"], "volume": volume, "cpu": "1500m", "memory": "256M"}
        reply = await at.start(identity=name, command=command, **more)
        assert reply.status == 201, reply.body
        status, identity, entity = (item["payload"] for item in reply.json())
        shown = await at.show(name)
        assert (status, identity) == ({"code": 0, "message": "instance started"}, name)
        assert {name: shown[name] for name in entity if name != "instance"} == {
            name: value for name, value in entity.items() if name != "instance"
        }
        assert (shown["state"], shown["node"]) == ("running", NODES[0])
        job = at_cluster.jobs()[name]
        told = (str(job["job_id"]), job["partition"], job["time_limit"], job["memory_per_node"], job["cpus"])
        assert told == (shown["job"], "short", 10, 256, 2)
        os.kill(entity["pid"], 0)
        with trio.fail_after(20):
            while not (log := (await at.ask("GET", f"{name}/log/")).body).endswith(b"read-only\n"):
                await trio.sleep(0.1)
        assert log == b"a b,c$(id)|mounted|two words\nread-only\n"
        assert [row["identity"] for row in (await at.ask("GET")).json()["instances"]] == [name]
        stopped = await at.ask("DELETE", f"{name}/")
        assert (stopped.status, stopped.json()["state"], stopped.json()["failure"]) == (200, "stopped", None)
        assert not living()
        assert (await at.ask("GET", f"{name}/log/")).body == log


async def test_a_command_ends(place: Place, at_cluster: Cluster) -> None:
    """Its exit code and both its streams are kept; the same name starts again, with a log of its own."""
    async with signed_in(place) as at:
        name = new_name()
        for word, code in (("one", 0), ("two", 7)):
            await at.start(identity=name, command=["sh", "-c", f"echo {word}; echo oops >&2; exit {code}"])
            assert (await at.until("stopped", name))["exit_code"] == code
            assert (await at.ask("GET", f"{name}/log/")).body == f"{word}\n".encode()
            assert (await at.ask("GET", f"{name}/log/?stream=err")).body == b"oops\n"


async def test_values_are_out_of_sight(place: Place, at_cluster: Cluster) -> None:
    """No argument vector shows a variable's value, nor does what Slurm keeps of the job; its files are ours alone."""
    async with signed_in(place) as at:
        name = new_name()
        seen: list[str] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_look_on, seen)
            reply = await at.start(identity=name, env=["TOKEN=hidden-value"], command=["sleep", LONG])
            nursery.cancel_scope.cancel()
        assert reply.status == 201
        assert any("instance start" in argv for argv in seen), "the start itself must have been seen"
        seen.append(at_cluster.say("scontrol", "show", "job", reply.json()[1]["payload"], check=False))
        seen.append(at_cluster.say("scontrol", "write", "batch_script", (await at.show(name))["job"], "-"))
        seen.extend(path.read_text(errors="replace") for path in at_cluster.folder.rglob("*") if readable(path))
        assert "hidden-value" not in "".join(seen)
        for path in (place.home / "slurm").rglob("*"):
            assert not path.stat().st_mode & 0o077 or "apptainer" in path.parts, path
        await at.ask("DELETE", f"{name}/")


def readable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.R_OK)


async def _look_on(seen: list[str]) -> None:
    while True:
        seen.extend(" ".join(process.argv) for process in processes.own())
        await trio.sleep(0.01)


OVER_ASKED: list[tuple[dict[str, Any], str, str | None]] = [
    ({"memory": f"{NODE_MEMORY + 1}M"}, "Memory specification can not be satisfied", "memory"),
    ({"cpu": f"{NODE_CPUS}.5"}, "More processors requested than permitted", "cpu"),
    ({"gpu": f"{NODE_GPUS + 1}"}, "Requested node configuration is not available", None),
    ({"gpu": "all"}, "count", "gpu"),
    ({"partition": "nowhere"}, "nvalid partition", "partition"),
    ({"partition": "short", "time_limit": "2h"}, "Requested time limit is invalid", "time_limit"),
]


async def test_what_the_cluster_has_not(place: Place, at_cluster: Cluster) -> None:
    """What is over-asked is refused as `resources_unavailable`, with Slurm's own reason, by the field it tells of."""
    async with signed_in(place, allow_request=("partition", "time_limit")) as at:
        for fields, reason, field in OVER_ASKED:
            reply = await at.start(identity=new_name(), **fields)
            assert (reply.status, reply.json()["code"]) == (422, "resources_unavailable"), fields
            assert list(reply.json().get("errors", {})) == ([field] if field else [])
            assert reason in reply.json()["detail"]
            assert str(place.home) not in reply.body.decode()


async def test_gpus(place: Place, at_cluster: Cluster) -> None:
    """Each instance sees the numbers of its own GPUs and of no other's; one for whom none is left is queued."""
    async with signed_in(place) as at:
        names = [new_name() for _ in range(NODE_GPUS)]
        for name in names:
            await at.start(
                identity=name, gpu="1", command=["sh", "-c", f'echo "<$CUDA_VISIBLE_DEVICES>"; sleep {LONG}']
            )
            assert "gres:gpu:1" in at_cluster.jobs()[name]["tres_per_job"]
        with trio.fail_after(20):
            while len(seen := {(await at.ask("GET", f"{name}/log/")).body for name in names}) < 2 or b"" in seen:
                await trio.sleep(0.1)
        assert seen == {b"<0>\n", b"<1>\n"}
        waits = new_name()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(at.start, identity=waits, gpu="1", command=["sleep", LONG]))
            with trio.fail_after(20):
                while at_cluster.jobs().get(waits, {}).get("state_reason") != "Resources":
                    await trio.sleep(0.1)
            assert (await at.ask("DELETE", f"{names[0]}/")).json()["state"] == "stopped"
        assert (await at.show(waits))["state"] == "running"
        for name in (names[1], waits):
            await at.ask("DELETE", f"{name}/")


async def test_two_nodes(place: Place, at_cluster: Cluster) -> None:
    """Two instances that fill a node each run on both; each is shown with its own, and read from and stopped there."""
    async with signed_in(place, partition="pair") as at:
        names = [new_name(), new_name()]
        for name in names:
            command = ["sh", "-c", f"echo {name}; sleep {LONG}"]
            reply = await at.start(identity=name, cpu=str(NODE_CPUS), command=command)
            assert reply.status == 201, reply.body
        assert sorted([(await at.show(name))["node"] for name in names]) == ["first", "second"]
        for name in names:
            with trio.fail_after(20):
                while (await at.ask("GET", f"{name}/log/")).body != f"{name}\n".encode():
                    await trio.sleep(0.1)
            assert (await at.ask("DELETE", f"{name}/")).json()["state"] == "stopped"
        assert not living()


async def test_what_may_be_asked_for(place: Place, at_cluster: Cluster) -> None:
    """A partition or a time is the request's to choose where the settings say so, and refused by its name elsewhere."""
    name = new_name()
    async with signed_in(place, allow_request=("partition", "time_limit"), partition="main") as at:
        reply = await at.start(identity=name, partition="short", time_limit="30m", command=["true"])
        assert reply.status == 201, reply.body
        job = at_cluster.jobs()[name]
        assert (job["partition"], job["time_limit"]) == ("short", 30)
        refused = await at.start(identity=new_name(), account="other", time_limit="0m", partition="--x")
        assert refused.status == 422
        assert set(refused.json()["errors"]) == {"account", "time_limit", "partition"}
        assert "slurm.allow_request" in refused.json()["errors"]["account"]
        await at.until("stopped", name)


async def test_a_source_that_became_a_link_in_the_queue(
    place: Place, at_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node looks again before anything runs: the start fails, what the link leads to is in no container."""
    monkeypatch.setattr(supervisor, "QUEUE_HELD", 1.0)
    source, name = place.volumes / "in", new_name()
    source.mkdir()
    (place.home / "secret").mkdir()
    at_cluster.drain()
    async with signed_in(place) as at:
        command = ["sh", "-c", "echo ran"]
        assert (await at.start(identity=name, command=command, volume=[f"{source}:/in"])).status == 202
        source.rename(place.volumes / "kept")
        source.symlink_to(place.home / "secret")
        at_cluster.resume()
        await at.until("failed", name)
        assert "no longer what it was" in (await at.show(name))["failure"]
        assert (await at.ask("GET", f"{name}/log/")).status == 404
        source.unlink()
        (place.volumes / "kept").rename(source)
        await at.start(identity=name, command=command, volume=[f"{source}:/in"])
        await at.until("stopped", name)
        assert (await at.ask("GET", f"{name}/log/")).body == b"ran\n"


async def test_queued_over_a_restart(place: Place, at_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the node is drained a start is queued and Slurm's reason shown; engine restarted, node back: it runs."""
    monkeypatch.setattr(supervisor, "QUEUE_HELD", 1.0)
    name, given_up = new_name(), new_name()
    at_cluster.drain()
    async with signed_in(place) as at:
        reply = await at.start(identity=name, command=["sleep", LONG])
        assert reply.status == 202, reply.body
        shown = await at.show(name)
        assert shown["state"] == "queued"
        assert re.match(r"queued \((Resources|.*Node.*)\)", shown["progress"])
        assert shown["job"] in reply.json()[0]["payload"]["message"]
        assert reply.json()[2]["payload"]["pid"] == 0
        assert (await at.ask("GET", f"{name}/log/")).status == 404
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(at.start, identity=given_up))
            await at.until("queued", given_up)
            nursery.cancel_scope.cancel()
    async with signed_in(place) as at:
        assert (await at.show(name))["state"] == "queued"
        assert (await at.ask("DELETE", f"{given_up}/")).json()["state"] == "failed"
        assert at_cluster.jobs()[given_up]["job_state"] == "CANCELLED"
        at_cluster.resume()
        running = await at.until("running", name)
        assert running["job"] == shown["job"]
    async with signed_in(place) as at:
        assert (await at.show(name))["state"] == "running"
        assert (await at.ask("DELETE", f"{name}/")).json()["state"] == "stopped"


async def test_a_comment_that_a_site_changes(place: Place, at_cluster: Cluster) -> None:
    """The job is known by its number: it stays running, over a restart too, can be stopped, and its name is taken."""
    name = new_name()
    async with signed_in(place) as at:
        assert (await at.start(identity=name, command=["sleep", LONG])).status == 201
        number = (await at.show(name))["job"]
        at_cluster.say("scontrol", "update", f"JobId={number}", "Comment=grant-42")
        await trio.sleep(3)  # several looks at the queue, at this cluster's pace
        assert (await at.show(name))["state"] == "running"
        assert (await at.start(identity=name)).status == 409
    async with signed_in(place) as at:
        await trio.sleep(2)
        assert (await at.show(name))["state"] == "running"
        assert (await at.ask("DELETE", f"{name}/")).json()["state"] == "stopped"
    assert at_cluster.jobs()[name]["comment"] == "grant-42"
    assert at_cluster.jobs()[name]["job_state"] == "CANCELLED"
    assert not living()


ENGINE = """
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
import trio
from hatchway.engine.engine import open_engine
from hatchway.engine.instances.request import InstanceFields
from hatchway.engine.runtime.records import Origin
from hatchway.engine.settings.settings import Settings

async def main(home, images, name):
    settings = Settings(platform="slurm", image_folders=(images,))
    async with open_engine(Path(home), lambda: settings) as engine, trio.open_nursery() as nursery:
        fields = InstanceFields("box.sif", identity=name, command=["sleep", "%s"])
        nursery.start_soon(engine.instances.start, fields, Origin("me"))
        while True:
            actor = engine.runtime.peek("instance", name)
            print(actor and actor.state, flush=True)
            await trio.sleep(0.005)

trio.run(main, *sys.argv[1:])
"""


@pytest.mark.parametrize("moment", [0.0, 0.1])
async def test_an_engine_killed_while_it_submits(place: Place, at_cluster: Cluster, moment: float) -> None:
    """Before, amidst or after sbatch: the next engine finds the job by its mark and runs it, or none is left."""
    async with signed_in(place):
        pass
    name = new_name()
    arguments = [sys.executable, "-c", ENGINE % LONG, str(place.home), str(place.images), name]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT) as engine:
        assert engine.stdout is not None
        for line in engine.stdout:
            if line.strip() in ("starting", "queued"):
                break
        await trio.sleep(moment)
        engine.kill()
    async with signed_in(place) as at:
        with trio.fail_after(60):
            while (shown := await at.show(name))["state"] not in ("running", "failed"):
                await trio.sleep(0.1)
        job = at_cluster.jobs().get(name)
        assert (shown["state"] == "running") == (job is not None and job["job_state"] == "RUNNING")
        assert shown["state"] == "failed" or shown["job"] == str(job and job["job_id"])
        await at.ask("DELETE", f"{name}/")
        assert not living()


@pytest.fixture(scope="module", autouse=True)
def ends(
    request: pytest.FixtureRequest, cluster: Cluster | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Future[dict[str, Any]] | None]:
    """What became of instances that were ended from outside; begun at once, beside the tests above, if anybody asks."""
    wanted = any(item.name.startswith("test_an_end") for item in request.session.items if item.path == request.path)
    if cluster is None or not wanted:
        yield None
        return
    _ = key("own"), key()  # made before: two threads at once would make two of one name
    with ThreadPoolExecutor(1) as beside:
        yield beside.submit(trio.run, end_all, cluster, Place(tmp_path_factory.mktemp("ends")))


@pytest.mark.parametrize("what", ENDS)
def test_an_end_from_outside(ends: Future[dict[str, Any]], what: str) -> None:
    """Out of time or memory, node dead, preempted, cancelled, killed: each in its state, with its cause."""
    shown = ends.result()[what]
    assert (shown["state"], shown["failure"]) == (ENDS[what].state, ENDS[what].failure)
