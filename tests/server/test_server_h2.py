"""The server's promises over HTTP/2, by a client of frames: answers, ends, refusals, other streams unharmed."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
import pytest
import trio
from trio.testing import MockClock

from hatchway.engine.base.ticks import loop_ticks
from tests.support.raw_clients import Client, Served, serving
from tests.support.server_apps import Told, bare_app, quart_app


class Streams:
    """An HTTP/2 client: what has come, by stream."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.wire = h2.connection.H2Connection(
            h2.config.H2Configuration(header_encoding=None, validate_outbound_headers=False)
        )
        self.wire.initiate_connection()
        self.status: dict[int, int] = {}
        self.headers: dict[int, dict[bytes, bytes]] = {}
        self.body: dict[int, bytes] = {}
        self.ended: dict[int, str] = {}
        self.open = True
        self.windows = True

    async def send(self) -> None:
        """Send what the connection has to say."""
        await self.client.send(self.wire.data_to_send())

    async def request(self, path: bytes, method: bytes = b"GET", *more: tuple[bytes, bytes], end: bool = True) -> int:
        """Begin a request; gives its stream."""
        stream = self.wire.get_next_available_stream_id()
        fields = [(b":method", method), (b":scheme", b"https"), (b":authority", b"x"), (b":path", path), *more]
        self.wire.send_headers(stream, fields, end_stream=end)
        self.body[stream] = b""
        await self.send()
        return stream

    async def read(self) -> None:
        """Take what comes next."""
        data = await self.client.some()
        self.open = bool(data)
        for event in self.wire.receive_data(data) if data else []:
            if isinstance(event, h2.events.ResponseReceived):
                self.headers[event.stream_id] = dict(event.headers)
                self.status[event.stream_id] = int(dict(event.headers)[b":status"])
            elif isinstance(event, h2.events.DataReceived):
                self.body[event.stream_id] += event.data
                if self.windows:
                    self.wire.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                self.ended.setdefault(event.stream_id, "whole")
            elif isinstance(event, h2.events.StreamReset):
                self.ended.setdefault(event.stream_id, f"reset {event.error_code!r}")
            elif isinstance(event, h2.events.ConnectionTerminated):
                self.ended[0] = "goaway"
        if self.open:
            await self.send()

    async def answer(self, stream: int) -> tuple[int, bytes]:
        """Wait for the end of one answer: status and body."""
        while stream not in self.ended and self.open:
            await self.read()
        return self.status.get(stream, 0), self.body[stream]

    async def closed(self) -> bool:
        """Wait until the server closes the connection."""
        while self.open:
            await self.read()
        return True


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the certificate lies."""
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(params=["bare", "quart"])
async def served(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Served]:
    """Each app, over TLS."""
    make: Callable[[Told], Any] = bare_app if request.param == "bare" else quart_app
    async with serving(make, certified=folder) as served:
        yield served


async def connect(served: Served) -> Streams:
    """A new HTTP/2 connection."""
    streams = Streams(await served.connect("h2"))
    await streams.send()
    return streams


async def test_answers(served: Served, autojump_clock: MockClock) -> None:
    """Many requests at once are all answered, with a date and no server header."""
    streams = await connect(served)
    asked = [await streams.request(b"/hello") for _ in range(32)]
    assert [await streams.answer(stream) for stream in asked] == [(200, b"hello")] * 32
    assert b"date" in streams.headers[1]
    assert b"server" not in streams.headers[1]


async def test_body(served: Served, autojump_clock: MockClock) -> None:
    """A body arrives whole."""
    streams = await connect(served)
    stream = await streams.request(b"/echo", b"POST", end=False)
    for part in (b"ab", b"cd"):
        streams.wire.send_data(stream, part * 5000)
        await streams.send()
        await trio.sleep(1)
    streams.wire.end_stream(stream)
    await streams.send()
    assert await streams.answer(stream) == (200, b"ab" * 5000 + b"cd" * 5000)


async def test_big_answer(served: Served, autojump_clock: MockClock) -> None:
    """An answer larger than any window arrives whole."""
    streams = await connect(served)
    assert await streams.answer(await streams.request(b"/big")) == (200, bytes(8 * 1024 * 1024))


async def test_idle(served: Served, autojump_clock: MockClock) -> None:
    """An idle connection is closed after 60 seconds with a GOAWAY, before a request and after one."""
    for asked in (False, True):
        streams = await connect(served)
        if asked:
            await streams.answer(await streams.request(b"/hello"))
        before = trio.current_time()
        assert await streams.closed()
        assert trio.current_time() - before == pytest.approx(60, abs=1)
        assert streams.ended[0] == "goaway"


async def test_idle_after_a_reset(served: Served, autojump_clock: MockClock) -> None:
    """A stream that its client has taken back is over: its app is told, and the connection can be idle."""
    streams = await connect(served)
    stream = await streams.request(b"/hold")
    while not streams.body[stream]:
        await streams.read()
    streams.wire.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
    await streams.send()
    before = trio.current_time()
    while "left" not in served.told.words:
        await trio.sleep(0.01)
    assert trio.current_time() - before < 0.1
    assert await streams.closed()
    assert trio.current_time() - before == pytest.approx(60, abs=1)


async def test_hang_up(served: Served, autojump_clock: MockClock) -> None:
    """A client that leaves cancels what is held for it."""
    streams = await connect(served)
    stream = await streams.request(b"/hold")
    while not streams.body[stream]:
        await streams.read()
    await streams.client.stream.aclose()
    with trio.fail_after(0.2):
        while "left" not in served.told.words:
            await trio.sleep(0.01)


async def test_shutdown(served: Served, autojump_clock: MockClock) -> None:
    """An idle connection and a held stream that watches end at once, the stream with its last item."""
    idle, streams = await connect(served), await connect(served)
    await idle.answer(await idle.request(b"/hello"))
    stream = await streams.request(b"/hold")
    while not streams.body[stream]:
        await streams.read()
    assert await served.stop() < 0.2
    assert await streams.answer(stream) == (200, b"held last")
    assert await streams.closed()
    assert await idle.closed()


async def test_shutdown_with_a_deaf_stream(served: Served, autojump_clock: MockClock) -> None:
    """A stream that never ends by itself is cancelled after `shutdown_seconds`."""
    streams = await connect(served)
    stream = await streams.request(b"/deaf")
    while not streams.body[stream]:
        await streams.read()
    assert 5 <= await served.stop() <= 5.3
    assert served.told.words == ["cancelled"]


async def test_a_client_that_opens_no_window(served: Served, autojump_clock: MockClock) -> None:
    """A client that reads but takes nothing of an answer loses that stream after 30 seconds, and no other."""
    streams = await connect(served)
    streams.windows = False
    stream = await streams.request(b"/big")
    before = trio.current_time()
    await streams.answer(stream)
    assert "reset" in streams.ended[stream]
    assert trio.current_time() - before == pytest.approx(30, abs=1)
    streams.wire.increment_flow_control_window(65536)
    assert await streams.answer(await streams.request(b"/hello")) == (200, b"hello")


async def test_a_client_that_does_not_read(served: Served, autojump_clock: MockClock) -> None:
    """A client that reads nothing at all is cut off after 30 seconds, and the shutdown does not wait for it."""
    streams = await connect(served)
    streams.wire.increment_flow_control_window(2**30)
    stream = await streams.request(b"/big")
    streams.wire.increment_flow_control_window(2**30, stream)
    await streams.send()
    await trio.sleep(62)
    assert await served.stop() < 0.3


@pytest.mark.parametrize("served", ["bare"], indirect=True)
async def test_half_a_body(served: Served, autojump_clock: MockClock) -> None:
    """A body that isn't whole after 15 seconds is answered 408 on its stream; the other streams go on."""
    streams = await connect(served)
    held = await streams.request(b"/hold")
    stream = await streams.request(b"/echo", b"POST", end=False)
    streams.wire.send_data(stream, b"half")
    await streams.send()
    before = trio.current_time()
    assert await streams.answer(stream) == (408, b"")
    assert trio.current_time() - before == pytest.approx(15, abs=1)
    assert held not in streams.ended
    assert await streams.answer(await streams.request(b"/hello")) == (200, b"hello")


@pytest.mark.parametrize("served", ["bare"], indirect=True)
async def test_a_body_after_its_answer(served: Served, autojump_clock: MockClock) -> None:
    """What still comes of a body that was answered early is dropped, and the connection goes on."""
    streams = await connect(served)
    stream = await streams.request(b"/nowhere", b"POST", end=False)
    assert (await streams.answer(stream))[0] == 404
    frame = (4).to_bytes(3, "big") + b"\0\0" + stream.to_bytes(4, "big") + b"late"
    await streams.client.send(frame)
    assert await streams.answer(await streams.request(b"/hello")) == (200, b"hello")


@pytest.mark.parametrize("served", ["bare"], indirect=True)
async def test_an_app_that_fails(served: Served, autojump_clock: MockClock) -> None:
    """An app's mistake is a bare 500, or a reset stream; the other streams go on."""
    streams = await connect(served)
    assert await streams.answer(await streams.request(b"/fail")) == (500, b"")
    stream = await streams.request(b"/break")
    await streams.answer(stream)
    assert "reset" in streams.ended[stream]
    assert await streams.answer(await streams.request(b"/hello")) == (200, b"hello")


@pytest.mark.parametrize(
    ("path", "method", "more", "status"),
    [
        pytest.param(b"/hello", b"GET", [(b"x", b"a" * 17000)], 431, id="headers too large"),
        pytest.param(b"*", b"OPTIONS", [], 400, id="star"),
        pytest.param(b"?x", b"GET", [], 400, id="query alone"),
        pytest.param(b"/caf\xc3\xa9", b"GET", [], 400, id="raw UTF-8"),
        pytest.param(b"/hello", b"CONNECT", [(b":protocol", b"websocket")], 400, id="CONNECT"),
        pytest.param(b"/hello", b"G\xc3\x89T", [], 400, id="raw UTF-8 in the method"),
        pytest.param(b"/hello", b"get", [], 501, id="a method in lower case, as on HTTP/1.1"),
    ],
)
async def test_refused(
    served: Served, autojump_clock: MockClock, path: bytes, method: bytes, more: list[tuple[bytes, bytes]], status: int
) -> None:
    """What can't be a request of ours is refused on its stream; the connection goes on, and can be idle."""
    streams = await connect(served)
    assert await streams.answer(await streams.request(path, method, *more)) == (status, b"")
    assert await streams.answer(await streams.request(b"/hello")) == (200, b"hello")
    assert await streams.closed()


async def test_rapid_reset(served: Served, autojump_clock: MockClock) -> None:
    """A client that takes back hundreds of streams loses its connection (CVE-2023-44487)."""
    streams = await connect(served)
    for _ in range(250):
        stream = streams.wire.get_next_available_stream_id()
        fields = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"x"), (b":path", b"/hold")]
        streams.wire.send_headers(stream, fields, end_stream=True)
        streams.wire.reset_stream(stream)
    await streams.send()
    before = trio.current_time()
    assert await streams.closed()
    assert trio.current_time() == before
    again = await connect(served)
    assert await again.answer(await again.request(b"/hello")) == (200, b"hello")


PRIORITY, PING, SETTINGS = 2, 6, 4


def frame(kind: int, stream: int, body: bytes) -> bytes:
    """A frame as bytes, without flags."""
    return len(body).to_bytes(3, "big") + bytes([kind, 0]) + stream.to_bytes(4, "big") + body


@pytest.mark.parametrize("served", ["bare"], indirect=True)
@pytest.mark.parametrize(
    "flood",
    [
        pytest.param([frame(PRIORITY, 2 * n + 1, bytes(4) + b"\x10") for n in range(1, 1500)], id="PRIORITY"),
        pytest.param([frame(PING, 0, bytes(8))] * 1500, id="PING"),
        pytest.param([frame(SETTINGS, 0, b"")] * 1500, id="SETTINGS"),
        pytest.param([frame(0x42, 0, b"")] * 1500, id="unknown"),
        pytest.param([frame(1, 1, b"\0")] + [frame(9, 1, bytes(16_000))] * 20, id="CONTINUATION"),
    ],
)
async def test_a_flood_of_frames(
    served: Served, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, flood: list[bytes]
) -> None:
    """Frames that ask for nothing, or a header block without end, end their connection, and are no error of ours."""
    streams = await connect(served)
    before = trio.current_time()
    with suppress(trio.BrokenResourceError):
        await streams.client.send(b"".join(flood))
    with suppress(h2.exceptions.ProtocolError):
        assert await streams.closed()
    assert trio.current_time() - before < 1
    assert caplog.records == []
    again = await connect(served)
    assert await again.answer(await again.request(b"/hello")) == (200, b"hello")


@pytest.mark.parametrize("served", ["bare"], indirect=True)
async def test_frames_of_a_long_conversation(served: Served, autojump_clock: MockClock) -> None:
    """What ordinary clients send besides requests is no flood: PINGs now and then, windows for a large answer."""
    streams = await connect(served)
    for _ in range(40):
        await streams.client.send(frame(PING, 0, bytes(8)) * 20)
        await trio.sleep(2)
        await streams.answer(await streams.request(b"/hello"))
    assert len((await streams.answer(await streams.request(b"/big")))[1]) == 8 * 1024 * 1024


@pytest.mark.parametrize("served", ["bare"], indirect=True)
async def test_no_more_is_answered_than_a_client_takes(served: Served, autojump_clock: MockClock) -> None:
    """A client with no window for its answers is refused further streams, which it may ask for again; its connection
    goes on, and is answered when it takes what it had asked for."""
    streams = await connect(served)
    streams.windows = False
    first = await streams.request(b"/big")
    await trio.sleep(1)
    more = [await streams.request(b"/big") for _ in range(50)]
    await trio.sleep(1)
    while not all(stream in streams.ended for stream in more):
        await streams.read()
    assert {streams.ended[stream] for stream in more} == {f"reset {h2.errors.ErrorCodes.REFUSED_STREAM!r}"}
    assert first not in streams.ended
    streams.wire.increment_flow_control_window(2**30)
    streams.wire.increment_flow_control_window(2**30, first)
    streams.body[first] = b""
    await streams.send()
    assert (await streams.answer(first))[0] == 200
    assert await streams.answer(await streams.request(b"/hello")) == (200, b"hello")


@pytest.mark.parametrize("leaves", [False, True], ids=["waits", "resets"])
async def test_few_answers_are_made_that_nobody_takes(served: Served, autojump_clock: MockClock, leaves: bool) -> None:
    """With no window for any, a third of 32 requests begin. The others wait until the client takes something, or
    leaves."""
    streams = await connect(served)
    streams.wire.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
    asked = [await streams.request(b"/hello") for _ in range(32)]
    await trio.sleep(1)
    begun = served.told.words.count("hello")
    assert begun <= 12
    if leaves:
        for stream in asked:
            streams.wire.reset_stream(stream)
        await streams.send()
        await trio.sleep(1)
        assert served.told.words.count("hello") == begun
        asked = []
    streams.wire.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 65_535})
    asked += [await streams.request(b"/hello") for _ in range(32 - len(asked))]
    assert [await streams.answer(stream) for stream in asked] == [(200, b"hello")] * 32


async def test_what_gets_room_at_once_begins_one_in_a_tick(folder: Path, autojump_clock: MockClock) -> None:
    """Of ten clients that take nothing the answers end together: the hundred requests behind them begin one by one."""
    ticks: list[int] = []

    def make(told: Told) -> Any:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            ticks.append(loop_ticks().number)
            await bare_app(told)(scope, receive, send)

        return app

    async with serving(make, certified=folder) as served:
        for _ in range(10):
            streams = await connect(served)
            streams.wire.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
            for _ in range(20):
                await streams.request(b"/hello")
        await trio.sleep(1)
        before = len(ticks)
        await trio.sleep(40)
        assert len(ticks) - before > 50, "the answers did not end"
        assert max(Counter(ticks[before:]).values()) == 1


@pytest.mark.parametrize("served", ["bare"], indirect=True)
async def test_a_window_of_a_byte_now_and_then(served: Served, autojump_clock: MockClock) -> None:
    """Taking a few bytes is no progress: less than 256 a second for 30 seconds loses the stream."""
    streams = await connect(served)
    streams.windows = False
    stream = await streams.request(b"/big")
    streams.wire.increment_flow_control_window(2**20)
    before = trio.current_time()
    while stream not in streams.ended and trio.current_time() - before < 100:
        streams.wire.increment_flow_control_window(1, stream)
        await streams.send()
        with trio.move_on_after(5):
            await streams.answer(stream)
    assert "reset" in streams.ended[stream]
    assert trio.current_time() - before == pytest.approx(30, abs=2)
