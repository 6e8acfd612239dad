"""What engines of one fleet count and know together through a real store, without the engines."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from math import inf
from typing import Any
from unittest.mock import patch

import pytest
import trio
from structlog.testing import capture_logs

from hatchway.engine.base.clock import SystemClock
from hatchway.engine.base.errors import StoreUnavailable, TooManyRequests
from hatchway.engine.fleet import change_reader, lease, limits
from hatchway.engine.fleet.fleet import open_fleet
from hatchway.engine.fleet.lease import EPOCH, Lease
from hatchway.engine.fleet.limits import FleetLimit
from hatchway.engine.runtime import Runtime
from hatchway.engine.runtime.records import Records
from hatchway.engine.store.redis_link import RedisLink
from hatchway.engine.store.scripts import CALL, CLAIM, ENTER, REPLY, ROWS, SEND, UNCLAIM, Script
from tests.support.fakes import SetClock
from tests.support.redis_server import RedisServer, redis_link, speak

pytestmark = pytest.mark.redis


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One Redis for all tests here, emptied before each."""
    running = RedisServer(tmp_path_factory.mktemp("fleet") / "redis", durable=False)
    try:
        yield running.start()
    finally:
        running.close()


@pytest.fixture
async def link(server: RedisServer) -> AsyncIterator[RedisLink]:
    speak(server.port, "FLUSHALL")
    async with redis_link(server.url) as connected:
        yield connected


async def taken(limit: FleetLimit, address: str = "192.0.2.1") -> int:
    """Seconds that an address is told to wait; 0 where its failure was counted."""
    try:
        await limit.take(address)
    except TooManyRequests as refused:
        return refused.retry_after or 0
    return 0


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        (StoreUnavailable("its log has why", why="/home/engine is full"), "its log has why"),
        (StoreUnavailable("it has lost keys; restart the engine", cause="older"), "lost keys; restart the engine"),
        (ValueError("/home/engine is not understood"), "its log has why"),
    ],
)
async def test_what_keeps_an_engine_from_answering(server: RedisServer, lost: Exception, words: str) -> None:
    """Where it is not the way to the store, that is not what is told; nor is a path of the host's. The log has it
    once."""

    async def follow() -> None:
        raise lost

    clock = SystemClock()
    async with open_fleet(server.url, clock, "ash", "home") as fleet, trio.open_nursery() as nursery:
        runtime = Runtime(clock, Records(clock, lambda record: None))
        with patch.object(change_reader, "SHARED_CHARTS", ()), capture_logs() as said:
            nursery.start_soon(fleet.run, runtime, {"keys": follow})
            told = ""
            with trio.fail_after(20):
                while words not in told:
                    with pytest.raises(StoreUnavailable) as refused:
                        await fleet.wait_fresh()
                    told = refused.value.detail
                    await trio.sleep(0.05)
            nursery.cancel_scope.cancel()
    assert "/home" not in told
    assert [line["event"] for line in said].count("store_not_followed") == 1


async def test_a_fleet_counts_as_one(link: RedisLink) -> None:
    """So many failures a minute from one source, at whichever engine; the one too many is told the seconds."""
    here, there, other = (FleetLimit(link, lambda: 3, what, SystemClock()) for what in ("tries", "tries", "codes"))
    assert [await taken(limit) for limit in (here, there, here)] == [0, 0, 0]
    with pytest.raises(TooManyRequests, match=r"too many tries from this address: wait [3-6][0-9] s") as refused:
        await there.take("192.0.2.1")
    assert 30 <= (refused.value.retry_after or 0) <= 60
    await other.take("192.0.2.1")
    assert await taken(here, "192.0.2.2") == 0
    await here.give_back("192.0.2.1")
    assert [bool(await taken(limit)) for limit in (there, here)] == [False, True]
    for number in range(3):
        assert await taken(here, f"2001:db8::{number}") == 0
    assert await taken(there, "2001:db8::ffff") > 0


async def test_a_fleet_forgets_after_its_minute(link: RedisLink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the source may fail as often again."""
    monkeypatch.setattr(limits, "WINDOW", 0.5)
    limit = FleetLimit(link, lambda: 1, "tries", SystemClock())
    assert await taken(limit) == 0
    with trio.fail_after(20):
        while await taken(limit):
            await trio.sleep(0.1)


async def test_an_engine_remembers_who_is_to_wait(link: RedisLink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the store has told it, a source is refused without asking again, until its wait is over; no other is."""
    clock = SetClock()
    limit = FleetLimit(link, lambda: 1, "tries", clock)
    limit.check("192.0.2.1")
    await limit.take("192.0.2.1")
    limit.check("192.0.2.1")  # the store has not said so yet
    assert await taken(limit) > 0
    monkeypatch.setattr(link, "script", None)
    with pytest.raises(TooManyRequests) as refused:
        limit.check("192.0.2.1")
    assert 0 < (refused.value.retry_after or 0) <= 60
    limit.check("192.0.2.2")
    clock.now += 61
    limit.check("192.0.2.1")


@pytest.mark.parametrize(("left", "told"), [(60_000, 60), (59_001, 60), (1, 1)])
async def test_a_wait_is_told_in_whole_seconds(
    link: RedisLink, monkeypatch: pytest.MonkeyPatch, left: int, told: int
) -> None:
    """Rounded up from the store's milliseconds: whoever waits as long as told is let in."""

    async def script(*_: Any) -> int:
        return left

    monkeypatch.setattr(link, "script", script)
    assert await taken(FleetLimit(link, lambda: 1, "tries", SystemClock())) == told


def engine(link: RedisLink, clock: SetClock | None = None) -> Lease:
    """An engine's lease, not renewed yet."""
    return Lease(link, clock or SetClock(), "host", "home")


async def test_all_read_one_clock(link: RedisLink) -> None:
    """The store's, however long each host has been up; what is between two renewals the host's own clock measures."""
    young, old = engine(link, SetClock(5.0)), engine(link, clock := SetClock(5_000_000.0))
    for each in (young, old):
        await each.refresh()
        assert each.now() == pytest.approx(time.time(), abs=5)
    assert (young.renewed_at, old.renewed_at) == (5.0, 5_000_000.0)
    before = old.now()
    clock.now += 7.5
    assert old.now() == pytest.approx(before + 7.5)
    assert old.renewed_at == 5_000_000.0


async def test_what_a_renewal_leaves_in_the_store(link: RedisLink, server: RedisServer) -> None:
    """The engine's name for three seconds, its place among the engines, and its run and host under its home."""
    one = engine(link)
    await one.refresh()
    assert 2000 < int(speak(server.port, "PTTL", f"hatchway:engine:{one.run_id}")[1:]) <= 3000
    for key, value in (("engine:" + one.run_id, "host"), ("home:home", f"{one.run_id}|host")):
        assert speak(server.port, "GET", f"hatchway:{key}").split(b"\r\n")[1] == value.encode()
    assert speak(server.port, "HGET", "hatchway:engines", one.run_id).split(b"\r\n")[1] == b"host"


async def test_what_a_renewal_is_told(link: RedisLink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer's time, to the millionth, was the store's half way through the exchange, which waits for a replica."""
    clock = SetClock(5.0)
    one, durable = engine(link, clock), []

    async def script(*_: Any, **how: Any) -> list[Any]:
        durable.append(how)
        clock.now += 3.0
        return [b"100", b"500000", b"7", b"", b"now", b"next", b"SHA256:fleet"]

    monkeypatch.setattr(link, "script", script)
    assert (one.renewed_at, one.identity) == (-inf, None), "nobody has heard of it yet"
    await one.refresh()
    assert durable == [{"durable": True}]
    assert (one.now(), one.renewed_at) == (102.0, 5.0)
    assert one.identity == "SHA256:fleet"
    assert [one.mac_key(hours * EPOCH) for hours in (6, 7, 8)] == [None, b"now", b"next"]


async def test_all_have_the_keys_of_this_hour_the_last_and_the_next(link: RedisLink) -> None:
    """The same at each engine; of any other hour nobody has one, and a nonce of it is refused, not asked about."""
    one, two = engine(link), engine(link)
    await one.refresh()
    await two.refresh()
    now = one.now()
    keys = {hours: one.mac_key(now + hours * EPOCH) for hours in range(-3, 4)}
    assert keys == {hours: two.mac_key(now + hours * EPOCH) for hours in keys}
    assert [hours for hours, key in keys.items() if key] == [0, 1]
    assert all(len(key) == 32 for key in keys.values() if key)
    assert keys[0] != keys[1]


async def test_the_last_hours_key_is_good_in_the_next(link: RedisLink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A nonce of an hour's last minute is answered in the next one's first."""
    monkeypatch.setattr(lease, "EPOCH", 2)
    one = engine(link)
    await one.refresh()
    issued = one.now()
    key = one.mac_key(issued)
    with trio.fail_after(20):
        while one.now() // 2 == issued // 2:
            await trio.sleep(0.1)
            await one.refresh()
    assert key is not None
    assert one.mac_key(issued) == key
    assert one.mac_key(one.now()) not in (None, key)


async def test_without_the_store_no_key_of_now_is_known(link: RedisLink) -> None:
    """An engine that was never answered, or not for an hour, can't tell a bad nonce from a good one."""
    clock = SetClock()
    one = engine(link, clock)
    with pytest.raises(StoreUnavailable):
        one.mac_key(one.now())
    await one.refresh()
    assert one.mac_key(one.now())
    clock.now += 2 * EPOCH
    with pytest.raises(StoreUnavailable) as refused:
        one.mac_key(one.now())
    assert refused.value.retry_after == 2
    assert one.mac_key(one.now() - 10 * EPOCH) is None


async def test_an_engines_home_is_remembered_for_a_week(link: RedisLink, server: RedisServer) -> None:
    """So long it may be away, and its instances are still known to be its own."""
    await engine(link).refresh()
    assert 7 * 24 * 3600 - 60 < int(speak(server.port, "TTL", "hatchway:home:home")[1:]) <= 7 * 24 * 3600


async def test_who_is_heard_of_no_more_is_dead(
    link: RedisLink, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for it is told, and nobody else: after its lease, or at once where it says so."""
    here, stops, lives = engine(link), engine(link), engine(link)
    monkeypatch.setattr(lease, "SECONDS", 0.3)
    silent = engine(link)
    await silent.refresh()
    monkeypatch.setattr(lease, "SECONDS", 60)
    for each in (stops, lives):
        await each.refresh()
    died: list[str] = []

    async def told() -> list[str]:
        died.clear()
        await here.refresh()
        return sorted(died)

    with here.watch(stops.run_id, lambda: died.append("stops")):
        with (
            here.watch(stops.run_id, lambda: died.append("stops too")),
            here.watch(silent.run_id, lambda: died.append("silent")),
            here.watch(lives.run_id, lambda: died.append("lives")),
        ):
            assert speak(server.port, "HEXISTS", "hatchway:engines", stops.run_id) == b":1\r\n"
            await stops.give_up()
            assert speak(server.port, "HEXISTS", "hatchway:engines", stops.run_id) == b":0\r\n"
            await trio.sleep(0.4)
            assert died == [], "a renewal tells"
            assert await told() == ["silent", "stops", "stops too"]
        assert await told() == ["stops"]
    assert await told() == []
    assert len({each.run_id for each in (here, stops, lives, silent)}) == 4


async def test_engines_that_were_killed_are_forgotten(server: RedisServer, link: RedisLink) -> None:
    """Those that live are asked for in one call, however many others could not say that they stopped."""
    for number in range(20):
        speak(server.port, "HSET", "hatchway:engines", f"killed{number}", "host")
    clock = SystemClock()
    async with open_fleet(server.url, clock, "ash", "a") as here, open_fleet(server.url, clock, "elm", "b") as there:
        with patch.object(here.link, "call", wraps=here.link.call) as asked:
            assert await here.others() == [there.lease.run_id]
        assert asked.call_count == 1
        assert speak(server.port, "HLEN", "hatchway:engines") == b":2\r\n"
        speak(server.port, "DEL", f"hatchway:engine:{there.lease.run_id}")
        assert await here.others() == []
        await there.lease.refresh()
        assert await here.others() == [there.lease.run_id]


INBOX, MESSAGE = "hatchway:inbox:ash", ("kind", "call", "ticket", "t")


@pytest.mark.parametrize(
    ("script", "keys", "args"),
    [
        (CALL, (INBOX, "hatchway:engine:ash"), MESSAGE),
        (
            CLAIM,
            ("hatchway:codes", "hatchway:recent:digest", "hatchway:claim:t"),
            ("digest", 50, "t", "birch", b"body"),
        ),
        (UNCLAIM, ("hatchway:claim:known",), ("t",)),
        (REPLY, (INBOX, "hatchway:reply:t"), ("t", b"reply")),
        (SEND, (INBOX,), MESSAGE),
    ],
    ids=["call", "claim", "unclaim", "reply", "send"],
)
async def test_an_inbox_that_nobody_reads_goes(
    link: RedisLink, server: RedisServer, script: Script, keys: tuple[str, ...], args: tuple[Any, ...]
) -> None:
    """Whatever is sent to an engine that dies before it renews its lease: who claimed a code is kept for a minute."""
    speak(server.port, "SET", "hatchway:engine:ash", "ash")
    speak(server.port, "HSET", "hatchway:codes", "digest", "ash|pairing|0")
    speak(server.port, "SET", "hatchway:claim:known", "ash")
    await link.script(script, keys, args)
    assert speak(server.port, "XLEN", INBOX) == b":1\r\n"
    assert 50 < int(speak(server.port, "TTL", INBOX)[1:]) <= 60


async def test_what_no_engine_wrote_stops_none(link: RedisLink, server: RedisServer) -> None:
    """One value among the codes or the rows that can't be read goes, and all others are as they were."""
    speak(server.port, "SET", "hatchway:engine:ash", "ash")
    speak(server.port, "SET", "hatchway:home:ash", "ash|ash")
    for value in ("good", "ash|pairing|0"), ("bad", "garbage"):
        speak(server.port, "HSET", "hatchway:codes", *value)
    for value in ("good", "ash|1|1|1|row"), ("bad", "garbage"), ("taken", "garbage"):
        speak(server.port, "HSET", "hatchway:instances", *value)
    keys = ("hatchway:codes", "hatchway:recent:guess", "hatchway:claim:t")
    assert await link.script(CLAIM, keys, ("guess", 50, "t", "birch", b"body")) == [b"wrong"]
    assert speak(server.port, "HKEYS", "hatchway:codes") == b"*1\r\n$4\r\ngood\r\n"
    assert await link.script(ENTER, ("hatchway:instances",), ("taken", "ash", "1", 1, 1, b"row", "", "")) == b""
    rows = await link.script(ROWS, ("hatchway:instances",), ())
    assert sorted(rows[::4]) == [b"good", b"taken"]
    speak(server.port, "HSET", "hatchway:codes", "bad", "garbage")
    assert await link.script(CLAIM, keys, ("bad", 50, "t", "birch", b"body")) == [b"used"]


async def test_what_cannot_be_told_runs_out(link: RedisLink, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine stops though its store is gone, and a renewal there is a refusal that leaves all as it was."""

    async def gone(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("gone")

    one = engine(link)
    await one.refresh()
    monkeypatch.setattr(link, "script", gone)
    monkeypatch.setattr(link, "call", gone)
    before = (one.now(), one.renewed_at, one.mac_key(one.now()))
    with pytest.raises(StoreUnavailable):
        await one.refresh()
    assert (one.now(), one.renewed_at, one.mac_key(one.now())) == before
    await one.give_up()
