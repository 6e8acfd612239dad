"""Several engines over one real Redis: sessions and their ends are everybody's, nonces and codes are used once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.fakes import effort, key, signed
from tests.support.fleet import Relay, client, fleet, insist, inspect, post, settled, signed_in
from tests.support.processes import EngineProcess, prepare
from tests.support.redis_server import RedisServer, speak
from tests.support.waits import until

pytestmark = [pytest.mark.redis, pytest.mark.process]

ROUNDS = int(10 * effort())


class Three:
    """Three engines; the first one's way to the store can be cut."""

    def __init__(self, redis: RedisServer, relay: Relay, engines: list[EngineProcess]) -> None:
        self.redis, self.relay, self.engines = redis, relay, engines
        self.a, self.b, self.c = engines

    def session(self, at: EngineProcess) -> dict[str, object]:
        return signed_in(at)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    folder = tmp_path_factory.mktemp("fleet")
    redis = RedisServer(folder / "redis").start()
    relay = Relay(redis.port)
    try:
        with fleet(folder, relay.url, redis.url, redis.url) as engines:
            yield Three(redis, relay, engines)
    finally:
        relay.close()
        redis.close()


def refused_in_time(engine: EngineProcess, session: dict[str, object], ended: float) -> None:
    """Who asks a second after the end, or later, is refused."""
    while True:
        asked = time.monotonic()
        status = inspect(engine, session)
        if status == 401:
            return
        assert status == 503 or asked < ended + 1


def test_a_session_is_everybodys(three: Three) -> None:
    """Signed in at one engine, good at once at each; renewed at another, the new token is good everywhere."""
    for place in range(ROUNDS):
        here, there = three.engines[place % 3], three.engines[(place + 1) % 3]
        session = three.session(here)
        assert [settled(engine, session) for engine in three.engines] == [200, 200, 200]
        renewed = post(there, "/api/auth/renew/", session).json()
        assert [settled(engine, renewed) for engine in three.engines] == [200, 200, 200]


def test_a_logout_is_known_within_a_second(three: Three) -> None:
    """Logged out at one engine, refused at the others a second later at the latest; mostly at once."""
    for place in range(ROUNDS):
        session = three.session(three.engines[place % 3])
        assert settled(three.a, session) == 200
        assert post(three.engines[(place + 1) % 3], "/api/auth/logout/", session).status_code == 204
        ended = time.monotonic()
        for engine in three.engines:
            refused_in_time(engine, session, ended)


def test_a_logout_in_a_gap(three: Three) -> None:
    """While an engine's way to the store is cut, it answers nobody from memory; back, it knows what it missed."""
    for _ in range(max(ROUNDS // 5, 2)):
        ends, stays = three.session(three.b), three.session(three.b)
        assert settled(three.a, ends) == 200
        three.relay.cut()
        assert post(three.b, "/api/auth/logout/", ends).status_code == 204
        ended = time.monotonic()
        while time.monotonic() - ended < 1:
            time.sleep(0.05)
        for session in (ends, stays):
            with closing(client(three.a)) as http:
                answer = http.get("/api/auth/inspect/", headers={"Authorization": f"Bearer {session['token']}"})
            assert answer.status_code == 503
            assert answer.json()["code"] == "store_unavailable"
            assert int(answer.headers["retry-after"]) > 0
        with closing(client(three.a)) as http:
            assert http.get("/readyz").status_code == 503
            assert http.get("/healthz").status_code == 200
        three.relay.mend()
        until(lambda: inspect(three.a, stays) == 200, what="recovery")  # noqa: B023 - called here
        assert settled(three.a, ends) == 401


def test_a_nonce_is_used_once_anywhere(three: Three) -> None:
    """A challenge of one engine is answered at another; a second answer is refused at each."""
    for place in range(ROUNDS):
        here, there = three.engines[place % 3], three.engines[(place + 2) % 3]
        with closing(client(here)) as http:
            named = {"Host": f"127.0.0.1:{here.port}"}
            nonce = insist(lambda: http.get("/api/auth/challenge/", headers=named)).json()["nonce"]  # noqa: B023 - called here
        body = signed(nonce, key())
        with closing(client(there)) as http:
            assert insist(lambda: http.post("/api/auth/verify/", json=body)).status_code == 200  # noqa: B023 - called here
        for engine in three.engines:
            with closing(client(engine, f"127.0.0.{place + 2}")) as http:  # one address would fail too often
                assert insist(lambda: http.post("/api/auth/verify/", json=body)).status_code == 401  # noqa: B023 - called here


def test_another_token_key_is_refused_at_start(three: Three, tmp_path: Path) -> None:
    """An engine whose tokens the others would refuse does not join, and says what to do."""
    lone = EngineProcess(tmp_path / "lone", HATCHWAY_STORE=three.redis.url)
    try:
        lone.begin()
        assert lone.process.wait(30) == 1
        assert "setting `keys`" in lone.log()
    finally:
        lone.close()


def test_the_settings_of_a_fleet(tmp_path: Path) -> None:
    """Set as the handbook shows; a password is kept, and not shown."""
    engine = EngineProcess(tmp_path / "home")
    prepare(engine.home)
    engine.command("config", "set", "store", "redis://me:secret@redis.example:6379/0")
    engine.command("config", "set", "keys", str(tmp_path / "keys"))
    for shown in (engine.command("config", "list"), engine.command("config", "get", "store")):
        assert "redis.example" in shown
        assert "secret" not in shown
    assert "me:secret@" in (engine.home / "config.toml").read_text()


def test_a_password_is_written_as_urls_write_it(tmp_path: Path) -> None:
    """By port and by socket: what may not stand in an address is escaped there, and sent as it is (RFC 3986 2.1)."""
    redis = RedisServer(tmp_path / "redis", "--unixsocket", str(tmp_path / "redis.sock")).start()
    try:
        assert speak(redis.port, "CONFIG", "SET", "requirepass", "p@ss word/") == b"+OK\r\n"
        for store in (
            f"redis://:p%40ss%20word%2F@127.0.0.1:{redis.port}/0",
            f"unix://:p%40ss%20word%2F@{tmp_path}/redis.sock",
        ):
            with fleet(tmp_path, store) as (engine,):
                assert signed_in(engine)["token"]
    finally:
        redis.close()


def test_without_its_store_no_engine_starts(tmp_path: Path) -> None:
    """The refusal names the address, without a password in it."""
    lone = EngineProcess(tmp_path / "lone", HATCHWAY_STORE="redis://me:secret@127.0.0.1:9/0")
    try:
        lone.begin()
        assert lone.process.wait(30) == 1
        assert "redis://127.0.0.1:9/0" in lone.log()
        assert "secret" not in lone.log()
    finally:
        lone.close()


def test_worker_processes_forget_with_the_fleet(tmp_path: Path) -> None:
    """Behind worker processes too, a logout elsewhere is known within a second, and a gap in messages hides none."""
    redis = RedisServer(tmp_path / "redis").start()
    relay = Relay(redis.port)
    try:
        with fleet(tmp_path, relay.url, redis.url, HATCHWAY_WORKERS="2") as (a, b):
            for cut in (False, True) * 3:
                session = signed_in(b)
                assert [settled(a, session) for _ in range(6)] == [200] * 6
                if cut:
                    relay.cut()
                assert post(b, "/api/auth/logout/", session).status_code == 204
                time.sleep(1)  # the promise is about what is answered from then on
                ask = inspect if cut else settled
                assert {ask(a, session) for _ in range(6)} == ({503} if cut else {401})
                relay.mend()
                until(lambda session=session: inspect(a, session) == 401, what="recovery")  # type: ignore[misc]
    finally:
        relay.close()
        redis.close()
