"""A real engine process, killed and harried: nothing acknowledged is lost, and the next start needs no hand."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.trust.authorized_keys import AuthorizedKeys
from engine.trust.permissions import FIVE
from tests.fakes import effort, key
from tests.processes import EngineProcess, running_engine, sign_in

pytestmark = pytest.mark.process

ROUNDS = int(20 * effort())
GONE = (httpx.TransportError, OSError, json.JSONDecodeError, IndexError)


class Load:
    """People at work on an engine until it dies, and what it has acknowledged to them."""

    def __init__(self, engine: EngineProcess) -> None:
        self.engine = engine
        self.live: set[str] = set()
        self.ended: set[str] = set()
        self.codes: set[str] = set()
        self.registered: set[str] = set()
        self._threads: list[threading.Thread] = []
        self._over = False

    def start(self) -> None:
        self._over = False
        doings = (self._sign_in, self._sign_in, self._log_out, self._pair, self._register)
        self._threads = [threading.Thread(target=self._work, args=(doing,)) for doing in doings]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        self._over = True
        for thread in self._threads:
            thread.join()

    def _work(self, doing: Callable[[httpx.Client], None]) -> None:
        with suppress(*GONE), httpx.Client(base_url=self.engine.url) as client:
            while not self._over:
                doing(client)

    def _sign_in(self, client: httpx.Client) -> None:
        self.live.add(sign_in(client)["token"])

    def _log_out(self, client: httpx.Client) -> None:
        token = sign_in(client)["token"]
        answer = client.post("/api/auth/logout/", headers=bearer(token))
        assert answer.status_code == 204
        self.ended.add(token)

    def _pair(self, client: httpx.Client) -> None:
        with self.engine.operator_connection() as peer:
            lines = peer.makefile("rb")
            peer.sendall(b'{"op":"pair","lifetime":3600}\n')
            code = json.loads(lines.readline())["code"]
            with client.stream("POST", "/api/auth/pair/request/", json={"code": code}) as answer:
                told = answer.iter_lines()
                next(told, None)
                lines.readline()
                self.codes.add(code)
                peer.sendall(b'{"answer":"y"}\n')
                last = json.loads([line for line in told if line][-1])
            if "token" in last:
                self.live.add(last["token"])

    def _register(self, client: httpx.Client) -> None:
        public = key(f"crash {random.randrange(4)}").public
        keys = AuthorizedKeys(self.engine.home / "authorized_keys")
        keys.register(public, FIVE, "crash")
        self.registered.add(public.identity)
        time.sleep(0.05)

    def check(self) -> None:
        """Everything that was acknowledged still holds."""
        with httpx.Client(base_url=self.engine.url) as client:
            assert {inspect(client, token) for token in self.live} <= {200}
            assert {inspect(client, token) for token in self.ended} <= {401}
            for code in list(self.codes)[:3]:
                answer = client.post("/api/auth/pair/request/", json={"code": code})
                assert answer.status_code == 401, answer.text
        known = {entry.key.identity for entry in AuthorizedKeys(self.engine.home / "authorized_keys").entries()}
        assert self.registered <= known
        self.codes.clear()


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def inspect(client: httpx.Client, token: str) -> int:
    return client.get("/api/auth/inspect/", headers=bearer(token)).status_code


@pytest.mark.fuzz
def test_killed_under_load(home: Path) -> None:
    """kill -9 at any moment of sign-ins, logouts, pairings and registrations: what was answered holds afterwards."""
    for number in range(4):
        key(f"crash {number}")
    engine = EngineProcess(home)
    load = Load(engine)
    try:
        engine.start()
        for _ in range(ROUNDS):
            load.start()
            time.sleep(random.uniform(0.05, 0.6))
            engine.kill()
            load.join()
            engine.start()
            load.check()
    finally:
        load.join()
        engine.close()
    assert min(map(len, (load.live, load.ended, load.registered))) > 0


def test_killed_in_its_first_start(home: Path) -> None:
    """A first start that is killed anywhere leaves a folder on which the next one starts, with one key of its own."""
    for moment in range(max(1, int(4 * effort()))):
        folder: Any = home.with_name(f"first-{moment}")
        engine = EngineProcess(folder, HATCHWAY_LOG_LEVEL="warning")
        try:
            engine.begin(fresh=True)
            time.sleep(random.uniform(0.2, 1.2))
            engine.kill()
            engine.begin(fresh=True)
            engine.wait_ready()
            entries = AuthorizedKeys(folder / "authorized_keys").entries()
            assert "MASTER" in {name for entry in entries for name in entry.permissions}
            assert engine.operator({"op": "status"})[0]["key"] in {entry.key.identity for entry in entries}
        finally:
            engine.close()


def test_operators_that_are_gone_before_their_answer(home: Path) -> None:
    """A command that asks nonsense and is gone before it is told so ends nothing but its own connection."""
    with running_engine(home) as engine:
        for said in (b'{"op":"x"}\n', b'{"op":"pair","lifetime":1}\n', b'{"op":"pair","lifetime":3600}\n{bad\n') * 10:
            with engine.operator_connection() as peer:
                peer.sendall(said)
        with engine.operator_connection() as peer:
            peer.sendall(b'{"op":"pair","lifetime":3600}\n{bad\n')
            assert b'"invalid_request"' in peer.makefile("rb").read()
        assert engine.operator({"op": "status"})[0]["codes"] == 0
        assert engine.process.poll() is None
