"""HTTP manners below the app: deadlines, sizes, and the requests that two parsers could read differently."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from hatchway.api.server.server import ServerLimits
from tests.support.raw_clients import GET, Client, Served, serving
from tests.support.server_apps import fast_path_of

POST = b"POST /echo HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the certificate lies."""
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(params=["plain", "tls", "fast plain", "fast tls"])
async def served(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Served]:
    """A bare app over each transport, alone and behind a fast path."""
    fast_path = fast_path_of if "fast" in request.param else None
    async with serving(certified=folder if "tls" in request.param else None, fast_path=fast_path) as served:
        yield served


async def test_a_silent_client(served: Served, autojump_clock: MockClock) -> None:
    """A client that connects and says nothing is closed after 60 seconds, without a word."""
    client = await served.connect()
    before = trio.current_time()
    assert await client.rest() == b""
    assert trio.current_time() - before == pytest.approx(60, abs=1)


async def test_half_a_head(served: Served, autojump_clock: MockClock) -> None:
    """Headers that aren't whole 10 seconds after their first byte are answered 408, however steadily they drip."""
    client = await served.connect()
    await trio.sleep(30)
    before = trio.current_time()
    await client.send(b"GET /hello HTTP/1.1\r\n")
    for _ in range(9):
        await trio.sleep(1)
        await client.send(b"X-Drip: 1\r\n")
    answer = await client.rest()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert trio.current_time() - before == pytest.approx(10, abs=0.1)


async def test_a_head_just_in_time(served: Served, autojump_clock: MockClock) -> None:
    """Idle time does not count for the headers' ten seconds, nor they for the idle time."""
    client = await served.connect()
    await trio.sleep(55)
    await client.send(b"GET /hello HTTP/1.1\r\n")
    await trio.sleep(9)
    await client.send(b"Host: x\r\n\r\n")
    assert (await client.answer())[0] == 200


@pytest.mark.parametrize(
    "begun", [b"Content-Length: 10\r\n\r\nhalf", b"Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"]
)
async def test_half_a_body(served: Served, autojump_clock: MockClock, begun: bytes) -> None:
    """A body that isn't whole after 15 seconds (and a half, the app's) is answered 408, and its app is told."""
    client = await served.connect()
    before = trio.current_time()
    await client.send(POST + begun)
    answer = await client.rest()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert trio.current_time() - before == pytest.approx(15.5, abs=0.1)
    await trio.sleep(0.1)
    assert served.told.words == ["left"]


async def test_a_tls_handshake_that_stalls(folder: Path, autojump_clock: MockClock) -> None:
    """A handshake has the headers' ten seconds from its first byte; before that the connection is an idle one."""
    async with serving(certified=folder) as served:
        client = Client(await trio.open_tcp_stream("127.0.0.1", served.port))
        await trio.sleep(50)
        await client.send(b"\x16\x03\x01")
        before = trio.current_time()
        assert await client.ends()
        assert trio.current_time() - before == pytest.approx(10, abs=0.1)
        await client.stream.aclose()


async def test_shutdown_in_a_tls_handshake(folder: Path, autojump_clock: MockClock) -> None:
    """A handshake that stalls does not hold the shutdown up."""
    async with serving(certified=folder) as served:
        client = Client(await trio.open_tcp_stream("127.0.0.1", served.port))
        await trio.sleep(1)
        assert await served.stop() < 0.2
        assert await client.ends()
        await client.stream.aclose()


async def test_plain_http_on_the_tls_port(folder: Path, autojump_clock: MockClock) -> None:
    """Plain HTTP is not answered on the TLS port, and does no harm there."""
    async with serving(certified=folder) as served:
        client = Client(await trio.open_tcp_stream("127.0.0.1", served.port))
        await client.send(GET % (b"/hello", b""))
        with trio.fail_after(1):
            assert b"hello" not in await client.rest()
        await client.stream.aclose()
        assert (await (await served.connect()).get(b"/hello"))[0] == 200


async def test_limits_reload(autojump_clock: MockClock) -> None:
    """A changed limit counts for the connections that are open already."""
    limits = ServerLimits()
    async with serving(limits=lambda: limits) as served:
        client = await served.connect()
        await client.get(b"/hello")
        limits = ServerLimits(idle_seconds=5, header_bytes=100)
        before = trio.current_time()
        assert await client.ends()
        assert trio.current_time() - before == pytest.approx(5, abs=1)
        client = await served.connect()
        assert (await client.get(b"/" + bytes(b"a" * 100)))[0] == 431


def head(size: int) -> bytes:
    """A request head of exactly that many bytes."""
    begin = b"GET /hello HTTP/1.1\r\nHost: x\r\nX: "
    return begin + b"a" * (size - len(begin) - 4) + b"\r\n\r\n"


@pytest.mark.parametrize("at_once", [True, False])
async def test_header_size(served: Served, autojump_clock: MockClock, at_once: bool) -> None:
    """Headers are counted exactly: 16,384 bytes pass, one more is 431, in one piece or in many."""
    for size, status in ((16384, 200), (16385, 431), (17000, 431), (200_000, 431)):
        client = await served.connect()
        for begin in range(0, size, size if at_once else 1000):
            await client.send(head(size)[begin : begin + (size if at_once else 1000)])
        assert (await client.answer())[0] == status
        assert status == 200 or await client.ends()


async def test_header_size_of_a_second_request(served: Served, autojump_clock: MockClock) -> None:
    """Each request's headers are counted alone."""
    client = await served.connect()
    await client.send(head(16384) + head(16384) + head(16385))
    assert [(await client.answer())[0] for _ in range(3)] == [200, 200, 431]
    assert await client.ends()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        pytest.param(POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, id="CL and TE"),
        pytest.param(POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400, id="two CL"),
        pytest.param(POST + b"Content-Length: +3\r\n\r\nabc", 400, id="CL +3"),
        pytest.param(POST + b"Content-Length: -1\r\n\r\n", 400, id="CL -1"),
        pytest.param(POST + b"Transfer-Encoding: gzip\r\n\r\n", 501, id="TE gzip"),
        pytest.param(POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400, id="bad chunk"),
        pytest.param(b"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, id="TE in 1.0"),
        pytest.param(GET % (b"/hello", b"X: a\r\n b\r\n"), 400, id="obs-fold"),
        pytest.param(GET % (b"/hello", b"X: a\r\n\tb\r\n"), 400, id="obs-fold by tab"),
        pytest.param(b"GET /hello HTTP/1.1\nHost: x\n\n", 400, id="bare LF"),
        pytest.param(b"GET /hello HTTP/1.1\r\nHost: x\r\nX: y\n\r\n", 400, id="one bare LF"),
        pytest.param(b"GET /hello HTTP/1.1\r\nHost: x\r\nX: y\rz\r\n\r\n", 400, id="bare CR"),
        pytest.param(b"GET /hello HTTP/1.1\r\nHost: x\r\nX: y\0z\r\n\r\n", 400, id="NUL"),
        pytest.param(b"GET /hello HTTP/1.1\r\nHost : x\r\n\r\n", 400, id="space before colon"),
        pytest.param(b"GET /hello HTTP/1.1\r\n\r\n", 400, id="no Host"),
        pytest.param(b"GET /hello HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", 400, id="two Hosts"),
        pytest.param(b"get /hello HTTP/1.1\r\nHost: x\r\n\r\n", 501, id="get"),
        pytest.param(b"Post /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 501, id="Post"),
        pytest.param(b"GET /hello HTTP/1.2\r\nHost: x\r\n\r\n", 505, id="HTTP/1.2"),
        pytest.param(b"GET /hello HTTP/3.0\r\nHost: x\r\n\r\n", 505, id="HTTP/3.0"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, id="h2 prior knowledge"),
        pytest.param(GET % (b"?x", b""), 400, id="query alone"),
        pytest.param(GET % (b"*", b""), 400, id="star"),
        pytest.param(GET % (b"hello", b""), 400, id="no slash"),
        pytest.param(GET % (b"http://other/hello", b""), 400, id="absolute form of another host"),
        pytest.param(GET % (b"http:///hello", b""), 400, id="absolute form of no host"),
        pytest.param(b"CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n", 400, id="CONNECT"),
        pytest.param(b"GET  HTTP/1.1\r\nHost: x\r\n\r\n", 400, id="empty target"),
        pytest.param(b"\r\n\r\n", 400, id="empty line"),
        pytest.param(b"\x16\x03\x01\x02\0\1\0\1\xfc\3\3", 400, id="TLS hello"),
        pytest.param(b"GET /caf\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n", 400, id="raw UTF-8 in the path"),
    ],
)
async def test_refused(served: Served, autojump_clock: MockClock, request_bytes: bytes, status: int) -> None:
    """What is malformed or could be read in two ways is refused without a body, and ends the connection."""
    client = await served.connect()
    await client.send(request_bytes)
    before = trio.current_time()
    answer = await client.rest()
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert answer.endswith(b"\r\n\r\n")
    assert b"connection: close" in answer.lower()
    assert trio.current_time() == before
    assert served.told.words in ([], ["left"])


@pytest.mark.parametrize("target", [b"http://x/hello", b"HTTP://X/hello"])
async def test_absolute_form(served: Served, autojump_clock: MockClock, target: bytes) -> None:
    """A target in absolute form is taken where it names the host that Host names (RFC 9112, 3.2.2)."""
    client = await served.connect()
    assert (await client.get(target))[2] == b"hello"
    assert (await client.get(b"http://x"))[0] == 404


async def test_h2c_upgrade(served: Served, autojump_clock: MockClock) -> None:
    """An upgrade is ignored: the request is answered, and the connection goes on."""
    client = await served.connect()
    upgrade = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA")
    assert (await client.get(b"/hello", *upgrade))[::2] == (200, b"hello")
    websocket = (b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Key: x", b"Sec-WebSocket-Version: 13")
    assert (await client.get(b"/hello", *websocket))[::2] == (200, b"hello")
    assert (await client.get(b"/hello"))[0] == 200


async def test_a_body_nobody_reads(served: Served, autojump_clock: MockClock) -> None:
    """A body that the app leaves unread is held back, not kept; the answer arrives, and the connection ends."""
    client = await served.connect()
    await client.send(b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + bytes(500_000))
    status, headers, _ = await client.answer()
    assert (status, headers[b"connection"]) == (404, b"close")
    with trio.fail_after(3):
        assert await client.ends()


async def test_a_body_for_an_app_that_waits(autojump_clock: MockClock) -> None:
    """Until the app reads, a client can send what the buffers take and no more."""
    async with serving() as served:
        client = await served.connect()
        await client.send(b"POST /late HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n")
        with trio.move_on_after(4) as sending:
            await client.send(bytes(50_000_000))
        assert sending.cancelled_caught
        assert (await client.answer())[2] == b"late"
