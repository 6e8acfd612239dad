"""A real engine process under more than it is made for: held streams, slow clients, floods, a full disk, SIGTERM."""

from __future__ import annotations

import json
import resource
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
import trio

from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from tests.support.fakes import effort, key
from tests.support.keep_alive import Wire
from tests.support.processes import EngineProcess, bearer, executed_engine, inspect, sign_in
from tests.support.timing import Share

pytestmark = pytest.mark.process

MIB = 1024 * 1024
STREAMS = min(2000, int(200 * effort()))
SLOW = min(500, int(50 * effort()))
GUESSES = min(30_000, int(3_000 * effort()))
SECONDS = 3.0 * min(effort(), 5)


@pytest.fixture
def engine(home: Path) -> Iterator[EngineProcess]:
    with executed_engine(home) as running:
        yield running


class Times:
    """How long the sign-ins of somebody took who comes every so often."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def sign_in_regularly(self, engine: EngineProcess, pause: float) -> None:
        with httpx.Client(base_url=engine.url, timeout=10) as client:
            while True:
                before = time.monotonic()
                await trio.to_thread.run_sync(sign_in, client)
                self.seconds.append(time.monotonic() - before)
                await trio.sleep(pause)

    @property
    def worst_percent(self) -> float:
        return statistics.quantiles(self.seconds, n=100, method="inclusive")[98]  # the other one goes past the worst


async def follow(
    engine: EngineProcess,
    token: str,
    ends: list[bytes],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Hold a stream of events to its end; it has started when it is open."""
    async with Wire(engine) as wire:
        await wire.stream.send_all(wire.head("GET", "/api/events/", f"Authorization: Bearer {token}"))
        tail = b""
        with suppress(trio.BrokenResourceError):
            async for data in wire.stream:
                if not tail:
                    task_status.started()
                tail = (tail + data)[-1000:]
        ends.append(tail)


async def hold_claim(engine: EngineProcess, code: str, ends: list[bytes]) -> None:
    """Claim a code and hold the answer to its end."""
    body = json.dumps({"code": code}).encode()
    more = ("Content-Type: application/json", f"Content-Length: {len(body)}")
    async with Wire(engine) as wire:
        await wire.stream.send_all(wire.head("POST", "/api/auth/pair/request/", *more) + body)
        whole = b""
        with suppress(trio.BrokenResourceError):
            async for data in wire.stream:
                whole += data
        ends.append(whole)


async def dawdle(engine: EngineProcess, number: int) -> None:
    """Half a head, or half a body, and then nothing."""
    async with Wire(engine) as wire:
        whole = wire.head("POST", "/api/auth/verify/", "Content-Type: application/json", "Content-Length: 100")
        await wire.stream.send_all(whole[:40] if number % 2 else whole + b'{"nonce":')
        await trio.sleep_forever()


async def flood(engine: EngineProcess, pause: float) -> None:
    """Challenges and wrong claims, as fast as told."""
    async with Wire(engine, "127.0.0.3") as wire:
        while True:
            assert await wire.ask("GET", "/api/auth/challenge/") == 200
            assert await wire.ask("POST", "/api/auth/pair/request/", b'{"code":"00000000"}') in (401, 429)
            await trio.sleep(pause)


async def rate_of_requests(engine: EngineProcess) -> float:
    """Pairs of a challenge and a wrong claim that one connection gets answered in a second."""
    async with Wire(engine, "127.0.0.3") as wire:
        before = time.monotonic()
        for _ in range(100):
            await wire.ask("GET", "/api/auth/challenge/")
            await wire.ask("POST", "/api/auth/pair/request/", b'{"code":"00000000"}')
        return 100 / (time.monotonic() - before)


@pytest.mark.fuzz
async def test_streams_slow_clients_and_floods(engine: EngineProcess) -> None:
    """Sign-ins stay under 2 s while streams are held, clients dawdle and strangers flood; memory stays bounded; and
    SIGTERM ends every stream with its last item within 5 s. Seconds are those of an engine that has its core."""
    with httpx.Client(base_url=engine.url) as client:
        master = sign_in(client, key("own"))["token"]
        kept = sign_in(client)["token"]
    idle, times, ends = engine.memory(), Times(), list[bytes]()
    pause = 1 / await rate_of_requests(engine)  # a request and as long a rest: half the rate
    share = Share(engine.process.pid)
    async with trio.open_nursery() as streams:
        for _ in range(STREAMS):
            streams.start_soon(follow, engine, master, ends)
        async with trio.open_nursery() as load:
            for number in range(SLOW):
                load.start_soon(dawdle, engine, number)
            load.start_soon(flood, engine, pause)
            load.start_soon(times.sign_in_regularly, engine, 0.05)
            await trio.sleep(SECONDS)
            with trio.fail_after(60):
                while len(times.seconds) <= 5:
                    await trio.sleep(0.1)
            grown, had = engine.memory() - idle, share.now()
            load.cancel_scope.cancel()
        took = await trio.to_thread.run_sync(engine.terminate)
    assert times.worst_percent * had < 2
    assert grown < 60 * MIB + (STREAMS + SLOW) * 64 * 1024
    assert took * had < 5
    assert len(ends) == STREAMS
    assert all(end.endswith(b"0\r\n\r\n") for end in ends), Counter(ends).most_common(3)
    assert all(b'"event":"stop"' in end for end in ends)
    engine.start()
    with httpx.Client(base_url=engine.url) as client:
        assert inspect(client, kept) == 200


async def test_the_last_words_of_a_stopped_engine(engine: EngineProcess) -> None:
    """SIGTERM: who follows the events reads of the stop and of what it ended, a claim is refused, its terminal is told
    why; all within 5 s."""
    with httpx.Client(base_url=engine.url) as client:
        master = sign_in(client, key("own"))["token"]
    events, claims = list[bytes](), list[bytes]()
    with engine.operator_connection() as peer:
        peer.settimeout(10)
        lines = peer.makefile("rb")
        peer.sendall(b'{"op":"pair","lifetime":3600}\n')
        code = json.loads(lines.readline())["code"]
        async with trio.open_nursery() as streams:
            await streams.start(follow, engine, master, events)
            streams.start_soon(hold_claim, engine, code, claims)
            claimed = json.loads(await trio.to_thread.run_sync(lines.readline))
            assert claimed["event"] == "claimed"
            share = Share(engine.process.pid)
            took = await trio.to_thread.run_sync(engine.terminate)
        told = [json.loads(line) for line in lines]
    assert took * share.now() < 5
    assert told[-1] == {"event": "withdrawn", "message": "withdrawn: the engine was stopped"}
    assert b'"code":"invalid_pairing_code"' in claims[0]
    assert claims[0].endswith(b"0\r\n\r\n")
    read = [json.loads(frame.split(b"\n")[0]) for frame in events[0].split(b"data: ")[1:]]
    assert [(record["chart"], record["event"]) for record in read][-2:] == [("engine", "stop"), ("pairing", "withdraw")]


@pytest.mark.fuzz
async def test_guesses_from_many_addresses(engine: EngineProcess) -> None:
    """Wrong codes as fast as the engine takes them: five a minute from an address are looked at, the code that is out
    is withdrawn after fifty, its terminal says so, and sign-ins stay under 2 s."""
    idle, times, statuses, share = engine.memory(), Times(), Counter[int](), Share(engine.process.pid)

    async def guess(address: str) -> None:
        async with Wire(engine, address) as wire:
            for _ in range(GUESSES // 20):
                statuses[await wire.ask("POST", "/api/auth/pair/request/", b'{"code":"ZZZZZZZZ"}')] += 1

    with engine.operator_connection() as peer:
        peer.sendall(b'{"op":"pair","lifetime":3600}\n')
        async with trio.open_nursery() as load:
            load.start_soon(times.sign_in_regularly, engine, 0.25)
            async with trio.open_nursery() as guessers:
                for number in range(20):
                    guessers.start_soon(guess, f"127.0.1.{number + 1}")
            await trio.sleep(0.5)
            load.cancel_scope.cancel()
        peer.settimeout(5)
        told = [json.loads(line) for line in peer.makefile("rb")]
    assert statuses == {401: 100, 429: GUESSES // 20 * 20 - 100}
    assert [line["event"] for line in told][-1] == "withdrawn"
    assert {"event": "wrong_codes", "count": 50} in told
    assert max(times.seconds) * share.now() < 2
    assert engine.memory() - idle < 20 * MIB


def test_a_full_disk(engine: EngineProcess) -> None:
    """Where the disk takes no more, every write is refused in words and nothing is half written; what is held still
    answers; with room again the engine goes on by itself, and a restart finds all that was acknowledged."""
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    with httpx.Client(base_url=engine.url) as client:
        tokens = [sign_in(client)["token"] for _ in range(3)]
        largest = max(path.stat().st_size for path in engine.home.glob("engine.db*"))
        for room in (0, 100, 4096, 5000, 9000):
            resource.prlimit(engine.process.pid, resource.RLIMIT_FSIZE, (largest + room, resource.RLIM_INFINITY))
            refused = 0
            for _ in range(12):
                answer = client.post("/api/auth/renew/", headers=bearer(tokens[0]))
                if answer.status_code == 503:
                    refused += 1
                    assert answer.json()["code"] == "store_unavailable"
                    assert "retry-after" in answer.headers
                else:
                    assert answer.status_code == 200
                    tokens.append(answer.json()["token"])
            assert refused
            assert client.post("/api/auth/logout/", headers=bearer(tokens[1])).status_code == 503
            assert {inspect(client, token) for token in tokens} == {200}
            resource.prlimit(engine.process.pid, resource.RLIMIT_FSIZE, unlimited)
            tokens.append(sign_in(client)["token"])
            assert client.get("/readyz").status_code == 200
            largest = max(path.stat().st_size for path in engine.home.glob("engine.db*"))
        assert client.post("/api/auth/logout/", headers=bearer(tokens.pop(1))).status_code == 204
    engine.kill()
    engine.start()
    with httpx.Client(base_url=engine.url) as client:
        assert {inspect(client, token) for token in tokens} == {200}
    for line in (engine.home / "log" / "events.jsonl").read_bytes().splitlines():
        assert not line.endswith(b"}") or json.loads(line)
    assert AuthorizedKeys(engine.home / "authorized_keys").entries()
