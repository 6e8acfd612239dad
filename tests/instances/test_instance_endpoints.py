"""The instance endpoints: who may call them, what they refuse, and what they do with a real runtime behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from hatchway.api.http.problems import problem_response
from hatchway.engine.base.errors import TooManyInstances
from hatchway.engine.keys import key_edits
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.settings.settings import Limits
from tests.support.containers import LONG, Gate, Place, listed, living, new_name, place
from tests.support.fakes import ROOT, Reply, key
from tests.support.instance_client import InstanceClient, signed_in
from tests.support.instance_requests import BODIES, filled
from tests.support.instance_requests import Place as Traps
from tests.support.processes import prepare
from tests.support.timing import Share

__all__ = ["place"]

AS_ORDINARY_USER = True
pytest_plugins = ["tests.support.ordinary_user"]
pytestmark = pytest.mark.apptainer


async def test_the_three_items(place: Place) -> None:
    """Status, identity, entity, in that order (2.7); the six values are the runtime's own."""
    async with signed_in(place) as at:
        name = new_name()
        reply = await at.start(identity=name, command=["sleep", LONG])
        raw = listed()[name]
        assert reply.status == 201
        assert reply.json() == [
            {"kind": "status", "payload": {"code": 0, "message": "instance started"}},
            {"kind": "entity", "payload": name},
            {
                "kind": "entity",
                "payload": {
                    "img": raw["img"],
                    "instance": raw["instance"],
                    "ip": raw["ip"],
                    "log_err_path": raw["logErrPath"],
                    "log_out_path": raw["logOutPath"],
                    "pid": raw["pid"],
                },
            },
        ]
        assert [row["identity"] for row in (await at.ask("GET")).json()["instances"]] == [name]
        assert (await at.show(name))["state"] == "running"
        stopped = await at.ask("DELETE", f"{name}/")
        assert (stopped.status, stopped.json()["state"]) == (200, "stopped")
        assert not living()
        assert (await at.ask("DELETE", f"{name}/")).json()["code"] == "instance_not_found"


@pytest.mark.parametrize(
    ("settings", "whose"),
    [
        ({"max_instances": 0}, "max_instances"),
        ({"limits": Limits(instances_per_identity=0)}, "limits.instances_per_identity"),
    ],
)
async def test_too_many(place: Place, settings: dict[str, Any], whose: str) -> None:
    """429 says whose limit it is and when to come again, as the description promises."""
    async with signed_in(place, **settings) as at:
        reply = await at.start()
        assert (reply.status, reply.json()["code"]) == (429, "too_many_instances")
        assert f"`{whose}`" in reply.json()["detail"]
        assert int(reply.headers["retry-after"]) > 0
        assert problem_response(TooManyInstances("no time known")).headers[-1][0] == b"retry-after"


async def test_every_field_that_a_host_can_honour(place: Place) -> None:
    """One start with all of them: the three items in order; inside, variables, mounts, arguments and user as asked."""
    (place.volumes / "in").mkdir()
    (place.volumes / "in" / "said").write_text("mounted")
    async with signed_in(place, allow_fakeroot=True) as at:
        name = new_name()
        script = 'echo "$A|$(cat /in/said)|$1|$2|$(id -u)"; touch /in/no 2>/dev/null || echo read-only'
        reply = await at.start(
            identity=name,
            env=["A=a b,c$(id)"],
            volume=[f"{place.volumes}/in:/in"],
            command=["sh", "-c", script, "sh", "-x", "two words"],
            cpu="",
            memory="",
            gpu="",
            fakeroot=True,
        )
        assert reply.status == 201, reply.body
        assert [item["kind"] for item in reply.json()] == ["status", "entity", "entity"]
        assert (await at.until("stopped", name))["exit_code"] == 0
        log = (await at.ask("GET", f"{name}/log/")).body.decode()
        assert log.splitlines() == ["a b,c$(id)|mounted|-x|two words|0", "read-only"]


@pytest.mark.parametrize("case", BODIES, ids=lambda case: json.dumps(case["body"])[:60])
async def test_the_corpus_of_bodies(place: Place, tmp_path: Path, case: dict[str, Any]) -> None:
    """Every row does what it says: a 4xx of the documented shape and nothing started, or run as written."""
    (tmp_path / "traps").mkdir()
    traps = Traps(tmp_path / "traps")
    settings: dict[str, Any] = {"volume_roots": (str(traps.roots),)}
    async with signed_in(place, **settings) as at:
        body = {"identity": new_name(), **filled(traps, case["body"])}
        reply = await at.start(**body)
        if reply.status == 201:
            assert case["expect"].startswith(("value arrives", "one variable", "passed as", "limited"))
            await at.ask("DELETE", f"{body['identity']}/")
        else:
            assert reply.status in (400, 404, 413, 422)
            assert reply.json()["code"] in (
                "invalid_request",
                "image_not_found",
                "resources_unavailable",
                "body_too_large",
            )
            assert "connection refused" not in reply.body.decode()
            assert not case["expect"].startswith(("value arrives", "one variable", "passed as"))
        assert not living()


async def test_six_starts_of_one_name(place: Place) -> None:
    """One runs, five get 409; after a stop no process of it is left."""
    async with signed_in(place) as at:
        name = new_name()
        replies: list[Reply] = [Reply() for _ in range(6)]
        async with trio.open_nursery() as nursery:
            for reply in replies:
                nursery.start_soon(lambda reply: at.start(reply, identity=name), reply)
        assert Counter(reply.status for reply in replies) == {201: 1, 409: 5}
        assert {reply.json()["code"] for reply in replies if reply.status == 409} == {"instance_exists"}
        assert list(living()) == [name]
        await at.ask("DELETE", f"{name}/")
        assert not living()


async def test_a_foreign_instance_of_that_name(place: Place) -> None:
    """409; it is neither listed, nor shown as ours, nor stopped."""
    name = new_name()
    env = {"PATH": os.environ["PATH"], "HOME": str(Path.home())}
    start = ["apptainer", "instance", "start", "--containall", str(place.images / "box.sif"), name]
    subprocess.run(start, env=env, check=True, capture_output=True)
    async with signed_in(place) as at:
        reply = await at.start(identity=name)
        assert (reply.status, reply.json()["code"]) == (409, "instance_exists")
        assert (await at.ask("DELETE", f"{name}/")).status == 404
        assert name in listed()
    subprocess.run(["apptainer", "instance", "stop", name], env=env, check=True, capture_output=True)


async def test_clients_that_leave(place: Place) -> None:
    """Twenty starts whose client hangs up, each a little later: finished and listed, or never begun; no orphan."""
    async with signed_in(place) as at:
        names = [new_name() for _ in range(20)]
        for number, name in enumerate(names):
            with trio.move_on_after(number * 0.02):
                await at.start(identity=name)
        with trio.fail_after(60):
            while any(row["state"] in ("requested", "starting") for row in await _rows(at)):
                await trio.sleep(0.1)
        running = {row["identity"] for row in await _rows(at) if row["state"] == "running"}
        assert running == set(living()) == {name for name in listed() if name in names}
        assert running
        async with trio.open_nursery() as nursery:
            for name in running:
                nursery.start_soon(at.ask, "DELETE", f"{name}/")


async def _rows(at: InstanceClient) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (await at.ask("GET")).json()["instances"]
    return rows


async def test_an_instance_killed_from_outside(place: Place) -> None:
    """Shown as stopped as soon as it is gone; the same name starts again."""
    async with signed_in(place) as at:
        name = new_name()
        for _ in range(2):
            pid = (await at.start(identity=name)).json()[2]["payload"]["pid"]
            os.kill(pid, signal.SIGKILL)
            await at.until("stopped", name)
            assert not living()


async def test_the_log(place: Place) -> None:
    """Each stream by itself; followed, it comes as it is written and ends with the instance."""
    async with signed_in(place) as at:
        name, reply, gate = new_name(), Reply(), Gate(place)
        script = f"echo one; {gate.wait}; echo two; echo oops >&2; exit 3"
        await at.start(identity=name, command=["sh", "-c", script], volume=[gate.volume])
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(at.follow, reply, name)
                while reply.body != b"one\n":
                    await trio.sleep(0.02)
                gate.open()
        assert (reply.body, reply.broken_off) == (b"one\ntwo\n", False)
        assert (await at.until("stopped", name))["exit_code"] == 3
        assert (await at.ask("GET", f"{name}/log/?stream=err")).body == b"oops\n"
        assert (await at.ask("GET", f"{name}/log/?stream=both")).json()["errors"] == {"stream": "must be out or err"}
        assert (await at.ask("GET", "unknown/log/")).status == 404


async def test_a_followed_log_ends_with_its_key(place: Place) -> None:
    """Within a second once the key has expired, though the instance runs on: so it is broken off, and not at its
    end."""
    async with signed_in(place) as at:
        name, reply, gate = new_name(), Reply(), Gate(place)
        await at.start(identity=name, command=["sh", "-c", f"echo one; {gate.wait}"], volume=[gate.volume])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(at.follow, reply, name)
            with trio.fail_after(60):
                while reply.body != b"one\n":
                    await trio.sleep(0.02)
            edit_key(place, {"expiry-time": "20200101Z"})
            share, began = Share(), time.monotonic()
            with trio.fail_after(60):
                await reply.done.wait()
            assert (time.monotonic() - began) * share.now() < 1.5
        assert (reply.body, reply.broken_off) == (b"one\n", True)
        assert living()
        gate.open()
        with trio.fail_after(60):
            while living():
                await trio.sleep(0.1)


async def test_a_key_s_instances_are_counted_however_many_are_asked_for_at_once(place: Place) -> None:
    """Fifty starts at once by a key with `instances="4"`: four run, the others are refused for that."""
    prepare(place.home)
    edit_key(place, {"instances": "4"})
    async with signed_in(place) as at:
        replies = [Reply() for _ in range(50)]
        async with trio.open_nursery() as nursery:
            for reply in replies:
                nursery.start_soon(partial(at.start, reply, identity=new_name(), command=["sleep", LONG]))
        assert Counter(reply.status for reply in replies) == {201: 4, 429: 46}
        assert len(living()) == 4
        refused = next(reply for reply in replies if reply.status == 429).json()
        assert refused["code"] == "too_many_instances"
        assert refused["detail"] == "4 instances are live of your key, the most that its `instances=` allows"
        names = [reply.json()[1]["payload"] for reply in replies if reply.status == 201]
        await at.ask("DELETE", f"{names[0]}/")
        names[0] = new_name()
        assert (await at.start(identity=names[0], command=["sleep", LONG])).status == 201
        for name in names:
            await at.ask("DELETE", f"{name}/")


def edit_key(place: Place, options: dict[str, str]) -> None:
    """Give the key `one` these options."""
    keys = AuthorizedKeys(place.home / "authorized_keys")
    keys.edit(partial(key_edits.edit, selector=key().identity, options=options))


async def test_a_failed_start_has_the_runtimes_code(place: Place) -> None:
    """The table's status and one status item, with no path of the host in it."""
    (place.images / "none.sif").write_bytes(b"no image")
    async with signed_in(place) as at:
        reply = await at.start(identity=new_name(), image="none.sif")
        problem = reply.json()
        assert (reply.status, problem["code"]) == (422, "image_not_found")
        assert problem["items"] == [{"kind": "status", "payload": {"code": 255, "message": problem["detail"]}}]
        assert str(place.images) not in reply.body.decode()


async def test_limits_are_refused_by_name(place: Place) -> None:
    """All that is asked at once, each limit that this host can't enforce named in one answer."""
    async with signed_in(place) as at:
        reply = await at.start(cpu="999999m", memory="9999999G", gpu="999")
        assert (reply.status, reply.json()["code"]) == (422, "resources_unavailable")
        assert set(reply.json()["errors"]) == {"cpu", "memory", "gpu"}


ENGINE = """
import json, sys
from pathlib import Path
import trio
from hatchway.engine.engine import open_engine
from hatchway.engine.instances.request import InstanceFields
from hatchway.engine.runtime.records import Origin
from hatchway.engine.settings.settings import Settings

async def main(home, images, fields):
    settings = Settings(image_folders=(images,), volume_roots=(str(Path(images).with_name("volumes")),))
    async with open_engine(Path(home), lambda: settings) as engine:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(engine.instances.start, InstanceFields("box.sif", **fields), Origin("me"))
            while True:
                actor = engine.runtime.peek("instance", fields["identity"])
                print(actor and actor.state, flush=True)
                await trio.sleep(0.01)

trio.run(main, sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
"""


def kill_engine_when(place: Place, state: str, **fields: Any) -> None:
    """An engine of its own starts an instance; it is killed outright as soon as the instance has come so far."""
    arguments = [sys.executable, "-c", ENGINE, str(place.home), str(place.images), json.dumps(fields)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT) as engine:
        assert engine.stdout is not None
        for line in engine.stdout:
            if line.strip() in (state, "running"):
                break
        engine.kill()


async def test_a_command_outlives_the_engine(place: Place) -> None:
    """Killed between the start and the end of a command, the next engine has its exit code and its log."""
    name, gate = new_name(), Gate(place)
    async with signed_in(place):
        pass
    script = f"echo begun; {gate.wait}; echo done; exit 9"
    kill_engine_when(place, "running", identity=name, command=["sh", "-c", script], volume=[gate.volume])
    assert name in listed()
    async with signed_in(place) as at:
        assert (await at.show(name))["state"] == "running"
        gate.open()
        shown = await at.until("stopped", name)
        assert shown["exit_code"] == 9
        assert (await at.ask("GET", f"{name}/log/")).body == b"begun\ndone\n"


async def test_a_command_ends_while_no_engine_runs(place: Place) -> None:
    """Its exit code waits for the next engine."""
    name = new_name()
    async with signed_in(place):
        pass
    kill_engine_when(place, "running", identity=name, command=["sh", "-c", "exit 4"])
    with trio.fail_after(20):
        while living():
            await trio.sleep(0.05)
    async with signed_in(place) as at:
        assert (await at.until("stopped", name))["exit_code"] == 4


async def test_an_engine_killed_during_a_start(place: Place) -> None:
    """The next one finishes the start, or undoes it: nothing runs that is not listed as running."""
    async with signed_in(place):
        pass
    for _ in range(3):
        name = new_name()
        kill_engine_when(place, "starting", identity=name, command=["sleep", LONG])
        async with signed_in(place) as at:
            with trio.fail_after(30):
                while (await at.show(name))["state"] not in ("running", "failed"):
                    await trio.sleep(0.05)
            running = (await at.show(name))["state"] == "running"
            assert set(living()) == ({name} if running else set())
            await at.ask("DELETE", f"{name}/")
            assert not living()
