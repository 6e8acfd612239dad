"""Places and memory are shared by address: whoever holds the most gives way, and nobody is kept out by silence."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from hatchway.api.server import places
from hatchway.api.server.server import ServerLimits, serve
from hatchway.api.server.unix_sockets import listen_private
from tests.support.fakes import key
from tests.support.processes import EngineProcess, bearer, running_engine, sign_in
from tests.support.raw_clients import GET, Client, Served, serving
from tests.support.server_apps import Told, bare_app, fast_path_of

MOST = 40
LIMITS = ServerLimits(max_connections=MOST)
ATTACKER = "127.0.66.1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the certificate lies."""
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(params=["plain", "tls", "fast"])
async def served(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Served]:
    """A server with forty places."""
    fast_path = fast_path_of if request.param == "fast" else None
    certified = folder if request.param == "tls" else None
    async with serving(limits=LIMITS, fast_path=fast_path, certified=certified) as served:
        yield served


async def raw(served: Served, address: str, receive_buffer: int = 0) -> Client:
    """A connection from one of loopback's addresses that has said nothing, and does not speak TLS."""
    sock = trio.socket.socket()
    if receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    await sock.bind((address, 0))
    await sock.connect(("127.0.0.1", served.port))
    served.clients.append(Client(trio.SocketStream(sock)))
    return served.clients[-1]


async def asking(served: Served, address: str, path: bytes) -> Client:
    """A connection from one of loopback's addresses whose answer is on its way."""
    client = await raw(served, address)
    await client.send(GET % (path, b""))
    await trio.sleep(0.02)
    return client


async def is_over(client: Client) -> bool:
    """Whether the server has ended a connection; what it says first is passed over."""
    with trio.move_on_after(0.05):
        with suppress(trio.ClosedResourceError):
            await client.rest()
        return True
    return False


@pytest.mark.parametrize("address", [ATTACKER, "127.0.0.1"], ids=["of another address", "of one proxy or tunnel"])
async def test_silent_connections_keep_nobody_out(served: Served, autojump_clock: MockClock, address: str) -> None:
    """However many connections say nothing, or only half a request, a client that asks is answered, and stays."""
    first = await served.connect()
    assert (await first.get(b"/hello"))[0] == 200
    silent: list[Client] = []
    for number in range(3 * MOST):
        silent.append(await raw(served, address))
        if number % 2:
            await silent[-1].send(b"GET /hello HTTP/1.1\r\nHost: x\r\n")
        await trio.sleep(0.01)
    assert (await (await served.connect()).get(b"/hello"))[0] == 200
    assert (await first.get(b"/hello"))[0] == 200
    assert [await is_over(client) for client in (silent[0], silent[-2])] == [True, False]


@pytest.mark.parametrize("served", ["plain", "fast"], indirect=True)
async def test_idle_connections_keep_nobody_out(served: Served, autojump_clock: MockClock) -> None:
    """Nor do those that asked something once: the one that has been idle the longest is closed, and its last answer is
    not lost. An address that holds less keeps what it has."""
    first = await served.connect()
    await first.get(b"/hello")
    idle = [await asking(served, ATTACKER, b"/hello") for _ in range(MOST - 1)]
    for client in [await served.connect() for _ in range(5)]:
        assert (await client.get(b"/hello"))[2] == b"hello"
    assert (await first.get(b"/hello"))[2] == b"hello"
    assert [(await client.answer())[2] for client in idle] == [b"hello"] * len(idle)
    assert [await is_over(client) for client in idle] == [True] * 5 + [False] * (MOST - 6)


@pytest.mark.parametrize("served", ["plain"], indirect=True)
async def test_half_of_the_places_is_the_most_that_is_kept(served: Served, autojump_clock: MockClock) -> None:
    """Answers that are held are not broken off for a newcomer, unless one address has more than half of all places."""
    held = [await asking(served, ATTACKER, b"/hold") for _ in range(MOST)]
    others = [await asking(served, "127.0.0.1", b"/hold") for _ in range(MOST)]
    statuses = [(await client.some())[9:12] for client in others]
    assert (statuses.count(b"200"), statuses.count(b"503")) == (MOST // 2, MOST // 2)
    assert [await is_over(client) for client in held] == [False] * (MOST // 2) + [True] * (MOST // 2)


async def test_a_local_socket_has_places_of_its_own(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Whoever fills the places of the network keeps nobody out who comes by a socket of this host."""
    told, path = Told(), tmp_path / "http.sock"
    local, network = listen_private(path), socket.create_server(("127.0.0.1", 0))
    stdlib = socket.socket(fileno=local.detach())
    async with trio.open_nursery() as nursery:
        run = partial(serve, bare_app(told), [stdlib, network], shutdown=told.shutdown, limits=lambda: LIMITS)
        served = Served((await nursery.start(run))[1][1], told, tls=False)
        held = [await asking(served, "127.0.0.1", b"/hold") for _ in range(MOST)]
        client = Client(await trio.open_unix_socket(path))
        assert (await client.get(b"/hello"))[0] == 200
        told.shutdown.set()
        for one in (client, *held):
            await one.stream.aclose()


async def test_a_server_without_any_place_goes_on(autojump_clock: MockClock) -> None:
    """Where the limit of open files, lowered while it runs, leaves no place, whoever comes is told 503."""
    async with serving(limits=ServerLimits(max_connections=0)) as served:
        for _ in range(2):
            assert (await (await served.connect()).some())[9:12] == b"503"


SAID = {
    "a body": b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n" + bytes(59_999),
    "half a head": b"GET /hello HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 12_000,
    "what is pipelined": GET % (b"/hold", b"") + b"GET /hello HTTP/1.1\r\nX: " + b"x" * 15_000,
    "answers": GET % (b"/big", b""),
}


@pytest.mark.parametrize("what", SAID)
async def test_what_waits_for_clients_is_bounded_in_all(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """What has come of requests, and what clients do not read of their answers, is bounded in all: past that,
    connections of the address that has the most of it are closed, and a client of another address loses nothing."""
    each = 5 * 1024 * 1024 if what == "answers" else len(SAID[what])  # of eight the kernel keeps some
    monkeypatch.setattr(places, "HELD_BYTES", 20 * each)
    async with serving() as served:
        other = await asking(served, "127.0.0.1", b"/hold")
        await other.send(SAID["a body"][:60])
        greedy = []
        for _ in range(30):
            greedy.append(await raw(served, ATTACKER))
            await greedy[-1].send(SAID[what])
            await trio.sleep(0.02)
        over = [await is_reset(client) for client in greedy].count(True)
        assert 4 <= over <= 20
        assert not await is_over(other)


async def is_reset(client: Client) -> bool:
    """Whether the server has dropped a connection. (A client that does not read is not told in any other way.)"""
    await trio.lowlevel.checkpoint()
    error: int = client.stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return error != 0


async def test_a_reader_that_trickles_makes_no_progress(autojump_clock: MockClock) -> None:
    """Less than 256 bytes a second for 30 seconds is as good as nothing: the connection is cut."""
    async with serving() as served:
        client = await raw(served, "127.0.0.1", receive_buffer=4096)
        await client.send(GET % (b"/big", b""))
        before, taken = trio.current_time(), 0
        while trio.current_time() - before < 200:
            await trio.sleep(10)
            try:
                data = await client.stream.receive_some(1500)
            except trio.BrokenResourceError:
                break
            if not data:
                break
            taken += len(data)
        assert trio.current_time() - before < 100
        assert 0 < taken < 16_000


INSTANCE = "/api/platform/singularity/instance/"


@pytest.fixture(params=["1", "2"], ids=["engine alone", "two worker processes"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """An engine, and one with worker processes."""
    with running_engine(tmp_path / "hatchway", HATCHWAY_WORKERS=request.param) as running:
        yield running


def first_answer(engine: EngineProcess, path: str, token: str = "", sent: bytes = b"{") -> tuple[int, str]:
    """Status and code of what is answered to a request of whose large body only the beginning has come."""
    host = f"127.0.0.1:{engine.port}"
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n"
    head += f"Authorization: Bearer {token}\r\n" if token else ""
    with socket.create_connection(("127.0.0.1", engine.port), 5) as sock:
        sock.sendall(head.encode() + b"\r\n" + sent)
        answer, _, body = sock.makefile("rb").read().partition(b"\r\n\r\n")
    return int(answer[9:12]), json.loads(body)["code"]


@pytest.mark.process
def test_the_token_is_looked_at_before_the_body(engine: EngineProcess) -> None:
    """A request that may not be made is refused before its body has come: no token, a bad one, one without the
    permission. With a good one the body has its time."""
    with httpx.Client(base_url=engine.url) as client:
        session = sign_in(client, key())
        assert first_answer(engine, INSTANCE) == (401, "invalid_token")
        assert first_answer(engine, "/api/auth/logout/", "no.token.at.all") == (401, "invalid_token")
        good = client.post("/api/auth/renew/", json={}, headers=bearer(session["token"]))
        assert good.status_code == 200
        with pytest.raises(TimeoutError):
            first_answer(engine, "/api/auth/renew/", session["token"])


@pytest.mark.process
def test_the_command_gets_in_where_silent_connections_have_all_places(tmp_path: Path) -> None:
    """`hatchway engine ping` is answered though three times as many sockets as there are places say nothing."""
    with running_engine(tmp_path / "hatchway", HATCHWAY_MAX_CONNECTIONS="20") as running:
        silent = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(60)]
        try:
            assert running.url in running.command("engine", "ping")
        finally:
            for sock in silent:
                sock.close()
