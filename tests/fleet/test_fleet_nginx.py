"""Three engines over one store behind a real nginx: whoever answers, it is one service."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.fakes import effort
from tests.support.fleet import fleet, insist
from tests.support.nginx import Proxy, running_nginx
from tests.support.ports import free_port
from tests.support.processes import EngineProcess, sign_in
from tests.support.real_pairings import Console, operator_at
from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.redis, pytest.mark.nginx, pytest.mark.process]

INSPECT, LOGOUT = ("GET", "/api/auth/inspect/"), ("POST", "/api/auth/logout/")
ROUNDS = int(10 * effort())


def nginx(folder: Path, port: int, engines: list[EngineProcess]) -> AbstractContextManager[None]:
    """One address before all of them, in turns."""
    members = "".join(f"server 127.0.0.1:{engine.port}; " for engine in engines)
    location = "proxy_pass http://fleet; proxy_set_header Host $http_host;"
    return running_nginx(folder, port, location, f"upstream fleet {{ {members}}}")


def ask(http: httpx.Client, session: dict[str, Any], method: str, path: str) -> int:
    headers = {"Authorization": f"Bearer {session['token']}"}
    return insist(lambda: http.request(method, path, headers=headers)).status_code


def test_one_service(tmp_path: Path) -> None:
    """A code of one engine's terminal claimed at the common address; sessions good and ended at every turn."""
    redis, port = RedisServer(tmp_path / "redis").start(), free_port()
    try:
        with (
            fleet(tmp_path, *[redis.url] * 3, HATCHWAY_ADDRESSES=f"127.0.0.1:{port}") as engines,
            nginx(tmp_path / "nginx", port, engines),
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as http,
        ):
            for place in range(ROUNDS):
                with operator_at(engines[place % 3]) as operator:
                    console = Console(Proxy(port), operator.code)
                    assert console.line()["match"] == operator.wait("claimed")["match"]
                    operator.answer("y")
                    paired = console.items()[-1]
                for session in (paired, sign_in(http)):
                    inspect, logout = (partial(ask, http, session, *what) for what in (INSPECT, LOGOUT))
                    assert {inspect() for _ in range(4)} == {200}
                    assert logout() == 204
                    time.sleep(1)  # the promise is about what is asked from then on
                    assert {inspect() for _ in range(4)} == {401}
    finally:
        redis.close()
