"""The fast path takes whole plain requests only, reads them as h11 does, and leaves everything else as it came."""

from __future__ import annotations

import random
import time
from functools import partial
from urllib.parse import unquote

import h11
import pytest
import trio
from trio.testing import MockClock

from hatchway.api.http.app import make_app
from hatchway.api.http.request import Request, Response
from hatchway.api.server.h1 import origin_form, refusal
from hatchway.api.server.plain_requests import encode, recognise
from hatchway.api.server.server import FastPath, ServerLimits
from hatchway.engine.engine import Engine
from tests.support.fakes import effort
from tests.support.raw_clients import GET, serving
from tests.support.server_apps import Told, fast_path_of
from tests.support.timing import kept

LIMIT = 16 * 1024
DATE = (b"date", b"Sat, 01 Jan 2000 00:00:00 GMT")
ENDS = (("127.0.0.1", 5), ("127.0.0.1", 7420))

INSPECT = GET % (b"/api/auth/inspect/", b"Authorization: Bearer abc\r\n")
VERIFY = (
    b"POST /v/ HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n" + b'{"nonce":"a"}'
)

TAKEN = [
    INSPECT,
    VERIFY,
    GET % (b"/%2f%c3%a9%ff%", b""),
    GET % (b"/?a=b&c=%20", b"Accept: */*\r\nX-Empty:\r\nX-Spaces: \t a  b \t\r\nx-lower:1\r\n"),
    GET % (b"/", b"X-A: 1\r\n" * 39),
    GET % (b"/", b"Connection: Keep-Alive\r\n"),
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
]

LEFT = [
    b"",
    INSPECT[:-1],
    VERIFY[:-1],
    b"\r\n" + INSPECT,
    b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"get / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.0\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.2\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\nHost: x\n\n",
    GET % (b"http://x/", b""),
    GET % (b"?x", b""),
    GET % (b"*", b""),
    GET % (b"/caf\xc3\xa9", b""),
    GET % (b"/", b"Host: x\r\n"),
    GET % (b"/", b"Connection: close\r\n"),
    GET % (b"/", b"Connection: keep-alive, close\r\n"),
    GET % (b"/", b"Connection: keep-alive, X-A\r\n"),
    GET % (b"/", b"Connection: keep-alive\r\nConnection: close\r\n"),
    GET % (b"/", b"Connection:\r\n"),
    GET % (b"/", b"Transfer-Encoding: chunked\r\n"),
    GET % (b"/", b"Upgrade: h2c\r\n"),
    GET % (b"/", b"Expect: 100-continue\r\n"),
    GET % (b"/", b"Authorization: a\r\nauthorization: a\r\n"),
    GET % (b"/", b"Content-Length: 0\r\n"),
    GET % (b"/", b"X: a\r\n b\r\n"),
    GET % (b"/", b"X : a\r\n"),
    GET % (b"/", b"X: a\x00\r\n"),
    GET % (b"/", b"X: \xe9\r\n"),
    GET % (b"/", b"X: a\rb\r\n"),
    GET % (b"/", b"X-A: 1\r\n" * 40),
    GET % (b"/", b"X: " + b"a" * LIMIT + b"\r\n"),
    b"POST / HTTP/1.1\r\nHost: x\r\n\r\n",
    VERIFY.replace(b"13", b"+13"),
    VERIFY.replace(b"13", b"13, 13"),
    VERIFY.replace(b"Length: 13", b"Length: 13\r\nContent-Length: 13"),
    VERIFY.replace(b"13", b"00000013"),
]


@pytest.mark.parametrize("data", TAKEN)
def test_taken(data: bytes) -> None:
    """A whole plain request is taken, to its last byte and no further."""
    for behind in (b"", data, b"GE", b"\r\n"):
        found = recognise(b"..." + data + behind, 3, LIMIT, ENDS)
        assert found is not None
        assert found[1] == 3 + len(data)
        assert (found[0], len(data)) == by_h11(data + behind)


@pytest.mark.parametrize("line", ["GET /api/auth/challenge/", "POST /api/auth/verify/", "GET /api/auth/inspect/"])
async def test_what_clients_send_never_comes_to_h11(engine: Engine, line: str) -> None:
    """A sign-in and an inspection as browsers and our clients send them: the parser takes them, the gateway answers."""
    gateway = make_app(engine).gateway
    gateway.use_bound((("127.0.0.1", 7420),))
    body = b"{}" if line.startswith("POST") else b""
    more = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
    head = f"{line} HTTP/1.1\r\nHost: 127.0.0.1:7420\r\nAccept: */*\r\nUser-Agent: x\r\n"
    origin = "Origin: http://127.0.0.1:7420\r\nAuthorization: Bearer x\r\n"
    found = recognise(f"{head}{origin}{more}\r\n".encode() + body, 0, LIMIT, ENDS)
    assert found is not None
    response = gateway.handle(found[0])
    assert response is not None
    if not isinstance(response, Response):
        response = await response
    assert response.status in (200, 401, 422)


@pytest.mark.parametrize("data", LEFT)
def test_left(data: bytes) -> None:
    """Whatever is not whole, or not plain, is left to h11."""
    assert recognise(data, 0, LIMIT, ENDS) is None


def by_h11(data: bytes) -> tuple[Request, int] | None:
    """What the server reads through h11: the first request of `data`, or None where it refuses or waits."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=LIMIT)
    connection.receive_data(data)
    body = b""
    try:
        request = connection.next_event()
        if not isinstance(request, h11.Request):
            return None
        head = data[: len(data) - len(connection.trailing_data[0])]
        while not isinstance(event := connection.next_event(), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                return None
            body += bytes(event.data)
    except h11.RemoteProtocolError:
        return None
    headers = [(name.lower(), value) for name, value in request.headers.raw_items()]
    target = origin_form(request.target, headers)
    waits = connection.they_are_waiting_for_100_continue or connection.their_state is not h11.DONE
    if refusal(request, headers, head, LIMIT) is not None or target is None or waits:
        return None
    path, _, query = target.partition(b"?")
    method, text = request.method.decode(), unquote(path.decode("ascii"))
    return Request(method, text, query, tuple(headers), body, *ENDS), len(data) - len(connection.trailing_data[0])


PIECES = [
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b"\t",
        b"\0",
        b":",
        b"\x0b",
        b"\x0c",
        b"\x1c",
        b"\x85",
        b"\xa0",
        b"\x7f",
        b"\xff",
        b",",
    ),
    *(
        b"\r\n\r\n",
        b"\n\n",
        b"\r\n ",
        b"\r\n\t",
        b" HTTP/1.1",
        b" HTTP/1.0",
        b"GET ",
        b"POST ",
        b"/",
        b"*",
        b"http://x",
    ),
    *(b"Host: x\r\n", b"Connection: close\r\n", b"Transfer-Encoding: chunked\r\n", b"Content-Length: 5\r\n"),
    *(b"Content-Length: 13\r\n", b"Expect: 100-continue\r\n", b"Upgrade: h2c\r\n", b"Authorization: Bearer x\r\n"),
    *(
        b"Connection: keep-alive\r\n",
        b"keep-alive",
        b"close",
        b"X: y\r\n",
        b"-1",
        b"+1",
        b"0x5",
        b"1_3",
        b"3",
        b"13",
        b"0",
        b"9" * 25,
        b"X: " + b"a" * 16300 + b"\r\n",
    ),
]


def mutant(chance: random.Random) -> bytes:
    """One to four plain requests with up to four wounds."""
    data = b"".join(chance.choices(TAKEN, k=chance.randint(1, 2)))
    for _ in range(chance.randint(0, 4)):
        begin = chance.randrange(len(data) + 1)
        end = min(len(data), begin + chance.choice((0, 0, 1, 1, 2, 5, 20)))
        wound = chance.choice((b"", chance.choice(PIECES), bytes([chance.randrange(256)]), data[begin:end] * 2))
        data = data[:begin] + wound + data[end:]
    return data


@pytest.mark.fuzz
def test_no_difference_from_h11() -> None:
    """What the fast path takes of mutated requests, h11 reads the same; 10,000 of them, times HATCHWAY_EFFORT."""
    seed = random.SystemRandom().randrange(2**32)
    chance, taken, tries = random.Random(seed), 0, int(10_000 * effort())
    for _ in range(tries):
        data = mutant(chance)
        found = recognise(data, 0, LIMIT, ENDS)
        if found is not None:
            taken += 1
            assert found == by_h11(data), (seed, data)
    assert taken > tries / 20


def given_up(data: bytes) -> float:
    """Seconds of a core that it takes."""
    before = time.thread_time()
    assert recognise(data, 0, LIMIT, ENDS) is None
    return time.thread_time() - before


def test_no_request_is_slow() -> None:
    """A request made to be looked at again and again is given up as fast as it is long."""
    for piece in (b"X:\r\n", b"X: y \r\n", b":", b" ", b"\t ", b"a", b"a: \t"):
        data = b"GET / HTTP/1.1\r\nHost: x\r\n" + piece * (60_000 // len(piece))
        kept(0.05, partial(given_up, data))


def test_encode_as_h11() -> None:
    """The fast path's answers look as h11 writes them."""
    reply = Response(401, b"{}", ((b"content-type", b"application/json"), (b"WWW-Authenticate", b"Bearer")))
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(INSPECT)
    connection.next_event()
    headers = [*reply.headers, (b"content-length", b"2"), DATE]
    written = connection.send(h11.Response(status_code=401, headers=headers)) or b""
    assert encode(reply, DATE, closing=False) == written + b"{}"
    assert b"\r\nconnection: close\r\n\r\n" in encode(reply, DATE, closing=True)


@pytest.mark.parametrize("header", [(b"x", b"a\r\nset-cookie: b"), (b"x", b"a\nb"), (b"x\r", b"a")])
def test_no_split_answer(header: tuple[bytes, bytes]) -> None:
    """A header that holds a line end is an error, not two headers."""
    with pytest.raises(ValueError, match="line end"):
        encode(Response(200, b"", (header,)), DATE, closing=False)


async def test_taken_and_left(autojump_clock: MockClock) -> None:
    """On one connection, what the fast path takes and what it leaves are answered in the order they were asked in."""
    async with serving(fast_path=fast_path_of) as served:
        client = await served.connect()
        close = GET % (b"/hello", b"Connection: close\r\n")
        plain, other = GET % (b"/hello", b""), GET % (b"/nowhere", b"")
        await client.send(plain * 2 + other + plain + GET % (b"/peer", b"") + plain[:9])
        assert [(await client.answer())[0] for _ in range(5)] == [200, 200, 404, 200, 200]
        await client.send(plain[9:] + close + plain)
        assert (await client.rest()).count(b"hello") == 2
        assert served.told.taken == 2


async def test_an_answer_that_waits(autojump_clock: MockClock) -> None:
    """A fast path may take longer than the idle time, and the connection goes on; the shutdown waits for it."""
    async with serving(fast_path=fast_path_of) as served:
        client = await served.connect()
        before = trio.current_time()
        assert (await client.get(b"/wait"))[0] == 200
        assert trio.current_time() - before == 70
        assert (await client.get(b"/hello"))[0] == 200
        await trio.sleep(59)
        assert (await client.get(b"/hello"))[0] == 200
        await client.send(GET % (b"/wait", b""))
        await trio.sleep(68)
        assert await served.stop() == pytest.approx(2, abs=0.1)
        status, headers, _ = await client.answer()
        assert (status, headers[b"connection"]) == (200, b"close")
        assert await client.ends()


async def test_a_lane_that_fails(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    """A fast path's mistake is a bare 500, the end of that connection and one line in the log."""

    def broken(request: Request) -> Response | None:
        if request.path == "/fail":
            raise ValueError("a handler's mistake")
        return None

    def fast_path(told: Told) -> FastPath:
        return broken

    async with serving(fast_path=fast_path) as served:
        client = await served.connect()
        await client.send(GET % (b"/fail", b"") * 3)
        answer = await client.rest()
        assert answer.startswith(b"HTTP/1.1 500 ")
        assert answer.count(b"HTTP/1.1") == 1
        assert (await (await served.connect()).get(b"/hello"))[0] == 200
    assert [record.message for record in caplog.records] == ["the fast path failed at '/fail'"]


async def test_the_same_again(autojump_clock: MockClock) -> None:
    """A request that is repeated byte by byte is taken each time, one that differs anew, under the limit of now."""
    limits = ServerLimits()
    async with serving(fast_path=fast_path_of, limits=lambda: limits) as served:
        client = await served.connect()
        for number, path in enumerate([b"/hello", b"/hello", b"/hello", b"/nowhere", b"/hello", b"/peer", b"/hello"]):
            assert (await client.get(path))[0] == (404 if number == 3 else 200)
        assert served.told.taken == 6
        limits = ServerLimits(header_bytes=10)
        await trio.sleep(2)
        assert (await client.get(b"/hello"))[0] == 431
