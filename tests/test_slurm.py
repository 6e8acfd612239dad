"""Slurm for real, with Apptainer in its jobs: what is asked arrives on the node, and every end lands in the chart."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from api.http.app import make_app
from engine import files
from engine.engine import open_engine
from engine.platform import lives, processes
from engine.settings import Settings, SlurmSettings
from engine.trust.authorized_keys import AuthorizedKeys
from engine.trust.permissions import FIVE, MASTER
from tests.cluster import NODE_MEMORY, Cluster, running_cluster
from tests.containers import LONG, Place, living, new_name, place
from tests.fakes import ROOT, Browser, key, sign_in
from tests.test_instance_doors import Doors

__all__ = ["place"]

AS_ORDINARY_USER = True
pytest_plugins = ["tests.ordinary"]
pytestmark = [pytest.mark.slurm, pytest.mark.apptainer]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster | None]:
    """One cluster for all tests here; each leaves it without jobs."""
    if os.geteuid() == 0:
        yield None  # the tests run elsewhere, as an ordinary user
        return
    with running_cluster() as here:
        yield here


@pytest.fixture
def at_cluster(cluster: Cluster | None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster | None]:
    """The cluster that an engine of this process finds."""
    if cluster is None:
        yield cluster
        return
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    yield cluster
    cluster.resume()


@asynccontextmanager
async def doors(place: Place, **slurm: Any) -> AsyncIterator[Doors]:
    """An engine on the cluster, and a browser signed in at it."""
    if not (place.home / "authorized_keys").exists():
        files.write_private(place.home / "private-key.pem", key("own").pem())
        keys = AuthorizedKeys(place.home / "authorized_keys")
        keys.register(key("own").public, (MASTER,), own=True)
        keys.register(key().public, FIVE)
    images, volumes = (str(place.images),), (str(place.volumes),)
    known = Settings(platform="slurm", image_folders=images, volume_roots=volumes, slurm=SlurmSettings(**slurm))
    async with open_engine(place.home, lambda: known) as engine:
        browser = Browser(make_app(engine))
        yield Doors(browser, (await sign_in(browser))["token"])


async def test_a_life(place: Place, at_cluster: Cluster) -> None:
    """Started, listed, its log read, stopped: the three items are the node's instance's, the job's limits as asked."""
    (place.volumes / "in").mkdir()
    (place.volumes / "in" / "said").write_text("mounted")
    async with doors(place, partition="short", time_limit=600) as at:
        name = new_name()
        script = f'echo "$A|$(cat /in/said)|$1"; touch /in/no 2>/dev/null || echo read-only; sleep {LONG}'
        command, volume = ["sh", "-c", script, "sh", "two words"], [f"{place.volumes}/in:/in"]
        more: dict[str, Any] = {"env": ["A=a b,c$(id)"], "volume": volume, "cpu": "1500m", "memory": "64M"}
        reply = await at.start(identity=name, command=command, **more)
        assert reply.status == 201, reply.body
        status, identity, entity = (item["payload"] for item in reply.json())
        shown = await at.show(name)
        assert (status, identity) == ({"code": 0, "message": "instance started"}, name)
        assert {name: shown[name] for name in entity if name != "instance"} == {
            name: value for name, value in entity.items() if name != "instance"
        }
        assert (shown["state"], shown["node"]) == ("running", at_cluster.host)
        job = at_cluster.jobs()[name]
        told = (str(job["job_id"]), job["partition"], job["time_limit"], job["memory_per_node"], job["cpus"])
        assert told == (shown["job"], "short", 10, 64, 2)
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
    async with doors(place) as at:
        name = new_name()
        for word, code in (("one", 0), ("two", 7)):
            await at.start(identity=name, command=["sh", "-c", f"echo {word}; echo oops >&2; exit {code}"])
            assert (await at.until("stopped", name))["exit_code"] == code
            assert (await at.ask("GET", f"{name}/log/")).body == f"{word}\n".encode()
            assert (await at.ask("GET", f"{name}/log/?stream=err")).body == b"oops\n"


async def test_values_are_out_of_sight(place: Place, at_cluster: Cluster) -> None:
    """No argument vector shows a variable's value, nor does what Slurm keeps of the job; its files are ours alone."""
    async with doors(place) as at:
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


OVER_ASKED: list[tuple[dict[str, Any], str]] = [
    ({"memory": f"{NODE_MEMORY + 1}M"}, "Memory specification can not be satisfied"),
    ({"cpu": "99"}, "More processors requested than permitted"),
    ({"gpu": "1"}, "Invalid generic resource"),
    ({"gpu": "all"}, "count"),
]


async def test_what_the_cluster_has_not(place: Place, at_cluster: Cluster) -> None:
    """Over-asked memory, processors or GPUs are refused as `resources_unavailable`, with Slurm's own reason."""
    async with doors(place) as at:
        for fields, reason in OVER_ASKED:
            reply = await at.start(identity=new_name(), **fields)
            assert (reply.status, reply.json()["code"]) == (422, "resources_unavailable"), fields
            assert reason in reply.json()["detail"]
            assert str(place.home) not in reply.body.decode()


async def test_what_may_be_asked_for(place: Place, at_cluster: Cluster) -> None:
    """A partition or a time is the request's to choose where the settings say so, and refused by its name elsewhere."""
    name = new_name()
    async with doors(place, allow_request=("partition", "time_limit"), partition="main") as at:
        reply = await at.start(identity=name, partition="short", time_limit="30m", command=["true"])
        assert reply.status == 201, reply.body
        job = at_cluster.jobs()[name]
        assert (job["partition"], job["time_limit"]) == ("short", 30)
        refused = await at.start(identity=new_name(), account="other", time_limit="0m", partition="--x")
        assert refused.status == 422
        assert set(refused.json()["errors"]) == {"account", "time_limit", "partition"}
        assert "slurm.allow_request" in refused.json()["errors"]["account"]
        unknown = await at.start(identity=new_name(), partition="nowhere")
        assert (unknown.json()["code"], "nvalid partition" in unknown.json()["detail"]) == (
            "resources_unavailable",
            True,
        )
        await at.until("stopped", name)


async def test_queued_over_a_restart(place: Place, at_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the node is drained a start is queued and Slurm's reason shown; engine restarted, node back: it runs."""
    monkeypatch.setattr(lives, "QUEUE_HELD", 3.0)
    name, given_up = new_name(), new_name()
    at_cluster.drain()
    async with doors(place) as at:
        reply = await at.start(identity=name, command=["sleep", LONG])
        assert reply.status == 202, reply.body
        shown = await at.show(name)
        assert shown["state"] == "queued"
        assert re.match(r"queued \((Resources|.*Node.*)\)", shown["progress"])
        assert shown["job"] in reply.json()[0]["payload"]["message"]
        assert reply.json()[2]["payload"]["pid"] == 0
        assert (await at.ask("GET", f"{name}/log/")).status == 404
        with trio.move_on_after(1):
            await at.start(identity=given_up)
        await at.until("queued", given_up)
    async with doors(place) as at:
        assert (await at.show(name))["state"] == "queued"
        assert (await at.ask("DELETE", f"{given_up}/")).json()["state"] == "failed"
        assert at_cluster.jobs()[given_up]["job_state"] == "CANCELLED"
        at_cluster.resume()
        running = await at.until("running", name)
        assert running["job"] == shown["job"]
    async with doors(place) as at:
        assert (await at.show(name))["state"] == "running"
        assert (await at.ask("DELETE", f"{name}/")).json()["state"] == "stopped"


def node_programs(name: str) -> list[int]:
    """The two processes that mind an instance on its node, the guard first."""
    found = [one for one in processes.own() if one.argv[-1].split("/")[-2:-1] == [name] and "node.py" in one.argv[-2]]
    return sorted(process.pid for process in found)


async def test_ends_from_outside(place: Place, at_cluster: Cluster) -> None:
    """The time limit, scancel, kill -9 of the instance and of the job: each lands in a state, with its cause."""
    names = dict.fromkeys(("time", "cancelled", "instance"), "")
    async with doors(place) as at:
        for what in names:
            names[what] = new_name()
            reply = await at.start(identity=names[what], command=["sleep", LONG] if what != "instance" else [])
            assert reply.status == 201, reply.body
        jobs = {what: (await at.show(name))["job"] for what, name in names.items()}
        at_cluster.say("scontrol", "update", f"JobId={jobs['time']}", "EndTime=now")
        at_cluster.say("scancel", jobs["cancelled"])
        os.kill((await at.show(names["instance"]))["pid"], signal.SIGKILL)
        await at.until("stopped", names["instance"])
        assert "cancelled" in (await at.until("failed", names["cancelled"]))["failure"]
        for place_in_tree in (0, 1):
            name = new_name()
            await at.start(identity=name, command=["sleep", LONG])
            os.kill(node_programs(name)[place_in_tree], signal.SIGKILL)
            assert "failed" in (await at.until("failed", name))["failure"]
        with trio.fail_after(90):
            while (shown := await at.show(names["time"]))["state"] == "running":
                await trio.sleep(0.2)
        assert (shown["state"], "time limit" in shown["failure"]) == ("failed", True)
        with trio.fail_after(20):
            while living():
                await trio.sleep(0.1)


async def test_the_controller_is_away(place: Place, at_cluster: Cluster) -> None:
    """A start is refused with a later try, what runs is still told as running, and a stop is done once it is back."""
    async with doors(place) as at:
        name = new_name()
        await at.start(identity=name, command=["sleep", LONG])
        at_cluster.stop_controller()
        try:
            refused = await at.start(identity=new_name())
            assert (refused.status, refused.json()["code"]) == (503, "runtime_unavailable")
            assert "retry-after" in refused.headers
            assert (await at.show(name))["state"] == "running"
            async with trio.open_nursery() as nursery:
                nursery.start_soon(at.ask, "DELETE", f"{name}/")
                await at.until("stopping", name)
                at_cluster.start_controller()
        finally:
            at_cluster.start_controller()
        assert (await at.show(name))["state"] == "stopped"
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


ENGINE = """
import sys
from pathlib import Path
import trio
from engine.engine import open_engine
from engine.platform.request import InstanceFields
from engine.records import Origin
from engine.settings import Settings

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
    async with doors(place):
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
    async with doors(place) as at:
        with trio.fail_after(60):
            while (shown := await at.show(name))["state"] not in ("running", "failed"):
                await trio.sleep(0.1)
        job = at_cluster.jobs().get(name)
        assert (shown["state"] == "running") == (job is not None and job["job_state"] == "RUNNING")
        assert shown["state"] == "failed" or shown["job"] == str(job and job["job_id"])
        await at.ask("DELETE", f"{name}/")
        assert not living()
