"""How the server starts, what becomes of it where app, host or certificate fail or change, and how it ends."""

from __future__ import annotations

import resource
import socket
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hatchway.api.server.pinned import check_hypercorn
from hatchway.api.server.server import open_sockets, serve
from hatchway.engine.base.errors import EngineUnavailable
from tests.support.raw_clients import GET, certificate, server_context, serving
from tests.support.server_apps import Told, bare_app


async def test_an_app_that_fails(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    """An app's mistake is a bare 500, or a cut answer, and one line in the log; the server goes on."""
    async with serving() as served:
        client = await served.connect()
        status, headers, body = await client.get(b"/fail")
        assert (status, headers[b"content-length"], body) == (500, b"0", b"")
        assert await client.ends()
        client = await served.connect()
        await client.send(GET % (b"/break", b""))
        assert not (await client.rest()).endswith(b"0\r\n\r\n")
        assert (await (await served.connect()).get(b"/hello"))[2] == b"hello"
    assert [record.message for record in caplog.records] == [
        "the app raised at GET /fail",
        "the app raised at GET /break",
    ]


async def test_an_app_told_late(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    """An app that learns only by sending that its client has left gets an OSError, which is no mistake of its."""
    async with serving() as served:
        client = await served.connect()
        await client.send(GET % (b"/late", b""))
        await client.stream.aclose()
        await trio.sleep(6)
        assert served.told.words == ["nobody"]
    assert not caplog.records


async def test_open_sockets(autojump_clock: MockClock, tmp_path: Path) -> None:
    """The server takes sockets that are open already: IPv6, Unix, several at once."""
    told, path = Told(), tmp_path / "s"
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(str(path))
    unix.listen()
    sockets = [*await open_sockets("127.0.0.1", 0), *await open_sockets("::1", 0), unix]

    async def run(task_status: Any) -> None:
        await serve(bare_app(told), sockets, shutdown=told.shutdown, task_status=task_status)

    async with trio.open_nursery() as nursery:
        bound = await nursery.start(run)
        assert [host for host, _ in bound] == ["127.0.0.1", "::1", str(path)]
        peers = []
        for stream in (*[await trio.open_tcp_stream(*name) for name in bound[:2]], await trio.open_unix_socket(path)):
            await stream.send_all(GET % (b"/peer", b"Connection: close\r\n"))
            peers.append(b"".join([data async for data in stream]).rpartition(b"\r\n\r\n")[2])
            await stream.aclose()
        assert peers[0].startswith(b"('127.0.0.1', ")
        assert peers[1].startswith(b"('::1', ")
        assert peers[2] == b"None"
        told.shutdown.set()


async def test_port_taken() -> None:
    """A port in use is one sentence, which says how to find who has it."""
    first = await open_sockets("127.0.0.1", 0)
    with (
        first[0],
        pytest.raises(EngineUnavailable, match=r"can't listen on 127.0.0.1 port \d+: Address already in use .*`ss "),
    ):
        await open_sockets("127.0.0.1", first[0].getsockname()[1])


async def test_cancelled_server(autojump_clock: MockClock) -> None:
    """A server that is cancelled from outside ends at once, whatever its clients do."""
    with trio.CancelScope() as scope:
        async with serving() as served:
            client = await served.connect()
            await client.send(GET % (b"/big", b""))
            await trio.sleep(1)
            before = trio.current_time()
            scope.cancel()
    assert trio.current_time() == before


async def test_another_hypercorn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server refuses in words to start on a Hypercorn that its parts were not written for."""
    monkeypatch.setattr("hatchway.api.server.pinned.version", lambda name: "0.19.0")
    with pytest.raises(EngineUnavailable, match=r"needs hypercorn 0\.18\.\*, found 0\.19\.0"):
        check_hypercorn()
    monkeypatch.undo()
    monkeypatch.delattr("hypercorn.protocol.h2.H2Protocol._send_data")
    with pytest.raises(EngineUnavailable, match=r"has no H2Protocol\._send_data"):
        check_hypercorn()


async def test_a_host_out_of_files(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    """A host that has no file left for a connection is tried again, and those inside are served meanwhile."""
    async with serving() as served:
        client = await served.connect()
        await client.get(b"/hello")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        late = socket.socket()
        with socket.socket() as last:
            resource.setrlimit(resource.RLIMIT_NOFILE, (last.fileno() + 1, hard))
            late.connect(("127.0.0.1", served.port))
            await trio.sleep(1)
            assert (await client.get(b"/hello"))[0] == 200
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        late.sendall(GET % (b"/hello", b"Connection: close\r\n"))
        await trio.sleep(1)
        assert late.recv(65536).startswith(b"HTTP/1.1 200")
        late.close()
    assert {record.message for record in caplog.records} == {"can't accept a connection: Too many open files"}


async def test_a_new_certificate(tmp_path: Path, autojump_clock: MockClock) -> None:
    """A certificate that is replaced counts for the next connection, and those that are open go on."""
    contexts = []
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        contexts.append(server_context(certificate(tmp_path / name)))
    async with serving(tls=lambda: contexts[0]) as served:
        before = await served.connect()
        contexts.pop(0)
        after = await served.connect()
        seen = [client.stream.getpeercert(binary_form=True) for client in (before, after)]
        assert seen[0] != seen[1]
        for client in (before, after):
            assert (await client.get(b"/hello"))[0] == 200


async def test_an_error_of_ours(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake in the server itself costs the connection that met it, and a line in the log."""
    async with serving() as served:
        unlucky, other = await served.connect(), await served.connect()
        with monkeypatch.context() as patch:
            patch.setattr("hatchway.api.server.h1.refusal", lambda *_: {"": 400}["a mistake"])
            await unlucky.send(GET % (b"/hello", b""))
            assert await unlucky.ends()
        assert (await other.get(b"/hello"))[0] == 200
    assert [record.message for record in caplog.records] == ["a connection ended in an error of ours"]
