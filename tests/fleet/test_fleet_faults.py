"""While a fleet's store, or one of its engines, is gone: nothing answered is lost, nothing ended revives."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.support.fleet import client, fleet, inspect, post, settled, signed_in
from tests.support.processes import EngineProcess
from tests.support.redis_server import SERVER, RedisServer, speak
from tests.support.waits import until

pytestmark = [pytest.mark.redis, pytest.mark.process]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "store").start()
    try:
        yield server
    finally:
        server.close()


def ready(engine: EngineProcess) -> int:
    with closing(client(engine)) as http:
        return http.get("/readyz").status_code


@pytest.mark.parametrize("fault", ["stop", "kill", "hold"])
def test_the_store_goes_and_comes_back(store: RedisServer, tmp_path: Path, fault: str) -> None:
    """Stopped, killed or hanging: 503s that say so, and readiness tells; back, all goes on, ends included."""
    with fleet(tmp_path, store.url, store.url) as (a, b):
        stays, ended = signed_in(a), signed_in(b)
        assert post(a, "/api/auth/logout/", ended).status_code == 204
        getattr(store, fault)()
        until(lambda: [ready(a), ready(b)] == [503, 503], what="readiness to tell")
        for engine in (a, b):
            with closing(client(engine)) as http:
                answer = http.get("/api/auth/inspect/", headers={"Authorization": f"Bearer {stays['token']}"})
            assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
            assert str(store.port) not in answer.text
        why = re.compile("not ready .*(refused|no answer)")
        until(lambda: bool(why.search(a.command("engine", "status"))), what="why, on the host")
        if fault == "hold":
            store.resume()
        else:
            store.start()
        until(lambda: [ready(a), ready(b)] == [200, 200], what="recovery")
        assert [settled(engine, stays) for engine in (a, b)] == [200, 200]
        assert [settled(engine, ended) for engine in (a, b)] == [401, 401]
        assert settled(b, signed_in(a)) == 200


@pytest.mark.parametrize(
    ("fault", "words", "cure"),
    [
        (("CONFIG", "SET", "maxmemory", "1"), "maxmemory", ("CONFIG", "SET", "maxmemory", "0")),
        (("CONFIG", "SET", "min-replicas-to-write", "1"), "replicas", ("CONFIG", "SET", "min-replicas-to-write", "0")),
        (("REPLICAOF", "127.0.0.1", "1"), "read only", ("REPLICAOF", "NO", "ONE")),
    ],
    ids=["full", "too few replicas", "a replica"],
)
def test_the_store_takes_no_changes(
    store: RedisServer, tmp_path: Path, fault: tuple[str, ...], words: str, cure: tuple[str, ...]
) -> None:
    """Full, or a replica, it is read as ever: readiness tells that no change is taken, in the store's words, for as
    long as sign-ins are refused, while sessions of before are answered."""
    with fleet(tmp_path, store.url) as (engine,), closing(client(engine)) as http:
        stays = signed_in(engine)
        assert speak(store.port, *fault).startswith(b"+OK")

        def told_throughout() -> bool:
            """For two seconds: an engine that got no turn for a moment tells the same, for that moment."""
            for _ in range(20):
                answer = http.get("/readyz")
                if words not in answer.text:
                    return False
                assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
                time.sleep(0.1)
            return True

        until(told_throughout, what="readiness to tell")
        status = engine.command("engine", "status")
        assert re.search(rf"(?s)store +redis://\S+:{store.port}.*ready +no\nnot ready .*{words}", status), status
        assert settled(engine, stays) == 200
        assert post(engine, "/api/auth/renew/", stays).status_code == 503
        assert speak(store.port, *cure).startswith(b"+OK")
        until(lambda: ready(engine) == 200, what="recovery")
        assert post(engine, "/api/auth/renew/", stays).status_code == 200


def test_the_store_is_emptied(store: RedisServer, tmp_path: Path) -> None:
    """Begun anew under running engines: none answers anybody any more, and says to restart it; then all is new."""
    with fleet(tmp_path, store.url, store.url) as (a, b):
        stays, ended = signed_in(a), signed_in(b)
        assert post(a, "/api/auth/logout/", ended).status_code == 204
        assert speak(store.port, "FLUSHALL") == b"+OK\r\n"
        time.sleep(1)  # the promise is about what is asked from then on
        for engine in (a, b):
            assert [inspect(engine, session) for session in (stays, ended)] == [503, 503]
            with closing(client(engine)) as http:
                answer = http.get("/readyz")
            assert (answer.status_code, "restart the engine" in answer.text) == (503, True)
        a.terminate()
        a.start()
        fresh = signed_in(a)
        assert [settled(a, session) for session in (stays, ended, fresh)] == [401, 401, 200]
        assert inspect(b, stays) == 503
        b.kill()
        b.start()
        assert [settled(b, session) for session in (stays, ended, fresh)] == [401, 401, 200]


def test_an_engine_whose_own_file_is_gone(store: RedisServer, tmp_path: Path) -> None:
    """It can store no instance: readiness tells, there alone, until the file is back. Its sessions are the fleet's."""
    with fleet(tmp_path, store.url, store.url) as (a, b):
        path = a.home / "engine.db"
        path.rename(path.with_suffix(".away"))
        until(lambda: [ready(a), ready(b)] == [503, 200], what="readiness to tell")
        assert settled(b, signed_in(a)) == 200
        path.with_suffix(".away").rename(path)
        until(lambda: ready(a) == 200, what="readiness")


def test_a_store_that_may_forget_is_named(tmp_path: Path) -> None:
    """The log says what is missing for durability."""
    server = RedisServer(tmp_path / "store", durable=False).start()
    try:
        with fleet(tmp_path, server.url) as (engine,):
            until(lambda: "appendonly yes, appendfsync always" in engine.log(), what="the log")
    finally:
        server.close()


@contextmanager
def sentinels(folder: Path) -> Iterator[tuple[str, list[RedisServer]]]:
    """A primary, two replicas and three sentinels; the store's address and the servers, the primary first."""
    primary = RedisServer(folder / "s0").start()
    servers, watchers = [primary], []
    try:
        for place in (1, 2):
            replica = RedisServer(folder / f"s{place}", "--replicaof", "127.0.0.1", str(primary.port))
            servers.append(replica.start())
        until(lambda: primary.replicas() == 2, what="the replicas")
        for place in range(3):
            watchers.append(_Watcher(folder / f"w{place}", primary.port))
            watchers[-1].start()
        until(lambda: all(watcher.knows_all() for watcher in watchers), 60, what="the sentinels")
        hosts = ",".join(f"127.0.0.1:{watcher.port}" for watcher in watchers)
        yield f"redis+sentinel://{hosts}/fleet", servers
    finally:
        for server in (*watchers, *servers):
            server.close()


class _Watcher(RedisServer):
    """One sentinel."""

    def __init__(self, folder: Path, primary: int) -> None:
        super().__init__(folder)
        self._primary = primary

    def start(self) -> RedisServer:
        self.folder.mkdir()
        path = self.folder / "sentinel.conf"
        path.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self.folder}\nlogfile {self.folder}/log\n"
            f"sentinel monitor fleet 127.0.0.1 {self._primary} 2\n"
            "sentinel down-after-milliseconds fleet 2000\nsentinel failover-timeout fleet 6000\n"
        )
        self._process = subprocess.Popen([SERVER, str(path), "--sentinel"])
        until(lambda: speak(self.port, "PING").startswith(b"+PONG"), what="a sentinel")
        return self

    def knows_all(self) -> bool:
        told = speak(self.port, "INFO", "sentinel")
        return b"slaves=2,sentinels=3" in told and b"status=ok" in told


def test_a_failover(tmp_path: Path) -> None:
    """The primary dies, a replica takes its place: 503s meanwhile, then all goes on, and nothing answered is lost."""
    with sentinels(tmp_path) as (address, servers), fleet(tmp_path, address, address) as (a, b):
        stays = [signed_in(a) for _ in range(5)]
        ends = [signed_in(b) for _ in range(5)]
        for session in ends:
            assert post(a, "/api/auth/logout/", session).status_code == 204
        servers[0].kill()
        until(lambda: [ready(a), ready(b)] == [503, 503], what="readiness to tell")
        until(lambda: [ready(a), ready(b)] == [200, 200], 90, what="the failover")
        for engine in (a, b):
            assert {settled(engine, session) for session in stays} == {200}
            assert {settled(engine, session) for session in ends} == {401}
        until(lambda: _works(a, b), 30, what="a sign-in")


def _works(a: EngineProcess, b: EngineProcess) -> bool:
    try:
        return inspect(b, signed_in(a)) == 200
    except AssertionError:
        return False
