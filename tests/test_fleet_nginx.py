"""Three engines over one store behind a real nginx: whoever answers, it is one service."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.fakes import effort
from tests.fleet import fleet
from tests.pairs import Console, desk
from tests.ports import free_port
from tests.processes import EngineProcess, sign_in
from tests.redis_server import RedisServer, speak, until
from tests.test_nginx import CONFIGURATION, Proxy

pytestmark = [pytest.mark.redis, pytest.mark.nginx, pytest.mark.process]

ROUNDS = int(10 * effort())


@contextmanager
def nginx(folder: Path, port: int, engines: list[EngineProcess]) -> Iterator[None]:
    """One address before all of them, in turns."""
    folder.mkdir()
    members = "".join(f"server 127.0.0.1:{engine.port}; " for engine in engines)
    proxied = f"listen 127.0.0.1:{port}; location / {{ proxy_pass http://fleet; proxy_set_header Host $http_host; }}"
    user = "user root;" if os.geteuid() == 0 else ""
    text = CONFIGURATION.format(folder=folder, user=user, server=proxied)
    (folder / "nginx.conf").write_text(
        text.replace("access_log off;", f"access_log off; upstream fleet {{ {members}}}")
    )
    program = shutil.which("nginx", path="/usr/sbin:" + os.environ["PATH"])
    assert program
    arguments = [program, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")]
    process = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
    try:
        until(lambda: speak(port, "GET") != b"", what="nginx")
        yield
    finally:
        process.terminate()
        process.wait(10)


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
