"""Three engines over one store behind a real nginx: whoever answers, it is one service."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest

from tests.fakes import effort
from tests.fleet import fleet
from tests.nginx import Proxy, running_nginx
from tests.pairs import Console, desk
from tests.ports import free_port
from tests.processes import EngineProcess, sign_in
from tests.redis_server import RedisServer

pytestmark = [pytest.mark.redis, pytest.mark.nginx, pytest.mark.process]

ROUNDS = int(10 * effort())


def nginx(folder: Path, port: int, engines: list[EngineProcess]) -> AbstractContextManager[None]:
    """One address before all of them, in turns."""
    members = "".join(f"server 127.0.0.1:{engine.port}; " for engine in engines)
    location = "proxy_pass http://fleet; proxy_set_header Host $http_host;"
    return running_nginx(folder, port, location, f"upstream fleet {{ {members}}}")


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
                with desk(engines[place % 3]) as operator:
                    console = Console(Proxy(port), operator.code)
                    assert console.line()["match"] == operator.wait("claimed")["match"]
                    operator.answer("y")
                    paired = console.items()[-1]
                for session in (paired, sign_in(http)):
                    headers = {"Authorization": f"Bearer {session['token']}"}
                    assert {http.get("/api/auth/inspect/", headers=headers).status_code for _ in range(4)} == {200}
                    assert http.post("/api/auth/logout/", headers=headers).status_code == 204
                    time.sleep(1)  # the promise is about what is asked from then on
                    assert {http.get("/api/auth/inspect/", headers=headers).status_code for _ in range(4)} == {401}
    finally:
        redis.close()
