"""What is over is freed at once: the garbage collector, which comes rarely, is not waited for."""

from __future__ import annotations

import gc
import ssl
from collections.abc import Iterator
from pathlib import Path

import h2.connection
import pytest
import trio
from trio.testing import MockClock

from hatchway.api.server.connection import Connection
from hatchway.engine.base.errors import TooManyRequests
from tests.server.test_server_h2 import Streams
from tests.support.fakes import Browser
from tests.support.raw_clients import Served, serving


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Nothing is collected while the test runs."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.collect()


def left() -> list[object]:
    """The server's parts of connections that are in memory."""
    return [
        found
        for found in gc.get_objects()
        if isinstance(found, Connection | h2.connection.H2Connection | ssl.SSLObject)
        and getattr(found, "server_side", True)
        and not (isinstance(found, h2.connection.H2Connection) and found.config.client_side)
    ]


def refusals() -> list[TooManyRequests]:
    """Those that are in memory."""
    return [found for found in gc.get_objects() if isinstance(found, TooManyRequests)]


async def ends(served: Served) -> None:
    """Leave with every client, and let the server see it."""
    for client in served.clients:
        await trio.aclose_forcefully(client.stream)
    await trio.sleep(1)


@pytest.mark.parametrize("alpn", ["http/1.1", "h2"])
async def test_a_connection_that_is_over_is_freed(
    autojump_clock: MockClock, tmp_path: Path, uncollected: None, alpn: str
) -> None:
    """Also what OpenSSL keeps for it, and what HTTP/2 does; so is one that never came through its handshake."""
    async with serving(certified=tmp_path) as served:
        client = await served.connect(alpn)
        if alpn == "h2":
            streams = Streams(client)
            await streams.send()
            assert (await streams.answer(await streams.request(b"/hello")))[0] == 200
        else:
            assert (await client.get(b"/hello"))[0] == 200
        half = await trio.open_tcp_stream("127.0.0.1", served.port)
        await half.send_all(b"\x16\x03\x01")
        await trio.sleep(1)
        assert len([one for one in left() if isinstance(one, Connection)]) == 2
        await half.aclose()
        await ends(served)
        assert not left()


@pytest.mark.virtual_time
async def test_a_refused_sign_in_leaves_no_garbage(browser: Browser, uncollected: None) -> None:
    """Thousands a second are for strangers to send: each would hold its request, its frames and its errors."""
    before = {id(one): one for one in refusals()}  # held by other tests' modules, for as long as the process lives
    body = {"nonce": "no nonce of ours", "signature": "AAAA"}
    statuses = [(await browser.post("/api/auth/verify/", body)).status for _ in range(100)]
    assert statuses[-1] == 429
    assert not [one for one in refusals() if id(one) not in before]
