"""What a worker process and the engine tell each other: messages, settings, counts."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatchway.api.http.request import Request, Response
from hatchway.api.workers.backend import WorkerCounts
from hatchway.api.workers.channel import Frames, frame
from hatchway.api.workers.messages import HandleRequest, Responded, ToEngine, ToWorker
from hatchway.engine.settings.settings import Settings
from hatchway.engine.settings.sources import decode_settings, encode_settings
from tests.support.fakes import virtual_engine


@given(st.lists(st.binary(max_size=300)), st.data())
def test_messages_come_out_as_they_went_in(sent: list[bytes], data: st.DataObject) -> None:
    """However the stream is cut, each message is heard once, whole and in order."""
    stream = b"".join(map(frame, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    frames = Frames()
    heard = [
        message
        for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for message in frames.feed(stream[begin:end])
    ]
    assert [msgspec.msgpack.decode(message) for message in heard] == sent


def test_a_request_survives_the_channel() -> None:
    """What a worker asks is what its client sent, byte for byte, whatever bytes it sent."""
    headers = ((b"host", b"\x80"),)
    request = Request("GET", "/\xff\n", b"a=\xff", headers, b"\0\xff", ("::1%lo", 5), ("127.0.0.1", 7420))
    asked = msgspec.msgpack.Decoder(ToEngine).decode(frame(HandleRequest(7, request))[4:])
    assert asked == HandleRequest(7, request)


def test_a_response_survives_the_channel() -> None:
    """What the engine responds is what a worker sends."""
    told = Responded(7, Response(401, b"\0\xff", ((b"x", b"\x80"),)))
    assert msgspec.msgpack.Decoder(ToWorker).decode(frame(told)[4:]) == told


def test_settings_survive_the_channel() -> None:
    """Every setting a worker is told is the engine's own, a folder with a comma in its name too."""
    settings = Settings(image_folders=("/a,b", "/c"), trusted_proxies=("10.0.0.0/8",), tls_cert=Path("/x"), port=0)
    told = msgspec.msgpack.decode(msgspec.msgpack.encode(encode_settings(settings)))
    assert decode_settings(told) == settings


@pytest.mark.virtual_time
async def test_counts_of_a_worker_are_as_if_the_engine_had_counted(home: Path) -> None:
    """The same observations, made by a worker or by the engine, are the same text in /metrics."""
    seconds = [0.0, 0.0005, 0.00051, 0.3, 0.0025, 11.0, 61.0, 0.05]
    counts = WorkerCounts()
    told: list[list[bytes]] = []
    for by_worker in (False, True):
        async with virtual_engine(home) as engine:
            for one in seconds:
                (counts if by_worker else engine.metrics).answered("POST", "/api/auth/verify/", 200, one)
            for row in counts.take():
                engine.metrics.answered_by_worker(row.method, row.path, row.status, row.buckets, row.seconds)
            told.append(
                [line for line in engine.metrics.text().splitlines() if b"request_d" in line or b"sign_" in line]
            )
    assert told[0] == told[1]
    assert counts.take() == []
