"""On the engine's own host nothing is sent to whoever took its port: its operator socket says where it is (E7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from hatchway.api.client import AsyncClient, Client, ClientFault, Unreachable
from hatchway.api.client.own_engine import leads_to_loopback, listens_at
from tests.support.command import completed
from tests.support.fakes import key
from tests.support.false_engine import answer, false_engine, stored
from tests.support.live_engine import live_engine
from tests.support.ports import free_port
from tests.support.processes import EngineProcess, running_engine, tls_engine

pytestmark = pytest.mark.process


def words_of(engine: EngineProcess, *arguments: str, **environ: str) -> str:
    """What a command says on standard error where it is refused."""
    done = completed(engine.environ | environ, *arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr


def test_while_the_engine_is_down_its_port_gets_nothing(home: Path) -> None:
    """E7: no command dials the port of an engine that doesn't run, by whatever name and with whatever token or key."""
    with running_engine(home, free_port()) as engine:
        engine.command("engine", "ping")
        engine.terminate()
        names = ("127.0.0.1", "localhost", "x.localhost", "0.0.0.0", "127.1", "0", "[::ffff:127.0.0.1]", "0x7f000001")
        urls = [f"http://{name}:{engine.port}" for name in names]
        with false_engine(lambda _: answer(200, b"{}"), port=engine.port) as (_, requests):
            for arguments in (["session", "list"], ["engine", "ping"], ["instance", "list"], ["login"], ["logout"]):
                assert "engine start" in words_of(engine, *arguments, HATCHWAY_PORT=str(engine.port))
            for url in urls:
                assert "othing was sent" in words_of(engine, "login", "--url", url)
                assert "othing was sent" in words_of(engine, "pair", "7K3M-Q9XD", "--url", url)
                assert "othing was sent" in words_of(engine, "session", "list", HATCHWAY_URL=url)
        assert requests == []
        engine.start(engine.port)
        engine.command("session", "list")
        engine.command("login", "--url", urls[0])


def test_an_engine_elsewhere_vouches_for_its_own_port_alone(home: Path) -> None:
    """E7: while the engine listens at another port, the one it had gets nothing, and the words say where it is."""
    with running_engine(home, free_port()) as engine, false_engine(lambda _: answer(200, b"{}")) as (url, requests):
        words = words_of(engine, "login", "--url", url)
        assert engine.url in words
        assert "HATCHWAY_HOME=" in words
        assert requests == []


def test_a_certificate_that_is_not_known_takes_no_place_of_the_engine(home: Path, tmp_path: Path) -> None:
    """E7: with TLS the pin speaks for the port; while the engine is down nobody else's certificate is taken up."""
    with tls_engine(home) as engine:
        engine.command("engine", "ping")
        port = int(engine.url.rpartition(":")[2])
        engine.kill()
        with tls_engine(tmp_path / "other") as other:
            other.terminate()
            other.start(port)
            assert "HAS CHANGED" in words_of(engine, "session", "list", HATCHWAY_PORT=str(port))
            (home / "known_engines").unlink()
            for arguments in (["session", "list"], ["login"], ["login", "--url", other.url]):
                assert "no authority vouches" in words_of(engine, *arguments, HATCHWAY_PORT=str(port))


async def test_the_python_client_asks_too(home: Path) -> None:
    """E7: each request of a client waits for the engine's word, so that one which lives on sends nothing either."""
    async with live_engine(home) as at, AsyncClient(at.url, key=key(), home=home) as client:
        await client.sign_in()
        (home / "operator.sock").unlink()
        with pytest.raises(Unreachable, match="Nothing was sent"):
            await client.sessions()

        def ask() -> None:
            with Client(at.url, key=key(), home=home) as plain, pytest.raises(Unreachable, match="Nothing was sent"):
                plain.sign_in()

        await trio.to_thread.run_sync(ask)
        assert await _signs_in(at.url, home.parent / "away")


async def _signs_in(url: str, home: Path) -> bool:
    async with AsyncClient(url, key=key(), home=home) as client:
        return bool((await client.sign_in()).token)


def test_a_client_of_another_port_is_told_where_the_engine_is(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E7: the folder is the command's own, so a script on the engine's host needs to say nothing."""
    with running_engine(home) as engine, false_engine(lambda _: answer(200, b"{}")) as (url, requests):
        monkeypatch.setenv("HATCHWAY_HOME", str(home))
        with Client(url, stored=stored(url)) as client, pytest.raises(ClientFault, match=engine.url):
            client.inspect()
        assert requests == []


V4, BOTH = ["127.0.0.1:7420"], ["127.0.0.1:7420", "[::1]:7420"]


@pytest.mark.parametrize(
    ("listening", "url", "vouched"),
    [
        (V4, "http://127.0.0.1:7420", True),
        (V4, "http://127.0.0.1:7421", False),
        (V4, "https://127.0.0.1:7420", False),
        (V4, "http://127.0.0.2:7420", False),
        (V4, "http://[::1]:7420", False),
        (V4, "http://localhost:7420", False),
        (BOTH, "http://localhost:7420", True),
        (BOTH, "http://[::1]:7420", True),
        (["0.0.0.0:7420"], "http://127.0.0.2:7420", True),
        (["0.0.0.0:7420", "[::]:7420"], "http://localhost:7420", True),
        (BOTH, "http://engine.example:7420", False),
        (V4, "http://the-host:7420", False),
        (["0.0.0.0:7420"], "http://the-host:7420", True),
    ],
)
def test_a_name_is_the_engines_where_all_its_addresses_are(
    listening: list[str], url: str, vouched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E7: `localhost` is also [::1], which may be another's; an address counts that the engine itself listens at."""
    both = {"localhost": ["127.0.0.1", "::1"], "the-host": ["127.0.1.1"], "engine.example": ["192.0.2.7"]}

    def resolved(host: str, *_: Any, **__: Any) -> list[tuple[Any, ...]]:
        return [(0, 0, 0, "", (address, 0)) for address in both.get(host, [host])]

    monkeypatch.setattr("socket.getaddrinfo", resolved)
    monkeypatch.setattr("hatchway.api.client.own_engine._is_here", lambda address: True)
    assert listens_at({"url": "http://127.0.0.1:7420/", "listening": listening}, url) is vouched


@pytest.mark.parametrize(
    ("host", "leads"),
    [
        ("the-host", True),
        ("127.1", True),
        ("::ffff:127.0.0.1", True),
        ("fe80::1", False),
        ("engine.example", False),
        ("no.such.name", False),
        ("a" * 64 + ".example", False),
    ],
)
def test_what_leads_to_loopback(host: str, leads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """E7: this host's own name is often an address of loopback, and an address may be written in many ways."""
    known = {"the-host": "127.0.1.1", "127.1": "127.0.0.1", "fe80::1": "fe80::1%eth0", "engine.example": "192.0.2.7"}

    def resolved(name: str, *_: Any, **__: Any) -> list[tuple[Any, ...]]:
        name.encode("idna")
        if name not in known:
            raise OSError("no such name")
        return [(0, 0, 0, "", (known[name], 0))]

    monkeypatch.setattr("socket.getaddrinfo", resolved)
    assert leads_to_loopback(host) is leads
