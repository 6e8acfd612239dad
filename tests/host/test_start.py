"""What an engine's start leaves out, and that leaving it out is never felt: loaded when it is first wanted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from hatchway.api.host.operator_socket import OperatorSocket
from hatchway.api.host.run import HARD_END, open_server
from hatchway.api.http import app
from hatchway.api.http.app import make_app
from hatchway.engine.settings.settings import Settings
from tests.support.fakes import ROOT, Browser, virtual_engine
from tests.support.keep_alive import Wire
from tests.support.ports import free_port
from tests.support.processes import EngineProcess, executed_engine, prepare, running_engine
from tests.support.waits import until

LEFT_OUT = (
    *("quart", "flask", "werkzeug", "jinja2", "rich", "pygments", "hatchway.statecharts.draw.layout", "xml.sax"),
    *(
        "hatchway.engine.fleet.fleet",
        "hatchway.engine.store.redis",
        "hatchway.engine.instances.slurm.slurm",
        "coredis",
        "OpenSSL",
    ),
)

LINE = (ROOT / "tests" / "data" / "own" / "keys" / "rsa2048.ssh.pub").read_text().rstrip()


def test_a_start_loads_no_more_than_it_needs() -> None:
    """Quart, the drawing of charts and coloured tracebacks, and what comes with them, wait until they are wanted; so
    does what looks at the keys, and never brings what it has for certificates."""
    code = f"""
import gc, sys, trio
from hatchway.engine.base.memory import collect_rarely, loading
with loading():
    import hatchway.api.host.run
from hatchway.engine.keys.keys import parse_openssh
print("badkeys" in sys.modules)
parse_openssh({LINE!r})
print([name for name in {LEFT_OUT} if name in sys.modules])
async def main():
    collect_rarely()
trio.run(main)
import rich.traceback
print(gc.isenabled(), gc.get_freeze_count() > 10_000)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False", "[]", "True True"]


@pytest.mark.process
def test_a_command_loads_no_async_libraries(home: Path) -> None:
    """A ping is over in the time of some ten bare Pythons: what httpcore can do besides is left where it is."""
    code = """
import atexit, sys
watched = {"httpcore", "httpx", "trio", "anyio", "h2", "rich", "pygments", "typing_extensions", "certifi.core"}
watched |= {"tomllib", "hatchway.statecharts.chart"}
atexit.register(lambda: print(*sorted(watched.intersection(sys.modules))))
from hatchway.api.cli import main
main()
"""
    with running_engine(home) as engine:
        ping = [sys.executable, "-c", code, "engine", "ping"]
        done = subprocess.run(ping, env=engine.environ, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "httpcore"


def test_a_list_of_keys_loads_nothing_of_a_fleet(home: Path) -> None:
    """Where the keys are a folder's, no command about them loads what would ask a store for them."""
    code = """
import atexit, sys
watched = {"hatchway.engine.fleet.store_keys", "hatchway.engine.store.redis", "hatchway.engine.fleet.keys", "coredis"}
atexit.register(lambda: print(watched.intersection(sys.modules)))
from hatchway.api.cli import main
main()
"""
    listing = [sys.executable, "-c", code, "key", "list"]
    environ = {**os.environ, "HATCHWAY_HOME": str(home)}
    done = subprocess.run(listing, env=environ, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.process
def test_an_idle_engine_is_small(home: Path) -> None:
    """Its start costs at most 60 MB; here some more, for what the tests' own environment adds to it."""
    with executed_engine(home) as engine:
        assert engine.memory() < 66e6


@pytest.mark.process
@pytest.mark.parametrize("workers", ["1", "2"])
def test_who_is_answered_finds_the_operator_socket(home: Path, workers: str) -> None:
    """Once it answers, a command asks this host's engine where it is, which must not seem to be away."""
    engine, port = EngineProcess(home, HATCHWAY_WORKERS=workers), free_port()
    try:
        engine.begin(port)
        until(lambda: answers(port), what="an answer")
        assert engine.operator({"op": "status"})[0]["url"] == f"http://127.0.0.1:{port}/"
    finally:
        engine.close()


def answers(port: int) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
    return False


@pytest.mark.process
async def test_the_first_visit_to_quart_stops_nobody(home: Path) -> None:
    """While the first page waits for Quart to be loaded, the plain endpoints go on answering; then it comes, whole."""
    told: list[int] = []
    while len(told) < 5 and not (told and told[-1] >= 3):  # on a busy machine who asks may get no turn meanwhile
        told.append(await answered_during_the_first_visit(home))
    assert told[-1] >= 3, told


async def answered_during_the_first_visit(home: Path) -> int:
    """How often the plain endpoints are."""
    with executed_engine(home) as engine:
        during = 0
        async with Wire(engine) as page, Wire(engine) as plain, trio.open_nursery() as nursery:
            come = trio.Event()

            async def visit() -> None:
                assert await page.ask("GET", "/") == 200
                come.set()

            assert await plain.ask("GET", "/api/auth/challenge/") == 200
            nursery.start_soon(visit)
            with trio.fail_after(30):
                while not come.is_set():
                    assert await plain.ask("GET", "/api/auth/challenge/") == 200
                    during += 1
            assert await page.ask("GET", "/nothing") == 404
        return during


async def test_a_quart_that_is_gone_is_told_and_may_come_back(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation taken away under a running engine: a problem in words where Quart answers, no harm elsewhere."""

    def gone(name: str) -> Any:
        raise ModuleNotFoundError(name)

    async with virtual_engine(home) as engine:
        browser = Browser(make_app(engine))
        monkeypatch.setattr(app, "MOUNT", "hatchway.api.http.not_loaded_yet")
        monkeypatch.setattr(app, "import_module", gone)
        refused = await browser.get("/")
        assert (refused.status, refused.json()["code"]) == (500, "internal_error")
        assert "restart" in refused.json()["detail"]
        assert (await browser.get("/healthz")).status == 200
        monkeypatch.undo()
        import_module(app.MOUNT)
        assert (await browser.get("/")).status == 200


async def test_signals_are_obeyed_before_the_operator_can_ask(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sees the operator's socket may send one at once, and it is not lost."""
    handlers, serve = [], OperatorSocket.serve

    async def seen(own: OperatorSocket, **how: Any) -> None:
        handlers.append(signal.getsignal(signal.SIGHUP))
        await serve(own, **how)

    monkeypatch.setattr(OperatorSocket, "serve", seen)
    prepare(home)
    async with open_server(home, lambda: Settings(port=0)) as server:
        server.stop()
    assert all(map(callable, handlers))
    assert handlers


async def test_further_signals_do_not_put_the_end_off(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopping process is ended some time after the first signal, however often it gets another."""
    armed: list[float] = []
    monkeypatch.setattr(signal, "setitimer", lambda which, seconds: armed.append(seconds))
    prepare(home)
    async with open_server(home, lambda: Settings(port=0)):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)  # one of another number: signals of one number that wait are one
    assert armed == [HARD_END]
