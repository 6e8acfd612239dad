"""One engine behind a socket for each mount of its doors; a request goes through all, and the answers must be equal."""

from __future__ import annotations

import re
import threading
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio

from hatchway.api.http.app import LazyQuart, make_app
from hatchway.api.http.asgi import AsgiApp
from hatchway.api.http.backend import EngineBackend
from hatchway.api.http.gateway import Gateway
from hatchway.api.http.request import Request, Response
from hatchway.api.http.table import ENDPOINTS as TABLE
from hatchway.api.server.lane import Lane
from hatchway.api.server.server import open_sockets, serve
from hatchway.api.workers.pool import WorkerPool
from hatchway.engine.engine import Engine
from tests.support.fakes import Browser, sign_in, virtual_engine
from tests.support.hostile_requests import Raw, exchange, request

CHALLENGE, VERIFY, INSPECT = "/api/auth/challenge/", "/api/auth/verify/", "/api/auth/inspect/"
DOORS = {CHALLENGE: "GET", VERIFY: "POST", INSPECT: "GET"}
JSON = "Content-Type: application/json"


def front_mount(engine: Engine) -> AsgiApp:
    """The plain endpoints answered in front of Quart."""
    return make_app(engine)


def quart_mount(engine: Engine) -> AsgiApp:
    """Every endpoint answered by Quart: the same table, its two columns emptied."""
    rows = tuple(replace(row, plain=False, held=False) for row in TABLE)
    gateway = Gateway(EngineBackend(engine), rows)
    return AsgiApp(gateway, LazyQuart(gateway))


MOUNTS = (front_mount, quart_mount, front_mount, front_mount)
LANES = (False, False, True, True)
"""The third mount has the lane before h11; what that leaves goes to the front."""
DOORS_OF = (0, 0, 0, 1)
"""The fourth is behind a door process."""


class Counted:
    """A lane that knows how many requests it has answered itself."""

    def __init__(self, lane: Lane) -> None:
        self._lane, self.answered = lane, 0

    def __call__(self, request: Request) -> Response | Awaitable[Response] | None:
        answer = self._lane(request)
        self.answered += answer is not None
        return answer


class Mounts(NamedTuple):
    """Where one engine is served, once for each mount, a token of its, and the lane."""

    ports: tuple[int, ...]
    token: str
    lane: Counted


@contextmanager
def served(home: Path) -> Iterator[Mounts]:
    """An engine in a thread of its own, until left."""
    ready, ports, tokens, lanes = threading.Event(), list[int](), list[str](), list[Counted]()
    ends: list[Any] = []

    async def run() -> None:
        over = trio.Event()
        ends.append((trio.lowlevel.current_trio_token(), over))
        async with virtual_engine(home) as engine, trio.open_nursery() as nursery:
            for mount, with_lane, doors in zip(MOUNTS, LANES, DOORS_OF, strict=True):
                app, sockets = mount(engine), await open_sockets("127.0.0.1", 0, both_loopbacks=True)
                app.gateway.use_bound(tuple(listener.getsockname()[:2] for listener in sockets))
                ports.append(app.gateway.bound[0][1])
                lane = Counted(app.gateway.handle) if with_lane else None
                lanes.extend([lane] if lane and not doors else [])
                if doors:
                    await nursery.start(WorkerPool(engine, app, doors).serve, sockets, over)
                else:
                    nursery.start_soon(_serve, app, sockets, over, lane)
            tokens.append((await sign_in(Browser(make_app(engine))))["token"])
            ready.set()
            await over.wait()

    thread = threading.Thread(target=trio.run, args=(run,))
    thread.start()
    try:
        assert ready.wait(20)
        yield Mounts(tuple(ports), tokens[0], lanes[0])
    finally:
        token, over = ends[0]
        token.run_sync_soon(over.set)
        thread.join(20)


async def _serve(app: AsgiApp, sockets: Any, over: trio.Event, lane: Counted | None) -> None:
    await serve(app, sockets, shutdown=over, lane=lane)


@pytest.fixture(scope="module")
def mounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounts]:
    with served(tmp_path_factory.mktemp("manners") / "home") as running:
        yield running


def everywhere(mounts: Mounts, method: str, target: str, *headers: str, body: bytes = b"", host: str = "") -> Raw:
    """One request through every mount; `PORT` in it is that mount's own. The answers must be equal: this is theirs."""
    return same(
        mounts,
        [
            request(
                method,
                target,
                *(header.replace("PORT", str(port)) for header in headers),
                port=port,
                body=body,
                host=host.replace("PORT", str(port)) or None,
                close=False,  # the lane leaves requests that end the connection
            )
            for port in mounts.ports
        ],
    )


def raw(mounts: Mounts, data: bytes) -> Raw:
    """Bytes through every mount; `PORT` in them is that mount's own."""
    return same(mounts, [data.replace(b"PORT", b"%d" % port) for port in mounts.ports])


def same(mounts: Mounts, requests: list[bytes]) -> Raw:
    answers = [exchange(port, data) for port, data in zip(mounts.ports, requests, strict=True)]
    told = [_comparable(answer, port) for answer, port in zip(answers, mounts.ports, strict=True)]
    assert all(other == told[0] for other in told), told
    check_manners(answers[0])
    return answers[0]


def _comparable(answer: Raw, port: int) -> Any:
    """What must be equal: all but the date, the random parts of a nonce, and the port."""
    headers = sorted(pair for pair in answer.headers if pair[0] not in ("date", "content-length"))
    body = re.sub(rb'"nonce":"[^"]*"', b'"nonce":""', answer.body)
    return answer.status, headers, body.replace(b"%d" % port, b"PORT")


def check_manners(answer: Raw) -> None:
    """What every answer keeps, whatever was asked."""
    names = [name for name, _ in answer.headers]
    assert not any(name.startswith("access-control-") for name in names)
    assert not {"server", "set-cookie", "x-powered-by"} & set(names)
    assert len(names) == len(set(names))
    assert answer.status < 500 or answer.status in (501, 505)
    assert b"Traceback" not in answer.body
    if answer.body:
        assert answer.header("x-content-type-options") == "nosniff"
        kept = answer.header("content-security-policy")  # a file of the console may be kept, and is asked about
        assert ("no-cache" if kept else "no-store") in (answer.header("cache-control") or "")
    if answer.body and answer.status >= 400:
        assert answer.header("content-type") == "application/problem+json"
        problem = answer.json()
        assert {"type", "title", "status", "detail", "code"} <= set(problem)
        assert problem["status"] == answer.status
    if answer.status == 401:
        assert (answer.header("www-authenticate") or "").startswith("Bearer")


def code(answer: Raw) -> tuple[int, str]:
    """Status and the problem's code."""
    return answer.status, answer.json()["code"]


def plain(mounts: Mounts, door: str, *headers: str, target: str = "", host: str = "") -> Raw:
    """A sound request at a door, but for what is changed."""
    body = b"{}" if door == VERIFY else b""
    kind = (JSON,) if body else ()
    return everywhere(mounts, DOORS[door], target or door, *kind, *headers, body=body, host=host)


OUTCOME = {CHALLENGE: 200, VERIFY: 422, INSPECT: 401}
"""What a request without anything odd gets: a challenge, two missing fields named, no token."""
