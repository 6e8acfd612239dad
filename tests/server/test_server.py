"""The server's promises on answers and connection ends, by raw bytes: for a bare ASGI app and Quart, plain and TLS."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hatchway.api.server.server import ServerLimits
from tests.support.raw_clients import GET, Served, serving
from tests.support.server_apps import Told, bare_app, fast_path_of, quart_app

BIG = 8 * 1024 * 1024


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the certificate lies."""
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(params=["bare plain", "bare tls", "quart plain", "quart tls", "fast plain", "fast tls"])
async def served(request: pytest.FixtureRequest, folder: Path, autojump_clock: MockClock) -> AsyncIterator[Served]:
    """Each app, and the bare one behind a fast path, over each transport."""
    make: Callable[[Told], Any] = quart_app if "quart" in request.param else bare_app
    fast_path = fast_path_of if "fast" in request.param else None
    async with serving(make, certified=folder if "tls" in request.param else None, fast_path=fast_path) as served:
        yield served


async def test_an_answer(served: Served, autojump_clock: MockClock) -> None:
    """An answer has its body, its date and no server header."""
    client = await served.connect()
    status, headers, body = await client.get(b"/hello")
    assert (status, body) == (200, b"hello")
    assert headers[b"date"].endswith(b" GMT")
    assert b"server" not in headers


async def test_keep_alive(served: Served, autojump_clock: MockClock) -> None:
    """A connection serves many requests, and is closed when it has been idle for 60 seconds."""
    client = await served.connect()
    for _ in range(5):
        await trio.sleep(59)
        assert (await client.get(b"/hello"))[2] == b"hello"
    before = trio.current_time()
    assert await client.ends()
    assert trio.current_time() - before == pytest.approx(60, abs=1)


@pytest.mark.parametrize(
    "request_line", [b"GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close", b"GET /hello HTTP/1.0"]
)
async def test_close(served: Served, autojump_clock: MockClock, request_line: bytes) -> None:
    """`Connection: close` and HTTP/1.0 end the connection with the answer, not by a deadline."""
    client = await served.connect()
    before = trio.current_time()
    await client.send(request_line + b"\r\n\r\n")
    answer = await client.rest()
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"hello")
    assert b"connection: close" in answer.lower()
    assert trio.current_time() == before


async def test_bytes_after_the_last_request(served: Served, autojump_clock: MockClock) -> None:
    """What is sent after `Connection: close` is ignored; the answer arrives all the same."""
    client = await served.connect()
    await client.send(GET % (b"/hello", b"Connection: close\r\n") + GET % (b"/hello", b""))
    answer = await client.rest()
    assert (answer.count(b"HTTP/1.1 "), answer.count(b"hello")) == (1, 1)


async def test_pipelining(served: Served, autojump_clock: MockClock) -> None:
    """Requests sent at once are answered in order."""
    client = await served.connect()
    await client.send(b"".join(GET % (path, b"") for path in [b"/hello", b"/nowhere"] * 25))
    assert [(await client.answer())[0] for _ in range(50)] == [200, 404] * 25


async def test_split(served: Served, autojump_clock: MockClock) -> None:
    """A request may come byte by byte."""
    client = await served.connect()
    for byte in GET % (b"/hello", b""):
        await client.send(bytes([byte]))
        await trio.sleep(0.01)
    assert (await client.answer())[2] == b"hello"


async def test_body(served: Served, autojump_clock: MockClock) -> None:
    """A body arrives whole, by length or in chunks, and `100 Continue` asks for it."""
    client = await served.connect()
    await client.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n" + b"a" * 200000)
    assert (await client.answer())[2] == b"a" * 200000
    await client.send(
        b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    )
    assert (await client.answer())[2] == b"abcde"
    await client.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    assert (await client.some()).startswith(b"HTTP/1.1 100 ")
    await client.send(b"ok")
    assert (await client.answer())[2] == b"ok"


async def test_stream(served: Served, autojump_clock: MockClock) -> None:
    """The first bytes of a stream are on the wire at once, and its end says so."""
    client = await served.connect()
    before = trio.current_time()
    await client.send(GET % (b"/stream", b""))
    assert b"one " in await client.some()
    assert trio.current_time() == before
    rest = b""
    while not rest.endswith(b"0\r\n\r\n"):
        rest += await client.some()
    assert b"two" in rest
    assert trio.current_time() - before == 2


async def test_big_answer(served: Served, autojump_clock: MockClock) -> None:
    """An answer larger than any buffer arrives whole, and the connection goes on."""
    client = await served.connect()
    assert (await client.get(b"/big"))[2] == bytes(BIG)
    assert (await client.get(b"/hello"))[2] == b"hello"


async def test_hang_up(served: Served, autojump_clock: MockClock) -> None:
    """A client that leaves cancels what is held for it, promptly."""
    client = await served.connect()
    await client.send(GET % (b"/hold", b""))
    assert b"held " in await client.some()
    before = trio.current_time()
    await client.stream.aclose()
    while "left" not in served.told.words:
        await trio.sleep(0.01)
    assert trio.current_time() - before <= 0.2


async def test_hang_up_behind_a_stray_byte(served: Served, autojump_clock: MockClock) -> None:
    """A byte sent after the request does not hide that its client has left."""
    client = await served.connect()
    await client.send(GET % (b"/hold", b"") + b"G")
    assert b"held " in await client.some()
    await client.stream.aclose()
    with trio.fail_after(1):
        while "left" not in served.told.words:
            await trio.sleep(0.01)


async def test_half_close(served: Served, autojump_clock: MockClock) -> None:
    """A client that has said its last word (`nc -N`) gets the answers it asked for, then the end.

    Over TLS that word is a close_notify; a bare FIN there is a cut connection (RFC 8446, 6.1).
    """
    client = await served.connect()
    await client.send(GET % (b"/hello", b"") * 3)
    if served.tls:
        await client.stream.transport_stream.send_eof()
        with trio.fail_after(1):
            await client.rest()
    else:
        await client.stream.send_eof()
        assert (await client.rest()).count(b"hello") == 3


async def test_half_close_of_a_held_answer(served: Served, autojump_clock: MockClock) -> None:
    """For an answer that is held, the last word counts as a hang-up."""
    client = await served.connect()
    await client.send(GET % (b"/hold", b""))
    await client.some()
    transport = client.stream.transport_stream if served.tls else client.stream
    await transport.send_eof()
    with trio.fail_after(1):
        await client.rest()
        while "left" not in served.told.words:
            await trio.sleep(0.01)


async def test_shutdown_with_an_idle_client(served: Served, autojump_clock: MockClock) -> None:
    """An idle client does not hold the shutdown up, before or after a request."""
    silent, idle = await served.connect(), await served.connect()
    await idle.get(b"/hello")
    assert await served.stop() < 0.2
    assert await silent.ends()
    assert await idle.ends()


async def test_shutdown_with_a_held_stream(served: Served, autojump_clock: MockClock) -> None:
    """A held stream that watches for the shutdown sends its last item, and its connection ends."""
    client = await served.connect()
    await client.send(GET % (b"/hold", b""))
    await client.some()
    assert await served.stop() < 0.2
    answer = await client.rest()
    assert b"last" in answer
    assert answer.endswith(b"0\r\n\r\n")


async def test_shutdown_with_a_deaf_stream(served: Served, autojump_clock: MockClock) -> None:
    """A stream that never ends by itself is cancelled after `shutdown_seconds`."""
    client = await served.connect()
    await client.send(GET % (b"/deaf", b""))
    await client.some()
    assert 5 <= await served.stop() <= 5.3
    assert served.told.words == ["cancelled"]


async def test_shutdown_with_a_client_that_does_not_read(served: Served, autojump_clock: MockClock) -> None:
    """A client that takes nothing of its answer can't hold the shutdown up."""
    client = await served.connect()
    await client.send(GET % (b"/big", b""))
    await trio.sleep(1)
    assert 5 <= await served.stop() <= 5.5


async def test_shutdown_refuses_newcomers(served: Served, autojump_clock: MockClock) -> None:
    """Nobody is let in once the engine is ending."""
    client = await served.connect()
    await client.send(GET % (b"/deaf", b""))
    await client.some()
    served.told.shutdown.set()
    await trio.sleep(0.1)
    with pytest.raises(OSError, match=r"refused|connect"):
        await trio.open_tcp_stream("127.0.0.1", served.port)


async def test_a_client_that_does_not_read(served: Served, autojump_clock: MockClock) -> None:
    """A write that makes no progress for 30 seconds ends its connection, and nobody else waits for it.

    The kernel moves bytes on in real time, which may pass for progress once.
    """
    deaf, other = await served.connect(), await served.connect()
    await deaf.send(GET % (b"/big", b""))
    before = trio.current_time()
    await trio.sleep(29)
    assert (await other.get(b"/hello"))[2] == b"hello"
    await trio.sleep(33)
    received = await deaf.rest()
    assert len(received) < BIG
    assert trio.current_time() - before < 63


async def test_a_client_that_reads_slowly(served: Served, autojump_clock: MockClock) -> None:
    """A client that takes something now and then keeps its connection."""
    slow = await served.connect()
    await slow.send(GET % (b"/big", b""))
    received = 0
    while received < BIG:
        await trio.sleep(20)
        more = received + 2 * 1024 * 1024
        while received < min(more, BIG):
            data = await slow.some()
            assert data
            received += len(data)
    assert received + len(slow.buffer) >= BIG


async def test_peer(served: Served, autojump_clock: MockClock) -> None:
    """The app sees the address of the socket's peer, and no header changes it."""
    client = await served.connect()
    name = (client.stream.transport_stream if served.tls else client.stream).socket.getsockname()
    body = (await client.get(b"/peer", b"X-Forwarded-For: 10.9.9.9", b"Forwarded: for=10.9.9.9"))[2]
    assert body == repr(name).encode()


@pytest.mark.parametrize("moment", ["connect", "half head", "half body", "answer", "held", "close"])
async def test_a_dying_client(served: Served, autojump_clock: MockClock, moment: str) -> None:
    """A client that dies (RST) at any moment ends nothing but its own connection."""
    client = await served.connect()
    said = {
        "connect": b"",
        "half head": b"GET /hel",
        "half body": b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc",
        "answer": GET % (b"/big", b""),
        "held": GET % (b"/hold", b""),
        "close": GET % (b"/hello", b"Connection: close\r\n"),
    }
    await client.send(said[moment] or b"")
    await trio.sleep(0.1)
    sock = (client.stream.transport_stream if served.tls else client.stream).socket
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    sock.close()
    await trio.sleep(1)
    assert (await (await served.connect()).get(b"/hello"))[2] == b"hello"
    assert await served.stop() < 0.2


async def test_max_connections(served: Served, folder: Path, autojump_clock: MockClock) -> None:
    """Where all of `max_connections` are being answered, a client is told 503 and when to come again; those inside are
    not disturbed."""
    limits = ServerLimits(max_connections=2)
    async with serving(limits=limits, certified=folder if served.tls else None) as small:
        inside = [await small.connect(), await small.connect()]
        for client in inside:
            await client.send(GET % (b"/hold", b""))
            await client.some()
        outside = await small.connect()
        await outside.send(GET % (b"/hello", b""))
        status, headers, _ = await outside.answer()
        assert (status, headers[b"retry-after"], headers[b"connection"]) == (503, b"5", b"close")
        assert await outside.ends()
        assert small.told.words == ["held", "held"]
        await inside[1].stream.aclose()
        await trio.sleep(1)
        assert (await (await small.connect()).get(b"/hello"))[0] == 200
