"""Several real engine processes over one real Redis, with keys in a common folder; and a relay that can be cut."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from tests.support.fakes import key, signed
from tests.support.processes import EngineProcess, prepare

BUSY = 20.0
"""Seconds in which an engine gets a turn on the busiest machine."""


class Relay:
    """Bytes both ways between loopback and a port; `cut` ends every connection and lets none in, `mend` does."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock, self._open = threading.Lock(), True
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                with self._lock:
                    if not self._open:
                        near.close()
                        continue
                    try:
                        far = socket.create_connection(("127.0.0.1", self._target))
                    except OSError:
                        near.close()
                        continue
                    self._pairs.append((near, far))
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=_pump, args=(one, other), daemon=True).start()

    def cut(self) -> None:
        with self._lock:
            self._open = False
            for pair in self._pairs:
                for one in pair:
                    with suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)
                    one.close()
            self._pairs.clear()

    def mend(self) -> None:
        self._open = True

    def close(self) -> None:
        self.cut()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def member(folder: Path, name: str, store: str, **settings: str) -> EngineProcess:
    """An engine of the fleet, not started."""
    keys = folder / "keys"
    if not keys.exists():
        prepare(keys)
    return EngineProcess(folder / name, HATCHWAY_STORE=store, HATCHWAY_KEYS=str(keys), **settings)


@contextmanager
def fleet(folder: Path, *stores: str, **settings: str) -> Iterator[list[EngineProcess]]:
    """An engine for each store's address, all running; gone at the end."""
    with ExitStack() as stack:
        engines = [member(folder, f"engine{place}", store, **settings) for place, store in enumerate(stores)]
        for engine in engines:
            stack.callback(engine.close)
            engine.begin()
        for engine in engines:
            engine.wait_ready()
        yield engines


def client(engine: EngineProcess, address: str | None = None) -> httpx.Client:
    """Of an engine, from an address of loopback."""
    plain = httpx.HTTPTransport(verify=False, local_address=address)  # no TLS, and no time for its authorities
    return httpx.Client(base_url=engine.url, timeout=10, transport=plain)


def inspect(engine: EngineProcess, session: dict[str, Any]) -> int:
    """What the engine answers to the session's token."""
    with closing(client(engine)) as http:
        return http.get("/api/auth/inspect/", headers={"Authorization": f"Bearer {session['token']}"}).status_code


def insist(ask: Callable[[], httpx.Response]) -> httpx.Response:
    """What is answered in the end: an engine that got no turn on a busy machine says 503, and to ask again."""
    until = time.monotonic() + BUSY
    while (answer := ask()).status_code == 503 and time.monotonic() < until:
        time.sleep(0.1)
    return answer


def settled(engine: EngineProcess, session: dict[str, Any]) -> int:
    """As `inspect`, of an engine whose store is there."""
    with closing(client(engine)) as http:
        bearer = {"Authorization": f"Bearer {session['token']}"}
        return insist(lambda: http.get("/api/auth/inspect/", headers=bearer)).status_code


def post(engine: EngineProcess, path: str, session: dict[str, Any]) -> httpx.Response:
    """At an engine whose store is there."""
    with closing(client(engine)) as http:
        bearer = {"Authorization": f"Bearer {session['token']}"}
        return insist(lambda: http.post(path, headers=bearer))


def signed_in(engine: EngineProcess) -> dict[str, Any]:
    """A session, at an engine whose store is there."""
    with closing(client(engine)) as http:

        def sign() -> httpx.Response:
            challenge = http.get("/api/auth/challenge/")
            if challenge.status_code != 200:
                return challenge
            return http.post("/api/auth/verify/", json=signed(challenge.json()["nonce"], key()))

        answer = insist(sign)
    assert answer.status_code == 200, answer.text
    session: dict[str, Any] = answer.json()
    return session
