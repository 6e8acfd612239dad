"""People at work on a real engine process until it dies, and what it has acknowledged to them."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import httpx

from hatchway.engine.base.permissions import FIVE
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from tests.support.fakes import key
from tests.support.processes import EngineProcess, bearer, inspect, sign_in

GONE = (httpx.TransportError, OSError, json.JSONDecodeError, IndexError)


class Load:
    """People at work on an engine until it dies, and what it has acknowledged to them."""

    def __init__(self, engine: EngineProcess) -> None:
        self.engine = engine
        self.live: set[str] = set()
        self.ended: set[str] = set()
        self.codes: set[str] = set()
        self.registered: set[str] = set()
        self._held: set[str] = set()
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
        with suppress(*GONE), httpx.Client(base_url=self.engine.url, verify=False) as client:
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
        with self.engine.operator_connection() as peer, peer.makefile("rb") as lines:
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

    def check(self, *, whole: bool = False) -> None:
        """What was acknowledged since the last check still holds; with `whole`, all that ever was."""
        if whole:
            self._held.clear()
        with httpx.Client(base_url=self.engine.url, verify=False) as client:
            assert {inspect(client, token) for token in self.live - self._held} <= {200}
            assert {inspect(client, token) for token in self.ended - self._held} <= {401}
            self._held |= self.live | self.ended
            for code in list(self.codes)[:3]:
                answer = client.post("/api/auth/pair/request/", json={"code": code})
                assert answer.status_code == 401, answer.text
        known = {entry.key.identity for entry in AuthorizedKeys(self.engine.home / "authorized_keys").entries()}
        assert self.registered <= known
        self.codes.clear()
