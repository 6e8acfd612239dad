"""`keys = "store"`: one list of keys and one token key for all engines, changed at any host, lost nowhere."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from hatchway.engine.base.clock import SystemClock
from hatchway.engine.base.errors import EngineUnavailable, KeyRefused
from hatchway.engine.base.permissions import FIVE, MASTER
from hatchway.engine.fleet.key_administration import open_key_administration
from hatchway.engine.fleet.keys import FleetKeys, SharedKeys
from hatchway.engine.keys import key_edits
from hatchway.engine.keys.keys import PrivateKey, generate_token_key, token_key_pem
from hatchway.engine.settings.settings import Settings
from tests.support.fakes import key, signed
from tests.support.fleet import Relay, client, insist, inspect, member, settled
from tests.support.processes import EngineProcess
from tests.support.redis_server import RedisServer, redis_store, speak
from tests.support.waits import until

pytestmark = [pytest.mark.redis, pytest.mark.process]

KEYS = "hatchway:actors:keys"
"""Where the store has them."""


class Hosts:
    """Two engines whose keys are in one store; the first one's way to it can be cut."""

    def __init__(self, folder: Path, redis: RedisServer, relay: Relay, stack: ExitStack) -> None:
        self.folder, self.redis, self.relay, self.stack = folder, redis, relay, stack
        self.administration = open_key_administration(folder, Settings(store=redis.url, keys="store"))
        self.a, self.b = self.host("a", relay.url), self.host("b", redis.url)
        for engine in (self.a, self.b):
            engine.begin()
        for engine in (self.a, self.b):
            engine.wait_ready()

    def host(self, name: str, store: str | None = None, **settings: str) -> EngineProcess:
        """A host of the fleet, no engine started."""
        engine = EngineProcess(
            self.folder / name, HATCHWAY_STORE=store or self.redis.url, HATCHWAY_KEYS="store", **settings
        )
        self.stack.callback(engine.close)
        return engine

    def change(self, change: Any, **how: Any) -> None:
        """A change of the keys by whoever may write to the store; no engine is told otherwise."""
        self.administration.edit(partial(change, **how))

    def register(self, private: PrivateKey, permissions: tuple[str, ...] = FIVE) -> None:
        self.change(key_edits.register, key=private.public, permissions=permissions)

    def unregister(self, private: PrivateKey) -> None:
        self.change(key_edits.unregister, selector=private.identity)

    def public(self, private: PrivateKey) -> str:
        path = self.folder / "guest.pub"
        path.write_bytes(private.public.pem())
        return str(path)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("keys")
    with ExitStack() as stack:
        redis = RedisServer(folder / "redis").start()
        stack.callback(redis.close)
        relay = Relay(redis.port)
        stack.callback(relay.close)
        yield Hosts(folder, redis, relay, stack)


def listed(host: EngineProcess) -> dict[str, tuple[str, ...]]:
    """What `key list` shows: permissions by identity."""
    rows = json.loads(host.command("key", "list", "--json"))
    return {row["identity"]: tuple(row["permissions"]) for row in rows}


def verified(engine: EngineProcess, private: PrivateKey) -> httpx.Response:
    """The answer to a sign-in with the key."""
    with closing(client(engine)) as http:
        challenge = http.get("/api/auth/challenge/")
        if challenge.status_code != 200:
            return challenge
        return http.post("/api/auth/verify/", json=signed(challenge.json()["nonce"], private))


def verify(engine: EngineProcess, private: PrivateKey) -> int:
    """The status of a sign-in with the key, at an engine whose store is there."""
    return insist(lambda: verified(engine, private)).status_code


def session_of(engine: EngineProcess, private: PrivateKey) -> dict[str, Any]:
    answer = insist(lambda: verified(engine, private))
    assert answer.status_code == 200, answer.text
    session: dict[str, Any] = answer.json()
    return session


def key_ids(engine: EngineProcess) -> list[str]:
    """The published keys, the signing one first."""
    with closing(client(engine)) as http:
        return [row["kid"] for row in http.get("/.well-known/jwks.json").json()["keys"]]


def second_passed(since: float) -> None:
    """The promise is about what is asked from then on."""
    time.sleep(max(0.0, since + 1 - time.monotonic()))


def test_registered_at_one_host_taken_out_at_another(hosts: Hosts) -> None:
    """Known at every engine a second later; and so is its end, with all its sessions, counted."""
    a, b, guest = hosts.a, hosts.b, key("guest")
    a.command("key", "register", hosts.public(guest))
    second_passed(time.monotonic())
    assert listed(b)[guest.identity] == FIVE
    sessions = [session_of(a, guest), session_of(b, guest)]
    told = json.loads(b.command("key", "unregister", "guest", "--json"))
    assert told == {"identity": guest.identity, "sessions_ended": 2}
    second_passed(time.monotonic())
    assert {settled(engine, session) for engine in (a, b) for session in sessions} == {401}
    assert [verify(engine, guest) for engine in (a, b)] == [401, 401]
    hosts.register(guest)
    until(lambda: verify(a, guest) == 200, what="the key")
    assert {settled(engine, session) for engine in (a, b) for session in sessions} == {401}
    hosts.unregister(guest)


def test_narrowed_at_another_host(hosts: Hosts) -> None:
    """What a key holds less, its sessions hold less of at every engine, a second later."""
    guest = key("narrowed")
    hosts.register(guest)
    second_passed(time.monotonic())
    session = session_of(hosts.b, guest)
    hosts.register(guest, ("AGENT",))
    second_passed(time.monotonic())
    with closing(client(hosts.b)) as http:
        bearer = {"Authorization": f"Bearer {session['token']}"}
        told = insist(lambda: http.get("/api/auth/inspect/", headers=bearer)).json()
    assert told["permissions"] == ["AGENT"]


def test_taken_out_where_no_engine_runs(hosts: Hosts) -> None:
    """A host without an engine speaks to the store; a stopped engine's commands end the sessions too."""
    administration, guest = hosts.host("administration"), key("far")
    administration.command("key", "register", hosts.public(guest), "--comment", "far")
    second_passed(time.monotonic())
    session = session_of(hosts.b, guest)
    administration.command("key", "unregister", "far")
    second_passed(time.monotonic())
    assert [settled(engine, session) for engine in (hosts.a, hosts.b)] == [401, 401]
    hosts.register(guest)
    second_passed(time.monotonic())
    session = session_of(hosts.b, guest)
    hosts.a.terminate()
    try:
        hosts.a.command("key", "unregister", guest.identity)
        second_passed(time.monotonic())
        assert settled(hosts.b, session) == 401
    finally:
        hosts.a.start()
    assert settled(hosts.a, session) == 401


def test_the_token_key_is_rotated(hosts: Hosts) -> None:
    """Every engine signs with the new key a second later; old tokens stay good, until force ends them everywhere."""
    a, b = hosts.a, hosts.b
    before, session = key_ids(a), session_of(a, key())
    a.command("key", "rotate-token")
    until(lambda: key_ids(a) == key_ids(b) == [key_ids(a)[0], before[0]], what="the new key")
    fresh = session_of(b, key())
    assert {settled(engine, one) for engine in (a, b) for one in (session, fresh)} == {200}
    b.command("key", "rotate-token", code=1)
    b.command("key", "rotate-token", "--force")
    second_passed(time.monotonic())
    assert [settled(engine, session) for engine in (a, b)] == [401, 401]
    assert [settled(engine, fresh) for engine in (a, b)] == [200, 200]


def test_without_the_store_nothing_is_answered(hosts: Hosts) -> None:
    """Cut off, an engine answers by no old key; back, it knows what it missed. Commands there say why they can't."""
    guest = key("cut off")
    hosts.register(guest)
    second_passed(time.monotonic())
    session = session_of(hosts.a, guest)
    hosts.relay.cut()
    hosts.unregister(guest)
    second_passed(time.monotonic())
    assert inspect(hosts.a, session) == 503
    assert verified(hosts.a, guest).status_code == 503
    hosts.a.command("key", "list", code=1)
    hosts.relay.mend()
    until(lambda: settled(hosts.a, session) == 401, what="recovery")
    assert verify(hosts.a, guest) == 401
    assert verify(hosts.a, key()) == 200


def test_an_edit_of_the_copy(hosts: Hosts) -> None:
    """The stored value is the truth: what somebody writes into a host's copy is gone after a second."""
    path, guest = hosts.a.home / "fleet-keys" / "authorized_keys", key("by hand")
    kept = path.read_bytes()
    path.write_bytes(kept + key_edits.register(b"", guest.public)[0])
    until(lambda: path.read_bytes() == kept, what="the copy")
    assert verify(hosts.a, guest) == 401
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}


@pytest.mark.parametrize("command", [("HSET", KEYS, "keys", "nonsense"), ("HDEL", KEYS, "keys")])
def test_a_value_that_is_none_of_ours(hosts: Hosts, command: tuple[str, ...]) -> None:
    """Damaged or taken away in the store: no engine starts on it, and one that runs says so; mended, all goes on."""
    kept = speak(hosts.redis.port, "HGET", KEYS, "keys").partition(b"\r\n")[2][:-2]
    said = hosts.b.log().count("keys_not_followed")
    speak(hosts.redis.port, *command)
    try:
        until(lambda: hosts.b.log().count("keys_not_followed") > said, what="a look at the store")
        lone = hosts.host("lone")
        lone.begin()
        assert lone.process.wait(30) == 1
    finally:
        put_back(hosts.redis.port, kept)
    until(lambda: verify(hosts.b, key()) == 200, what="recovery")


def put_back(port: int, value: bytes) -> None:
    words = (b"HSET", KEYS.encode(), b"keys", value)
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(b"*4\r\n" + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        assert peer.recv(100).startswith(b":")


def test_worker_processes_know_too(hosts: Hosts) -> None:
    """Behind worker processes a key taken out elsewhere is refused a second later, and so are its sessions.

    So are the tokens of a token key that was given up elsewhere.
    """
    workers, guest = hosts.host("workers", HATCHWAY_WORKERS="2").start(), key("workers")
    hosts.register(guest)
    second_passed(time.monotonic())
    session = session_of(workers, guest)
    assert {settled(workers, session) for _ in range(4)} == {200}
    hosts.unregister(guest)
    second_passed(time.monotonic())
    assert {settled(workers, session) for _ in range(4)} == {401}
    assert {verify(workers, guest) for _ in range(4)} == {401}
    session = session_of(workers, key())
    assert {settled(workers, session) for _ in range(4)} == {200}
    for _ in range(2):  # the first leaves the tokens of the one before it good
        hosts.administration.rotate_token(SystemClock(), force=True)
    second_passed(time.monotonic())
    assert {settled(workers, session) for _ in range(4)} == {401}
    workers.terminate()


def test_first_starts_at_once(redis: RedisServer, tmp_path: Path) -> None:
    """Two engines that start first at one moment agree on one token key, and each one's own key holds MASTER."""
    engines = [EngineProcess(tmp_path / name, HATCHWAY_STORE=redis.url, HATCHWAY_KEYS="store") for name in "ab"]
    try:
        for engine in engines:
            engine.begin(fresh=True)
        for engine in engines:
            engine.wait_ready()
        a, b = engines
        assert key_ids(a) == key_ids(b)
        assert list(listed(a).values()) == [(MASTER,), (MASTER,)]
        told = json.loads(a.command("key", "rotate-engine", "--json"))
        assert listed(b)[told["identity"]] == (MASTER,)
        assert told["old"] not in listed(b)
        a.command("engine", "ping")
    finally:
        for engine in engines:
            engine.close()
        redis.close()


def test_changes_at_once_lose_nothing(redis: RedisServer, tmp_path: Path) -> None:
    """Registered from many hosts at one moment, each key is there; taken out so, each is gone."""
    names = [f"crowd {number}" for number in range(8)]
    administration = open_key_administration(tmp_path, Settings(store=redis.url, keys="store"))

    def at_once(changes: list[Any]) -> None:
        threads = [threading.Thread(target=administration.edit, args=(change,)) for change in changes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    at_once([partial(key_edits.register, key=key(name).public) for name in names])
    assert {line.entry and line.entry.identity for line in administration.lines()} == {
        key(name).identity for name in names
    }
    at_once([partial(key_edits.unregister, selector=key(name).identity) for name in names])
    assert administration.lines() == ()


async def test_what_is_no_good_is_not_stored(redis: RedisServer) -> None:
    """A line that grants nothing, a list without bounds, a token key that is none: refused, and the value stays."""
    good = SharedKeys(key_edits.register(b"# ours\n", key().public)[0], token_key_pem(generate_token_key()))
    async with redis_store(redis.url) as store:
        keys = FleetKeys(store)
        await keys.change(lambda held: (good, None))
        for wrong in (
            {"authorized": good.authorized + b"ssh-rsa nonsense\n"},
            {"authorized": good.authorized + b"# much\n" * 200_000},
            {"token": b""},
            {"token": b"nonsense"},
            {"old_token": b"nonsense"},
        ):
            with pytest.raises(KeyRefused):
                await keys.change(lambda held, wrong=wrong: (msgspec.structs.replace(held, **wrong), None))  # type: ignore[misc]
        assert await keys.read() == (1, good)


def test_the_setting_wants_a_shared_store(tmp_path: Path) -> None:
    """`keys = store` without one is refused in words, by the engine and by every command that needs the keys."""
    lone = EngineProcess(tmp_path / "lone", HATCHWAY_KEYS="store")
    for command in (("engine", "start"), ("key", "list"), ("key", "rotate-token")):
        done = lone.command(*command, code=1)
        assert done == ""
    assert not (tmp_path / "lone" / "private-key.pem").exists()


def test_engines_with_a_folder_are_not_joined(redis: RedisServer, tmp_path: Path) -> None:
    """Where engines live that sign with a folder's key, one with `keys = store` makes no other, and says what to do."""
    folder = member(tmp_path, "folder", redis.url)
    lone = EngineProcess(tmp_path / "lone", HATCHWAY_STORE=redis.url, HATCHWAY_KEYS="store")
    try:
        folder.start()
        lone.begin()
        assert lone.process.wait(30) == 1
        assert "setting `keys`" in lone.log()
        with pytest.raises(EngineUnavailable):
            open_key_administration(tmp_path, Settings(store=redis.url, keys="store")).rotate_token(None, force=True)  # type: ignore[arg-type]
    finally:
        lone.close()
        folder.close()


def test_one_host_becomes_a_fleet(redis: RedisServer, tmp_path: Path) -> None:
    """The first engine brings the keys of its folder; once of a fleet, it brings them no more, unless told to."""
    engine = EngineProcess(tmp_path / "home")
    try:
        engine.start()
        before = key_ids(engine)
        engine.command("config", "set", "store", redis.url)
        engine.command("config", "set", "keys", "store")
        engine.terminate()
        engine.start()
        assert key_ids(engine) == before
        assert verify(engine, key()) == 200
        engine.terminate()
        speak(redis.port, "FLUSHALL")
        engine.start()
        assert key_ids(engine) != before
        assert verify(engine, key()) == 401
        assert verify(engine, key("own")) == 200
        engine.terminate()
        speak(redis.port, "FLUSHALL")
        shutil.rmtree(engine.home / "fleet-keys")
        engine.start()
        assert verify(engine, key()) == 200
    finally:
        engine.close()
