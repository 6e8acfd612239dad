"""A code printed at one engine of a fleet, claimed through another, and answered at the first one's terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fakes import effort
from tests.support.fleet import fleet, settled
from tests.support.processes import EngineProcess
from tests.support.real_pairings import Console, operator_at
from tests.support.redis_server import RedisServer
from tests.support.waits import until

pytestmark = [pytest.mark.redis, pytest.mark.process]

ROUNDS = int(10 * effort())
PLENTY = {"HATCHWAY_LIMITS_WRONG_CODES": "10000", "HATCHWAY_LIMITS_WRONG_CODES_TOTAL": "10000"}


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[EngineProcess]]:
    folder = tmp_path_factory.mktemp("fleet")
    redis = RedisServer(folder / "redis").start()
    try:
        with fleet(folder, redis.url, redis.url, redis.url, **PLENTY) as engines:
            yield engines
    finally:
        redis.close()


def tried(engine: EngineProcess, code: str, address: str = "127.0.0.1") -> int:
    """The status of a claim that is hung up at once."""
    console = Console(engine, code, address=address)
    console.close()
    return console.status


def test_claimed_at_one_approved_at_another(engines: list[EngineProcess]) -> None:
    """Both show one number; the session is good everywhere; the code is used up everywhere."""
    for place in range(ROUNDS):
        here, there = engines[place % 3], engines[(place + 1) % 3]
        with operator_at(here) as operator:
            console = Console(there, operator.code, "User-Agent: console/1")
            first = console.line()
            claimed = operator.wait("claimed")
            assert (first["accepted"], first["match"]) == (True, claimed["match"])
            assert (claimed["address"], claimed["agent"]) == ("127.0.0.1", "console/1")
            for engine in engines:
                again = Console(engine, operator.code)
                assert (again.status, again.items()[-1]["code"]) == (401, "invalid_pairing_code")
            operator.answer("y")
            session = console.items()[-1]
            assert "approved" in operator.wait("approved")["message"]
        assert [settled(engine, session) for engine in engines] == [200, 200, 200]


def test_rejected_elsewhere(engines: list[EngineProcess]) -> None:
    """A no is the console's one answer."""
    with operator_at(engines[0]) as operator:
        console = Console(engines[1], operator.code)
        operator.wait("claimed")
        operator.answer("n")
        assert console.items()[-1]["code"] == "invalid_pairing_code"
        operator.wait("rejected")


def test_a_console_that_goes_elsewhere(engines: list[EngineProcess]) -> None:
    """The terminal is told that the console hung up, wherever it was."""
    with operator_at(engines[0]) as operator:
        console = Console(engines[1], operator.code)
        operator.wait("claimed")
        console.close()
        assert "went away" in operator.wait("left")["message"]


def test_a_withdrawn_code(engines: list[EngineProcess]) -> None:
    """The terminal closed, its code is nobody's, and a claim that waits is refused."""
    with operator_at(engines[0]) as operator:
        console = Console(engines[1], operator.code)
        operator.wait("claimed")
    assert console.items()[-1]["code"] == "invalid_pairing_code"
    assert tried(engines[2], operator.code) == 401


def test_racing_claims(engines: list[EngineProcess]) -> None:
    """Of many consoles at all engines one gets the code."""
    for _ in range(ROUNDS):
        taken: list[Console] = []

        def race(engine: EngineProcess, code: str, taken: list[Console] = taken) -> None:
            console = Console(engine, code)
            if console.status == 200:
                taken.append(console)
            else:
                console.close()

        with operator_at(engines[0]) as operator:
            racers = [threading.Thread(target=race, args=(engine, operator.code)) for engine in engines * 2]
            for racer in racers:
                racer.start()
            for racer in racers:
                racer.join()
            assert len(taken) == 1
            taken[0].close()
            operator.wait("left")


def test_guesses_anywhere_count(tmp_path: Path) -> None:
    """Wrong codes at one engine withdraw what another one has out, and one address is limited by all together."""
    redis = RedisServer(tmp_path / "redis").start()
    limits = {"HATCHWAY_LIMITS_WRONG_CODES": "4", "HATCHWAY_LIMITS_WRONG_CODES_TOTAL": "6"}
    try:
        with fleet(tmp_path, redis.url, redis.url, **limits) as (a, b), operator_at(a) as operator:
            for number in range(4):
                assert tried((a, b)[number % 2], f"0000000{number}") == 401
            assert [tried(engine, "00000009") for engine in (a, b)] == [429, 429]
            for number in range(2):
                assert tried(b, f"0000000{number}", address="127.0.0.2") == 401
            assert "too many wrong codes" in operator.wait("withdrawn")["message"]
            assert tried(b, operator.code, address="127.0.0.3") == 401
    finally:
        redis.close()


def test_the_printing_engine_dies(tmp_path: Path) -> None:
    """Its codes end with it: a claim that waits is refused, and nobody can make another."""
    redis = RedisServer(tmp_path / "redis").start()
    try:
        with (
            fleet(tmp_path, redis.url, redis.url, **PLENTY) as (a, b),
            operator_at(a) as waiting,
            operator_at(a) as unclaimed,
        ):
            console = Console(b, waiting.code)
            waiting.wait("claimed")
            a.kill()
            before = time.monotonic()
            assert console.items()[-1]["code"] == "invalid_pairing_code"
            assert time.monotonic() - before < 10
            assert tried(b, unclaimed.code) == 401
    finally:
        redis.close()


def test_the_console_s_engine_dies(tmp_path: Path) -> None:
    """The terminal is told that the console is gone."""
    redis = RedisServer(tmp_path / "redis").start()
    try:
        with fleet(tmp_path, redis.url, redis.url, **PLENTY) as (a, b), operator_at(a) as operator:
            console = Console(b, operator.code)
            operator.wait("claimed")
            b.kill()
            assert "went away" in operator.wait("left")["message"]
            console.close()
    finally:
        redis.close()


def test_a_stopping_engine_tells(tmp_path: Path) -> None:
    """Stopped in order, either engine has both sides told at once."""
    redis = RedisServer(tmp_path / "redis").start()
    try:
        with fleet(tmp_path, redis.url, redis.url, **PLENTY) as (a, b):
            with operator_at(a) as operator:
                console = Console(b, operator.code)
                operator.wait("claimed")
                b.terminate()
                assert console.items()[-1]["code"] == "invalid_pairing_code"
                operator.wait("left")
            b.start()
            with operator_at(a) as operator:
                console = Console(b, operator.code)
                operator.wait("claimed")
                a.terminate()
                assert console.items()[-1]["code"] == "invalid_pairing_code"
            until(lambda: tried(b, operator.code) == 401)
    finally:
        redis.close()
