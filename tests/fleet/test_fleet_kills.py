"""One engine of a fleet killed again and again under load: what was answered holds at the others a second later."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import httpx
import pytest

from tests.support.fakes import effort
from tests.support.fleet import client, fleet, insist, post
from tests.support.processes import EngineProcess, sign_in
from tests.support.real_pairings import Console, operator_at
from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.redis, pytest.mark.process]

ROUNDS = int(10 * effort())
GONE = (httpx.TransportError, OSError, ValueError, IndexError)
PLENTY = {"HATCHWAY_LIMITS_WRONG_CODES": "10000", "HATCHWAY_LIMITS_WRONG_CODES_TOTAL": "10000"}


class Load:
    """People at work on both engines, of which `victim` may die at any moment, and what was answered to them."""

    def __init__(self, victim: EngineProcess, survivor: EngineProcess) -> None:
        self.victim, self.survivor = victim, survivor
        self.live: list[str] = []
        self.ended: list[str] = []
        self.out: list[str] = []
        self.taken: Counter[str] = Counter()
        self.paired: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._over = threading.Event()

    def run(self, seconds: float) -> None:
        """Until the victim is dead, and everybody has had an answer or lost the connection."""
        doings = [
            lambda: self._sign_in(self.victim),
            lambda: self._sign_in(self.survivor),
            lambda: self._log_out(self.victim, self.survivor),
            lambda: self._log_out(self.survivor, self.victim),
            lambda: self._pair(self.victim),
            lambda: self._pair(self.survivor),
        ]
        threads = [threading.Thread(target=self._work, args=(doing,)) for doing in doings]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        self.victim.kill()
        self._over.set()
        for thread in threads:
            thread.join()

    def _work(self, doing: Callable[[], None]) -> None:
        while not self._over.is_set():
            with suppress(*GONE):
                doing()

    def _sign_in(self, engine: EngineProcess) -> None:
        with closing(client(engine)) as http, suppress(AssertionError):  # a 503, perhaps
            self.live.append(sign_in(http)["token"])

    def _log_out(self, here: EngineProcess, there: EngineProcess) -> None:
        with closing(client(here)) as http, suppress(AssertionError):
            session = sign_in(http)
            if post(there, "/api/auth/logout/", session).status_code == 204:
                self.ended.append(session["token"])

    def _pair(self, printing: EngineProcess) -> None:
        """A code printed at one engine, and claimed by consoles at both at once."""
        with operator_at(printing) as operator:
            self.out.append(operator.code)
            claims = [
                threading.Thread(target=self._claim, args=(engine, operator.code))
                for engine in (self.victim, self.survivor)
            ]
            for claim in claims:
                claim.start()
            try:
                operator.wait("claimed")
                operator.answer("y")
                operator.next()
            finally:
                operator.close()
                for claim in claims:
                    claim.join()

    def _claim(self, engine: EngineProcess, code: str) -> None:
        with suppress(*GONE):
            console = Console(engine, code)
            if console.status not in (200, 401, 503):
                self.wrong.append(f"{console.status} for a claim")
            if console.status == 200:
                self.taken[code] += 1
            last = console.items()[-1]
            if "token" in last:
                self.paired[code] += 1
                self.live.append(last["token"])

    def check(self, engine: EngineProcess) -> None:
        """At an engine asked from now on: nothing answered is lost, nothing ended answers, no code works again."""
        assert self.wrong == []
        with closing(client(engine)) as http:
            assert {asked(http, token) for token in self.live} <= {200}
            assert {asked(http, token) for token in self.ended} <= {401}
        assert max(self.taken.values(), default=0) <= 1
        assert max(self.paired.values(), default=0) <= 1
        for code in self.out[-3:]:
            console = Console(engine, code)
            assert (console.status, "token" in console.items()[-1]) == (401, False)


def asked(http: httpx.Client, token: str) -> int:
    bearer = {"Authorization": f"Bearer {token}"}
    return insist(lambda: http.get("/api/auth/inspect/", headers=bearer)).status_code


def test_an_engine_is_killed_under_load(tmp_path: Path) -> None:
    """kill -9 at any moment of sign-ins, logouts and claims, here and there: what was answered holds everywhere."""
    redis = RedisServer(tmp_path / "redis").start()
    signed_in = ended = paired = 0
    try:
        with fleet(tmp_path, redis.url, redis.url, **PLENTY) as engines:
            for number in range(5 * ROUNDS):
                if number >= ROUNDS and enough(signed_in, ended, paired):
                    break  # on a busy machine less comes through in a round
                victim, survivor = engines[number % 2], engines[1 - number % 2]
                load = Load(victim, survivor)
                load.run(random.uniform(0.2, 0.8))
                victim.begin()
                time.sleep(1)  # the promise is about what is asked from then on
                load.check(survivor)
                victim.wait_ready()
                load.check(victim)
                signed_in, ended = signed_in + len(load.live), ended + len(load.ended)
                paired += sum(load.paired.values())
    finally:
        redis.close()
    assert enough(signed_in, ended, paired)


def enough(*answered: int) -> bool:
    """Of each kind so many have been answered that something is shown."""
    return min(answered) >= min(ROUNDS, 10)
