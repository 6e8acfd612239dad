"""Pairing and sign-in behind a real nginx: a default `proxy_pass`, and one that hands the Host on (B6)."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from hatchway.api.http.endpoints.auth import HEARTBEAT
from tests.support.hostile_requests import exchange, request
from tests.support.nginx import Proxy, running_nginx
from tests.support.ports import free_port
from tests.support.processes import HATCHWAY, EngineProcess, running_engine, tls_engine
from tests.support.proxies import running_program
from tests.support.real_pairings import PAIR, Console, operator_at
from tests.support.timing import kept

pytestmark = [pytest.mark.nginx, pytest.mark.process]


class Behind(NamedTuple):
    """An engine, and the proxy before it."""

    engine: EngineProcess
    proxy: Proxy


@contextmanager
def behind(folder: Path, more: str = "", **settings: str) -> Iterator[Behind]:
    """An engine behind nginx, whose `location` has `proxy_pass` and what `more` says."""
    port = free_port()
    settings["HATCHWAY_ADDRESSES"] = f"127.0.0.1:{port}"
    with (
        running_engine(folder / "home", **settings) as engine,
        running_nginx(folder / "nginx", port, f"proxy_pass http://127.0.0.1:{engine.port}; {more}"),
    ):
        yield Behind(engine, Proxy(port))


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    """`proxy_pass` alone."""
    with behind(tmp_path_factory.mktemp("default")) as running:
        yield running


@pytest.mark.parametrize("origin", [True, False])
@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_pairing(default: Behind, origin: bool, answer: str) -> None:
    """B6: the first line, the last at the decision, then the connection's end."""
    headers = (f"Origin: http://127.0.0.1:{default.proxy.port}",) if origin else ()
    with operator_at(default.engine) as operator:
        console = Console(default.proxy, operator.code, *headers)
        first = console.line()
        assert first["accepted"] is True
        assert first["match"] == operator.wait("claimed")["match"]
        time.sleep(HEARTBEAT + 1)
        operator.answer(answer)
        last = console.items()[-1]  # to the connection's end
        assert ("token" in last) == (answer == "y")
        assert "token" in last or (last["status"], last["code"]) == (401, "invalid_pairing_code")


def test_nothing_is_held_back(default: Behind) -> None:
    """B6: the first line comes within a second, and so do the last and the end once it is decided."""

    def longest_wait() -> float:
        with operator_at(default.engine) as operator:
            began = time.monotonic()
            console = Console(default.proxy, operator.code)
            console.line()
            first = time.monotonic() - began
            operator.wait("claimed")
            operator.answer("n")
            began = time.monotonic()
            console.items()
            return max(first, time.monotonic() - began)

    kept(1, longest_wait)


@pytest.mark.parametrize(("scheme", "status"), [("https", 200), ("http", 502)])
def test_an_engine_with_tls_of_its_own(tmp_path: Path, scheme: str, status: int) -> None:
    """It is dialled by https, as the handbook says; by http nginx has no answer that it understands."""
    with tls_engine(tmp_path / "home") as engine:
        port, theirs = free_port(), engine.url.rpartition(":")[2]
        engine.command("config", "set", "addresses", f"127.0.0.1:{port}")
        engine.command("engine", "reload")
        dialled = f"proxy_pass {scheme}://127.0.0.1:{theirs}; proxy_set_header Host $http_host;"
        with running_nginx(tmp_path / "nginx", port, dialled):
            assert httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == status


def test_a_wrong_code_and_a_foreign_page(default: Behind) -> None:
    """Refusals come through whole: 401 before anything is streamed, 403 for a page of another origin."""
    console = Console(default.proxy, "00000000")
    assert (console.status, console.items()[0]["code"]) == (401, "invalid_pairing_code")
    console = Console(default.proxy, "00000000", "Origin: http://evil.test")
    assert (console.status, console.items()[0]["code"]) == (403, "foreign_origin")


def test_a_console_that_goes(default: Behind) -> None:
    """B7: nginx closes its side when its client has gone, and the terminal is told."""
    with operator_at(default.engine) as operator:
        console = Console(default.proxy, operator.code)
        operator.wait("claimed")
        console.close()
        assert "went away" in operator.wait("left")["message"]


def login(at: Behind) -> tuple[str, ...]:
    """The command's words for a sign-in at the proxy with the engine's own key."""
    return ("login", "--url", f"http://127.0.0.1:{at.proxy.port}", "--key", str(at.engine.home / "private-key.pem"))


def test_our_client_signs_for_nobody_else(default: Behind) -> None:
    """V6: the challenge names the engine, not the proxy that was dialled; the refusal has the line that mends it."""
    done = subprocess.run(
        [*HATCHWAY, *login(default)], env=default.engine.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "proxy_set_header Host $http_host;" in done.stderr


def test_with_the_mended_line_a_key_signs_in(tmp_path: Path) -> None:
    """The Host handed on, key sign-in works; the proxy is believed as far as the settings say, and no further."""
    more = "proxy_set_header Host $http_host; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;"
    with behind(tmp_path, more, HATCHWAY_TRUSTED_PROXIES="127.0.0.0/8") as at:
        at.engine.command(*login(at))
        with operator_at(at.engine) as operator:
            console = Console(at.proxy, operator.code, "X-Forwarded-For: 203.0.113.5")
            claimed = operator.wait("claimed")
            assert (claimed["address"], claimed["forwarded"]) == ("127.0.0.1", "203.0.113.5")
            operator.answer("n")
            console.items()


def test_a_closed_connection_every_time(default: Behind) -> None:
    """F1: HTTP/1.0 as nginx speaks it upstream is answered and ended at once, not after its read timeout."""
    body = json.dumps({"code": "00000000"}).encode()
    data = request("POST", PAIR, "Content-Type: application/json", port=default.proxy.port, body=body)
    before = time.monotonic()
    for _ in range(5):
        assert exchange(default.proxy.port, data).status in (401, 429)
    for _ in range(20):
        assert exchange(default.proxy.port, request("GET", "/", port=default.proxy.port)).status == 200
    assert time.monotonic() - before < 30  # nginx's own is a minute, each


def test_who_comes_by_a_proxy_is_not_this_host(tmp_path: Path) -> None:
    """A proxy of this host that hands the Host on, and says nothing else, brings strangers: `/metrics` wants a token of
    them, and the prompt doesn't take them for this host or a tunnel."""
    port = free_port()
    settings = {"HATCHWAY_ADDRESSES": f"gate.example:{port}"}
    with (
        running_engine(tmp_path / "home", **settings) as engine,
        running_nginx(
            tmp_path / "nginx",
            port,
            f"proxy_pass http://127.0.0.1:{engine.port}; proxy_set_header Host $http_host;",
        ),
    ):
        host = f"gate.example:{port}"
        assert exchange(port, request("GET", "/metrics", port=port, host=host)).status == 401
        assert exchange(engine.port, request("GET", "/metrics", port=engine.port)).status == 200
        with operator_at(engine) as operator:
            body = json.dumps({"code": operator.code}).encode()
            data = request("POST", PAIR, "Content-Type: application/json", port=port, host=host, body=body)
            with socket.create_connection(("127.0.0.1", port), timeout=60) as peer:
                peer.sendall(data)
                claimed = operator.wait("claimed")
                assert (claimed["address"], claimed["local"]) == ("127.0.0.1", False)
                operator.answer("n")
                assert b"invalid_pairing_code" in peer.makefile("rb").read()


LIGHTTPD = """
server.modules = ("mod_proxy")
server.document-root = "{folder}"
server.port = {port}
server.bind = "127.0.0.1"
proxy.server = ("" => (("host" => "127.0.0.1", "port" => {engine})))
"""


@contextmanager
def held_back(kind: str, folder: Path) -> Iterator[Behind]:
    """An engine behind a proxy that gives an answer on when it has the whole of it."""
    if kind == "nginx":
        with behind(folder, "proxy_ignore_headers X-Accel-Buffering; proxy_set_header Host $http_host;") as at:
            yield at
        return
    port = free_port()
    (folder / "lighttpd").mkdir()
    with running_engine(folder / "home", HATCHWAY_ADDRESSES=f"127.0.0.1:{port}") as engine:
        text = LIGHTTPD.format(folder=folder / "lighttpd", port=port, engine=engine.port)
        arguments = ["-D", "-f", str(folder / "lighttpd" / "conf")]
        with running_program("lighttpd", arguments, folder / "lighttpd", text, port):
            yield Behind(engine, Proxy(port))


@pytest.mark.parametrize("kind", ["nginx", pytest.param("lighttpd", marks=pytest.mark.lighttpd)])
def test_a_proxy_that_holds_the_stream_back(tmp_path: Path, kind: str) -> None:
    """The command says within a few seconds what it is, and what turns it off, and waits: the operator's `y` signs it
    in all the same."""
    with held_back(kind, tmp_path) as at, operator_at(at.engine) as operator:
        environ = {name: text for name, text in at.engine.environ.items() if name != "HATCHWAY_ADDRESSES"}
        command = subprocess.Popen(
            [*HATCHWAY, "pair", "--url", f"http://127.0.0.1:{at.proxy.port}"],
            env=environ | {"HATCHWAY_HOME": str(tmp_path / "client")},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert command.stdin is not None
        assert command.stderr is not None
        command.stdin.write(f"{operator.code}\n")
        command.stdin.flush()
        operator.wait("claimed")
        said = command.stderr.readline()
        assert "a proxy before the engine may hold the answer back to its end" in said
        assert "proxy_buffering off" in said
        operator.answer("y")
        out, err = command.communicate(timeout=60)
        assert command.returncode == 0, err
        assert "signed in" in out
