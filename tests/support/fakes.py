"""Fakes and builders that several tests use: keys made once, engines in virtual time, watchers on the records."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import trio

import hatchway.api.http.quart_mount  # noqa: F401 - loaded here: a thread that does so makes virtual time jump
from hatchway.api.host.added_addresses import AddedAddresses
from hatchway.api.http.request import BrokenOff
from hatchway.api.testing.held_clock import jump as jump
from hatchway.api.testing.held_clock import run_in_virtual_time as run_in_virtual_time
from hatchway.api.testing.watchers import FINAL as FINAL
from hatchway.api.testing.watchers import Watchers as Watchers
from hatchway.engine.base import files
from hatchway.engine.base.clock import Clock, SystemClock, TrioClock
from hatchway.engine.base.permissions import FIVE, MASTER
from hatchway.engine.engine import Engine, open_engine
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.keys.keys import Algorithm, PrivateKey, generate_key, sign
from hatchway.engine.settings.settings import Settings
from tests.support.checked_journal import check_journal

ROOT = Path(__file__).parents[2]


def vectors() -> Path:
    """The fetched test vectors: HATCHWAY_VECTORS, or beside the checkout."""
    return Path(os.environ.get("HATCHWAY_VECTORS") or ROOT.parent / "shared" / "vectors")


def effort() -> float:
    """How long the long runs are: 1 in CI, 10 by hand."""
    return float(os.environ.get("HATCHWAY_EFFORT") or 1)


@cache
def key(name: str = "one") -> PrivateKey:
    """An RSA-2048 key of the tests, the same for one name all through a run."""
    return generate_key(2048)


def key_file(path: Path, private: bytes | None = None) -> Path:
    """A private key in a file of its owner alone, as a command wants it. Without `private` the test key `one`."""
    path.touch(0o600)
    path.write_bytes(key().pem() if private is None else private)
    return path


def signed(nonce: str, private: PrivateKey, algorithm: Algorithm = "PS256") -> dict[str, str]:
    """The body of a verify."""
    signature = b64encode(sign(private, nonce.encode(), algorithm)).decode()
    return {"nonce": nonce, "signature": signature, "algorithm": algorithm}


class SetClock:
    """A clock that a test sets: its wall time is `now`, and its host was started at `booted`."""

    tick = 2.0

    def __init__(self, now: float = 1000.0, booted: float = 0.0) -> None:
        self.now, self._booted = now, booted

    def elapsed(self) -> float:
        return self.now - self._booted

    def wall(self) -> float:
        return self.now


class MovedClock(SystemClock):
    """The host's clocks, each moved forward by so many seconds as the test says."""

    def __init__(self, wall_ahead: float = 0.0, elapsed_ahead: float = 0.0) -> None:
        self.wall_ahead, self.elapsed_ahead = wall_ahead, elapsed_ahead

    def wall(self) -> float:
        return super().wall() + self.wall_ahead

    def elapsed(self) -> float:
        return super().elapsed() + self.elapsed_ahead


@asynccontextmanager
async def virtual_engine(home: Path, clock: TrioClock | None = None, **settings: Any) -> AsyncIterator[Engine]:
    """An engine in trio's time, its store written inline; `engine.watch` holds its records. Key `one` is authorized.

    Its own key is made once for all tests: a first start takes half a second of every one.
    """
    if not home.exists():
        files.make_private_dir(home)
        files.write_private(home / "private-key.pem", key("own").pem())
        keys = AuthorizedKeys(home / "authorized_keys")
        keys.register(key("own").public, (MASTER,), own=True)
        keys.register(key().public, FIVE)  # before the engine is there: a key that comes later is on record
    async with open_engine(home, lambda: Settings(**settings), clock or TrioClock(), inline=True) as engine:
        engine.records.sinks.append(watch := Watchers())
        engine.watch = watch  # type: ignore[attr-defined]
        engine.keys.register(key().public, FIVE)
        yield engine
    watch.check()
    check_journal(home)


def watch_of(engine: Engine) -> Watchers:
    """The records of a virtual engine."""
    watch: Watchers = engine.watch  # type: ignore[attr-defined]
    return watch


class Reply:
    """An answer as it arrives: status, headers, and each piece of the body with the time it came."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.pieces: list[tuple[float, bytes]] = []
        self.hang_up = trio.Event()
        self.broken_off = False
        self.done = trio.Event()

    @property
    def body(self) -> bytes:
        return b"".join(piece for _, piece in self.pieces)

    def json(self) -> Any:
        return json.loads(self.body)

    def lines(self) -> list[Any]:
        """The stream's objects, heartbeats left out."""
        return [json.loads(line) for line in self.body.splitlines() if line]


class Browser:
    """Talks ASGI to an engine's app, in the test's own trio run: whole answers, or streams with hang-ups."""

    def __init__(self, app: Any, *, address: str = "127.0.0.1", host: str = "127.0.0.1:7420") -> None:
        self.app, self.address, self.host = app, address, host

    async def get(self, path: str, **more: Any) -> Reply:
        return await self.ask("GET", path, **more)

    async def post(self, path: str, value: Any = None, **more: Any) -> Reply:
        return await self.ask("POST", path, value, **more)

    async def ask(self, method: str, path: str, value: Any = None, **more: Any) -> Reply:
        reply = Reply()
        await self.talk(reply, method, path, value, **more)
        return reply

    async def talk(
        self,
        reply: Reply,
        method: str,
        path: str,
        value: Any = None,
        *,
        token: str | None = None,
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
    ) -> None:
        """One request into `reply`, until it ends or `reply.hang_up` is set."""
        sent = body if body is not None else b"" if value is None else json.dumps(value).encode()
        named = {"host": self.host} | ({"content-type": "application/json"} if sent else {}) | (headers or {})
        if token is not None:
            named["authorization"] = f"Bearer {token}"
        target, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": target,
            "raw_path": target.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(name.encode(), text.encode("latin-1")) for name, text in named.items()],
            "client": (self.address, 40000),
            "server": ("127.0.0.1", 7420),
            "extensions": {},
        }
        messages = [{"type": "http.request", "body": sent, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if messages:
                return messages.pop()
            await reply.hang_up.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            await trio.lowlevel.checkpoint()
            if message["type"] == "http.response.start":
                reply.status = message["status"]
                reply.headers = {name.decode(): text.decode("latin-1") for name, text in message["headers"]}
            elif message.get("body"):
                reply.pieces.append((trio.current_time(), message["body"]))

        try:
            await self.app(scope, receive, send)
        except* BrokenOff:
            reply.broken_off = True
        finally:
            reply.done.set()


async def sign_in(browser: Browser, private: PrivateKey | None = None, **more: Any) -> dict[str, Any]:
    """A session by key, over HTTP."""
    private = private or key()
    nonce = (await browser.get("/api/auth/challenge/")).json()["nonce"]
    reply = await browser.post("/api/auth/verify/", signed(nonce, private) | more)
    assert reply.status == 200, reply.body
    session: dict[str, Any] = reply.json()
    return session


def added_addresses(clock: Clock | None = None) -> AddedAddresses:
    """An engine's added addresses that nobody is told of."""

    async def tell(added: tuple[str, ...]) -> None: ...

    return AddedAddresses(clock or SystemClock(), tell)
