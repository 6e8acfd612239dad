"""A key expires under many live sessions of a fleet: every way in refuses them within a second."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import httpx
import pytest

from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from tests.support.fakes import effort, key
from tests.support.fleet import client, fleet, insist
from tests.support.processes import EngineProcess, bearer, sign_in
from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.process, pytest.mark.redis]

SESSIONS = int(200 * effort())
"""Two thousand by hand."""


def test_many_sessions_end_with_their_key(redis: RedisServer, tmp_path: Path) -> None:
    """Two engines, one with workers. The key's end is set while its sessions live; a second after it each of them is
    refused by both engines, by the parser of plain requests, through Quart, in what a worker kept, and in a stream of
    events that is held open; and no session is left."""
    with fleet(tmp_path, redis.url, redis.url, HATCHWAY_WORKERS="2") as engines:
        keys = AuthorizedKeys(tmp_path / "keys" / "authorized_keys")
        path = keys.path
        path.write_text(path.read_text() + f'permissions="MASTER" {key("ending").public.openssh()} ending\n')
        tokens = [token for engine in engines for token in signed_in(engine, SESSIONS // 2)]
        assert statuses(engines, tokens[::20]) == Counter({200: 2 * len(tokens[::20])})  # by now workers have answers
        streams = [Stream(engine, tokens[place]) for place, engine in enumerate(engines)]
        ends = int(time.time()) + 6
        stamp = time.strftime("%Y%m%d%H%M%SZ", time.gmtime(ends - 1))
        keys.edit(lambda data: expiring(data, stamp))
        assert statuses(engines, tokens[::20])[200] > 0 or time.time() > ends
        time.sleep(max(0.0, ends + 1 - time.time()))
        assert all(stream.ended_at is not None and stream.ended_at <= ends + 1.5 for stream in streams)
        assert statuses(engines, tokens) == Counter({401: 2 * SESSIONS})
        until = time.monotonic() + 20
        while time.monotonic() < until and any(live(engine) for engine in engines):
            time.sleep(0.2)
        assert [live(engine) for engine in engines] == [0, 0]
        keys.edit(lambda data: expiring(data, "20990101Z"))  # as a clock that is set back would have it
        assert statuses(engines, tokens[::20]) == Counter({401: 2 * len(tokens[::20])})


def expiring(data: bytes, stamp: str) -> tuple[bytes, None]:
    """The line of the key with that `expiry-time`, by hand: it has MASTER."""
    lines = data.decode().splitlines(keepends=True)
    text = key("ending").public.openssh()
    mine = next(line for line in lines if text in line)
    return data.replace(mine.encode(), f'permissions="MASTER",expiry-time="{stamp}" {text} ending\n'.encode()), None


def signed_in(engine: EngineProcess, count: int) -> Iterator[str]:
    with closing(client(engine)) as http:
        for _ in range(count):
            yield sign_in(http, key("ending"))["token"]


def statuses(engines: list[EngineProcess], tokens: list[str]) -> Counter[int]:
    """What every engine answers to each of them, by turns through the parser of plain requests and through Quart."""
    found: Counter[int] = Counter()
    for engine in engines:
        with closing(client(engine)) as http:
            for number, token in enumerate(tokens):
                path = "/api/auth/inspect/" if number % 2 else "/api/auth/sessions/?limit=1"
                reply = insist(partial(http.get, path, headers=bearer(token)))
                found[reply.status_code] += 1
    return found


def live(engine: EngineProcess) -> int:
    """Sessions that the engine knows."""
    count: int = engine.operator({"op": "status"})[-1]["sessions"]
    return count


class Stream:
    """Events of an engine, held open until it ends them."""

    def __init__(self, engine: EngineProcess, token: str) -> None:
        self.ended_at: float | None = None
        self._url, self._token = engine.url, token
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with httpx.stream("GET", f"{self._url}/api/events/", headers=bearer(self._token), timeout=60) as reply:
            for _ in reply.iter_raw():
                pass
        self.ended_at = time.time()
