"""Instances of several engines behind one address, with real containers and a real Redis: any of them may be asked."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import httpx
import pytest

from tests.support.containers import LONG, Gate, Place, left_clean, living, new_name
from tests.support.fleet import client, fleet
from tests.support.fleet_instances import HOST, InstancesClient
from tests.support.processes import sign_in
from tests.support.redis_server import RedisServer, speak
from tests.support.waits import until

AS_ORDINARY_USER = True
pytest_plugins = ["tests.support.ordinary_user"]
pytestmark = [pytest.mark.apptainer, pytest.mark.redis, pytest.mark.process]


class Follower(threading.Thread):
    """Somebody who follows an instance's log, and to whom it ends or breaks off."""

    def __init__(self, client: InstancesClient, name: str) -> None:
        super().__init__()
        self.came: list[bytes] = []
        self.broke_off = False
        self._client, self._followed = client, name

    def run(self) -> None:
        try:
            self._client.follow(self._followed, self.came)
        except httpx.TransportError:
            self.broke_off = True


class Two:
    """Two engines, with a client of each."""

    def __init__(self, place: Place, redis: RedisServer, a: InstancesClient, b: InstancesClient) -> None:
        self.place, self.redis, self.a, self.b = place, redis, a, b


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two | None]:
    """Nothing of theirs runs at the end. As root the tests run elsewhere, and need none here."""
    if os.geteuid() == 0:
        yield None
        return
    folder = tmp_path_factory.mktemp("fleet")
    redis = RedisServer(folder / "redis")
    with left_clean(folder) as place:
        settings = {"HATCHWAY_IMAGE_FOLDERS": str(place.images), "HATCHWAY_VOLUME_ROOTS": str(place.volumes)}
        try:
            url = redis.start().url
            with fleet(folder, url, url, **settings) as engines, ExitStack() as stack:
                clients = [stack.enter_context(client(engine)) for engine in engines]
                token = sign_in(clients[0])["token"]
                made = [InstancesClient(engine, http, token) for engine, http in zip(engines, clients, strict=True)]
                yield Two(place, redis, *made)
                with ThreadPoolExecutor() as pool:
                    list(pool.map(made[0].stop, made[0].live()))
        finally:
            redis.close()


def test_one_list(two: Two) -> None:
    """Started at one engine, shown alike by both, with its host; variables' values leave the host for nobody."""
    name, other = new_name(), new_name()
    assert two.a.start(name, "sleep", LONG, env=["PASSWORD=hunter2"]).status_code == 201
    assert two.b.start(other, "sleep", LONG).status_code == 201
    for here in (two.a, two.b):
        assert here.names(name, other) == sorted([name, other]), "by name, whichever engine is asked"
        shown = here.show(name)
        assert (shown["state"], shown["host"], shown["host_answers"]) == ("running", HOST, True)
        assert shown["env"] == ["PASSWORD"]
    assert two.a.show(name) == two.b.show(name)
    told = speak(two.redis.port, "HGETALL", "hatchway:instances")
    assert name.encode() in told
    assert b"hunter2" not in told
    assert two.b.ask("GET", f"{new_name()}/").json()["code"] == "instance_not_found"


def test_stopped_elsewhere(two: Two) -> None:
    """It ends where it runs, whose records name who asked; both engines show its end, and its log stays readable."""
    name = new_name()
    two.a.start(name, "sh", "-c", f"echo begun; sleep {LONG}")
    until(lambda: two.b.ask("GET", f"{name}/log/").content == b"begun\n", what="its output")
    ended = two.b.ask("DELETE", f"{name}/")
    assert (ended.status_code, ended.json()["state"]) == (200, "stopped")
    assert name not in living()
    assert two.a.show(name) == two.b.show(name) == ended.json()
    assert two.b.ask("DELETE", f"{name}/").json()["code"] == "instance_not_found"
    assert two.b.ask("GET", f"{name}/log/").content == b"begun\n"
    records = [json.loads(line) for line in (two.a.engine.home / "log/events.jsonl").read_text().splitlines()]
    (stop,) = [record for record in records if (record["actor"], record["event"]) == (name, "stop")]
    assert (stop["identity"], stop["address"]) == (two.a.show(name)["owner"], "127.0.0.1")
    assert not (two.b.engine.home / "instances" / name).exists()


def test_a_log_elsewhere(two: Two) -> None:
    """Each stream whole, however long; followed, it comes as it is written and ends with the instance."""
    long, slow = new_name(), new_name()
    two.a.start(long, "sh", "-c", "yes 0123456789abcde | head -c 500000; echo oops >&2; exit 3")
    until(lambda: two.b.show(long)["state"] == "stopped", what="its end")
    assert two.b.show(long)["exit_code"] == 3
    assert two.b.ask("GET", f"{long}/log/").content == b"0123456789abcde\n" * 31250
    assert two.b.ask("GET", f"{long}/log/?stream=err").content == b"oops\n"
    gate = Gate(two.place)
    two.a.start(slow, "sh", "-c", f"echo one; {gate.wait}; echo two", volume=[gate.volume])
    came: list[bytes] = []
    following = threading.Thread(target=two.b.follow, args=(slow, came))
    following.start()
    until(lambda: b"".join(came) == b"one\n", what="what is written first")
    gate.open()
    following.join()
    assert b"".join(came) == b"one\ntwo\n"
    assert two.b.ask("GET", f"{new_name()}/log/?follow=true").status_code == 404


def test_a_log_elsewhere_ends_with_its_session(two: Two) -> None:
    """Logged out, who follows is sent no more, and is not told that it was all."""
    name = new_name()
    two.a.start(name, "sh", "-c", f"echo begun; sleep {LONG}")
    with client(two.b.engine) as http:
        reader = InstancesClient(two.b.engine, http, sign_in(http)["token"])
        following = Follower(reader, name)
        following.start()
        until(lambda: bool(following.came), what="its output")
        assert http.post("/api/auth/logout/", headers=reader.headers).status_code == 204
        following.join(20)
        assert not following.is_alive()
        assert following.broke_off


def test_one_name(two: Two) -> None:
    """Of many starts at both engines one is taken. Once it has ended its name is anybody's, and means the new one."""
    name = new_name()
    statuses: list[int] = []

    def race(client: InstancesClient) -> None:
        statuses.append(client.start(name).status_code)

    racers = [threading.Thread(target=race, args=(client,)) for client in (two.a, two.b) * 3]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert Counter(statuses) == {201: 1, 409: 5}
    assert [client.names(name) for client in (two.a, two.b)] == [[name], [name]]
    assert two.a.ask("DELETE", f"{name}/").status_code == 200
    two.a.start(name, "sh", "-c", "echo first")
    until(lambda: two.b.show(name)["state"] == "stopped", what="its end")
    refused = two.b.start(new_name(), image="none.sif")
    assert refused.json()["code"] == "image_not_found"
    assert two.b.start(name, "sh", "-c", f"echo second; sleep {LONG}").status_code == 201
    taken = two.a.start(name)
    assert (taken.status_code, taken.json()["code"]) == (409, "instance_exists")
    assert taken.json()["detail"].endswith(f"is there already, on {HOST}")
    until(lambda: two.a.ask("GET", f"{name}/log/").content == b"second\n", what="its output")
    assert [client.names(name) for client in (two.a, two.b)] == [[name], [name]]


def test_its_engine_is_killed(two: Two) -> None:
    """Away, it is listed as it was told last; to stop or read it is a 503 that names the host, and its name is taken.
    Back, it is found again by everybody, with what happened meanwhile."""
    stays, ends, gate = new_name(), new_name(), Gate(two.place)
    two.a.start(stays, "sh", "-c", f"echo begun; sleep {LONG}")
    two.a.start(ends, "sh", "-c", f"{gate.wait}; exit 7", volume=[gate.volume])
    reader = Follower(two.b, stays)
    reader.start()
    until(lambda: bool(reader.came), what="its output")
    two.a.engine.kill()
    reader.join(20)
    assert reader.broke_off, "a log that broke off must not look whole"
    until(lambda: "log_broke_off" in two.b.engine.log(), what="a word on why")
    assert "Traceback" not in two.b.engine.log()
    until(lambda: two.b.show(stays)["host_answers"] is False, what="the death to be known")
    rows = [row for row in two.b.ask("GET").json()["instances"] if row["identity"] in (stays, ends)]
    assert [(row["state"], row["host"], row["host_answers"]) for row in rows] == [("running", HOST, False)] * 2
    for method, path in (("DELETE", f"{stays}/"), ("GET", f"{stays}/log/"), ("GET", f"{stays}/log/?follow=true")):
        refused = two.b.ask(method, path)
        assert (refused.status_code, refused.json()["code"]) == (503, "host_unavailable")
        assert f"the engine on {HOST}" in refused.json()["detail"]
        assert int(refused.headers["retry-after"]) > 0
    assert two.b.start(stays).json()["code"] == "instance_exists"
    (line,) = [row for row in two.b.engine.command("instance", "list").splitlines() if row.startswith(stays)]
    assert f"running  {HOST} does not answer" in line
    shown = two.b.engine.command("instance", "show", stays).splitlines()
    assert f"{HOST} (does not answer: the rest is what it told last)" in shown[2]
    gate.open()
    until(lambda: ends not in living(), what="the command's end")
    two.a.engine.start()
    until(lambda: two.b.show(ends)["exit_code"] == 7, what="the end to be told")
    assert (two.b.show(stays)["state"], two.b.show(stays)["host_answers"]) == ("running", True)
    assert two.b.ask("GET", f"{stays}/log/").content == b"begun\n"
    assert two.b.ask("DELETE", f"{stays}/").json()["state"] == "stopped"


def test_killed_while_it_starts(two: Two) -> None:
    """Nothing is left of a start that its engine did not survive: finished and told of, undone and told of, or never
    begun and its name free."""
    name = new_name()

    def start() -> None:
        with suppress(httpx.TransportError):
            two.a.start(name, "sleep", LONG)

    def state() -> str | None:
        return two.b.show(name).get("state")

    starter = threading.Thread(target=start)
    starter.start()
    until(lambda: two.b.names(name) == [name], what="the start to be told")
    two.a.engine.kill()
    starter.join()
    two.a.engine.start()
    until(lambda: state() in ("running", "failed", None), what="what became of it")
    assert (state() == "running") == (name in living())
    assert two.a.show(name) == two.b.show(name)


def test_the_store_is_away_as_one_ends(two: Two) -> None:
    """What happened meanwhile is told as soon as the store is back."""
    name, gate = new_name(), Gate(two.place)
    two.a.start(name, "sh", "-c", f"{gate.wait}; exit 5", volume=[gate.volume])
    two.redis.kill()
    gate.open()
    until(lambda: name not in living(), what="the command's end")
    two.redis.start()
    until(lambda: two.b.ask("GET", f"{name}/").json().get("exit_code") == 5, what="the end to be told")
