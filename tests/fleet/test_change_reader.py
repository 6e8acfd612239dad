"""How an engine keeps its memory of the fleet's sessions complete: through a real store, without the engines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from hatchway.engine.base.clock import SystemClock
from hatchway.engine.base.errors import StoreUnavailable
from hatchway.engine.fleet import change_reader
from hatchway.engine.fleet.fleet import Fleet, open_fleet
from hatchway.engine.runtime import Runtime
from hatchway.engine.runtime.records import Records
from hatchway.engine.store.protocol import Stored
from hatchway.engine.store.redis import CHANGES, RedisStore
from hatchway.statecharts import session
from tests.runtime.test_shared_store import Facts
from tests.support.fleet import Relay
from tests.support.redis_server import RedisServer, speak

pytestmark = pytest.mark.redis

SOON = 20.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One Redis for all tests here, emptied before each."""
    running = RedisServer(tmp_path_factory.mktemp("changes") / "redis", durable=False)
    try:
        yield running.start()
    finally:
        running.close()


class Reading:
    """One engine's part in the fleet, as far as sessions go."""

    def __init__(self, fleet: Fleet, clock: SystemClock) -> None:
        self.fleet = fleet
        self.runtime = Runtime(clock, Records(clock, lambda record: None))
        nothing = dict.fromkeys(("issue_token", "end_session", "clean_up_tokens"), lambda actor, data: None)
        rules = {"session_lifetime": lambda facts, now: now + 3600}
        self.runtime.register(session.CHART, facts=Facts, store=fleet.store, effects=nothing, rules=rules)

    async def start(self, *names: str) -> None:
        for name in names:
            await self.runtime.create("session", name, "start", Facts(), proof="signature")

    async def end(self, name: str) -> None:
        await self.runtime.send("session", name, "logout")

    async def holds(self, *names: str) -> None:
        """Wait until these sessions are what it knows to be all."""
        with trio.fail_after(SOON):
            while not self.fleet.fresh or {one.id for one in self.runtime.actors("session")} != set(names):
                await trio.sleep(0.01)


@asynccontextmanager
async def member(url: str, home: str) -> AsyncIterator[Reading]:
    """In the fleet for the block; its tasks are for the test to start."""
    clock = SystemClock()
    async with open_fleet(url, clock, home, home) as fleet:
        yield Reading(fleet, clock)


@pytest.fixture
async def other(server: RedisServer) -> AsyncIterator[Reading]:
    """An engine that changes sessions."""
    speak(server.port, "FLUSHALL")
    async with member(server.url, "birch") as made:
        yield made


@pytest.fixture
def relay(server: RedisServer) -> Iterator[Relay]:
    """The way of `reader` to the store."""
    made = Relay(server.port)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
async def reader(server: RedisServer, other: Reading, relay: Relay, nursery: trio.Nursery) -> AsyncIterator[Reading]:
    """An engine that has taken up two sessions, `a` and `b`, and hears of what becomes of them."""
    await other.start("a", "b")
    async with member(relay.url, "ash") as made:
        nursery.start_soon(made.fleet.run, made.runtime, {})
        await made.holds("a", "b")
        await made.fleet.wait_whole()
        speak(server.port, "CONFIG", "RESETSTAT")
        yield made
        nursery.cancel_scope.cancel()


def all_read(server: RedisServer) -> bool:
    """Whether anybody has gone through all sessions of the store since they were taken up."""
    return b"cmdstat_hscan" in speak(server.port, "INFO", "commandstats")


class Pages:
    """Pages of sessions that are read from the store, and reach who asked only while they are let through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read, self.through = trio.Event(), trio.Event()
        page = RedisStore.page

        async def late(store: RedisStore, chart: str, cursor: int) -> tuple[int, dict[str, Stored]]:
            found = await page(store, chart, cursor)
            self.read.set()
            await self.through.wait()
            return found

        monkeypatch.setattr(RedisStore, "page", late)


@pytest.fixture
async def starting(
    other: Reading, relay: Relay, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Reading, Pages]]:
    """An engine that has read the sessions `a`, `b` and `c` from the store, and not yet taken them up."""
    await other.start("a", "b", "c")
    pages = Pages(monkeypatch)
    async with member(relay.url, "ash") as made:
        nursery.start_soon(made.fleet.run, made.runtime, {})
        with trio.fail_after(SOON):
            await pages.read.wait()
        yield made, pages
        nursery.cancel_scope.cancel()


async def test_what_changes_while_sessions_are_taken_up(other: Reading, starting: tuple[Reading, Pages]) -> None:
    """Whoever changed it, the page that was read before does not put it back: not for a moment what this engine ended
    itself, and what another did until it is heard of."""
    made, pages = starting
    await other.end("a")
    await other.start("d")
    await made.end("b")
    pages.through.set()
    with trio.fail_after(SOON):
        await made.fleet.wait_whole()
    assert made.runtime.peek("session", "b") is None
    await made.holds("c", "d")


async def test_until_all_sessions_are_here(starting: tuple[Reading, Pages]) -> None:
    """Whoever wants them all is told to try again; they come in the end."""
    made, pages = starting
    with pytest.raises(StoreUnavailable, match="still reads the fleet's sessions"):
        await made.fleet.wait_whole(0.01)
    pages.through.set()
    with trio.fail_after(SOON):
        await made.fleet.wait_whole()
    assert {one.id for one in made.runtime.actors("session")} == {"a", "b", "c"}


async def test_a_connection_that_is_lost_meanwhile(
    other: Reading, relay: Relay, starting: tuple[Reading, Pages]
) -> None:
    """It begins again at the first page, as another server may answer then; nothing is missing."""
    made, pages = starting
    relay.cut()
    pages.through.set()
    await other.end("a")
    await other.start("d")
    relay.mend()
    await made.holds("b", "c", "d")
    await made.fleet.wait_whole()


async def test_another_server_has_other_cursors(
    other: Reading, server: RedisServer, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the store was lost between two pages, all are read again, from the first on."""
    await other.start(*(f"{number:05}" for number in range(1500)))
    page, cursors = RedisStore.page, list[int]()

    async def lost(store: RedisStore, chart: str, cursor: int) -> tuple[int, dict[str, Stored]]:
        cursors.append(cursor)
        if len(cursors) == 2:
            raise StoreUnavailable("lost")
        return await page(store, chart, cursor)

    monkeypatch.setattr(RedisStore, "page", lost)
    async with member(server.url, "ash") as made:
        nursery.start_soon(made.fleet.run, made.runtime, {})
        await made.fleet.wait_whole()
        assert cursors[0] == cursors[2] == 0
        assert cursors[1] != 0
        assert len(list(made.runtime.actors("session"))) == 1500
        nursery.cancel_scope.cancel()


async def test_many_pages_and_many_changes(other: Reading, server: RedisServer, nursery: trio.Nursery) -> None:
    """Sessions end, begin and are renewed all the while: in the end all is here as the store has it."""
    names = [f"{number:05}" for number in range(3000)]
    await other.start(*names)
    async with member(server.url, "ash") as made:
        nursery.start_soon(made.fleet.run, made.runtime, {})
        for number in range(0, 300, 3):
            await other.end(names[number])
            await other.start(f"new{number}")
            await other.runtime.send("session", names[-1 - number], "renew")
        await made.holds(*(one.id for one in other.runtime.actors("session")))
        await made.fleet.wait_whole()
        stored = {name: held.version for name, held in await other.fleet.store.live("session")}
        assert {one.id: one.version for one in made.runtime.actors("session")} == stored
        nursery.cancel_scope.cancel()


async def test_after_a_lost_connection_reading_goes_on(
    server: RedisServer, other: Reading, relay: Relay, reader: Reading
) -> None:
    """What changed meanwhile is heard of, and nothing else is read again."""
    for name in ("c", "d", "e"):
        relay.cut()
        await other.start(name)
        relay.mend()
        await reader.holds("a", "b", name)
        relay.cut()
        await other.end(name)
        relay.mend()
        await reader.holds("a", "b")
    assert not all_read(server)


async def test_a_server_that_never_had_the_last_change(
    server: RedisServer, other: Reading, relay: Relay, reader: Reading
) -> None:
    """As after a failover that lost something: all sessions are compared, and what the store has counts."""
    await other.start("c")
    await reader.holds("a", "b", "c")
    relay.cut()
    speak(server.port, "XTRIM", CHANGES, "MAXLEN", "0")
    speak(server.port, "HDEL", "hatchway:actors:session", "a")
    speak(server.port, "XADD", CHANGES, "*", "n", "3", "c", "session", "a", "somebody", "v", "1")
    relay.mend()
    await reader.holds("b", "c")
    assert all_read(server)
    await other.end("b")
    await reader.holds("c")


async def test_an_own_change_that_a_failover_lost(
    server: RedisServer, other: Reading, relay: Relay, reader: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine has not heard of it yet, so that its place among the changes is still there: it is read anew."""
    monkeypatch.setattr(change_reader, "GATHER_PAUSE", 2.0)
    await other.start("c")
    await reader.holds("a", "b", "c")  # and it reads no further for a while
    await reader.start("d")
    last = speak(server.port, "XREVRANGE", CHANGES, "+", "-", "COUNT", "1").split(b"\r\n")[3].decode()
    speak(server.port, "XDEL", CHANGES, last)
    speak(server.port, "DECR", f"{CHANGES}:n")
    speak(server.port, "HDEL", "hatchway:actors:session", "d")
    relay.cut()
    relay.mend()
    await other.start("e")
    await reader.holds("a", "b", "c", "e")
    assert not all_read(server)
    assert not reader.fleet.store.unheard


async def test_an_own_change_that_was_told_and_not_taken_up(
    server: RedisServer, other: Reading, relay: Relay, reader: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message of it came, the store failed, and a failover lost both: it is read anew all the same."""
    absorb, made = reader.runtime.absorb, trio.Event()

    async def failing(chart: str, versions: Mapping[str, int]) -> None:
        if "c" in versions:
            await made.wait()
            relay.cut()
            last = speak(server.port, "XREVRANGE", CHANGES, "+", "-", "COUNT", "1").split(b"\r\n")[3].decode()
            speak(server.port, "XDEL", CHANGES, last)
            speak(server.port, "DECR", f"{CHANGES}:n")
            speak(server.port, "HDEL", "hatchway:actors:session", "c")
            monkeypatch.setattr(reader.runtime, "absorb", absorb)
            raise StoreUnavailable("lost")
        await absorb(chart, versions)

    monkeypatch.setattr(reader.runtime, "absorb", failing)
    await reader.start("c")
    made.set()
    with trio.fail_after(SOON):
        while reader.runtime.absorb != absorb:
            await trio.sleep(0.01)
    relay.mend()
    await other.start("d")
    await reader.holds("a", "b", "d")
    assert not all_read(server)


async def test_a_number_that_is_missing(server: RedisServer, other: Reading, reader: Reading) -> None:
    """Whatever it was about: all sessions are compared."""
    speak(server.port, "HDEL", "hatchway:actors:session", "a")
    speak(server.port, "INCR", f"{CHANGES}:n")
    await other.start("c")
    await reader.holds("b", "c")
    assert all_read(server)


def spoil(server: RedisServer, name: str, value: str) -> None:
    """Have the store hold a session that can't be decoded, as of another version's, and tell it as a change."""
    speak(server.port, "HSET", "hatchway:actors:session", name, value)
    number = int(speak(server.port, "INCR", f"{CHANGES}:n")[1:])
    speak(server.port, "XADD", CHANGES, "*", "n", str(number), "c", "session", "a", name, "v", "2")


def named(said: list[MutableMapping[str, Any]]) -> list[str]:
    """The sessions that the log says are not understood, in the order of their names."""
    return sorted(line["actor"] for line in said if line["event"] == "actor_not_understood")


async def test_sessions_that_cannot_be_decoded(server: RedisServer, other: Reading, reader: Reading) -> None:
    """Each is as one that is gone, named in the log once, and hides no other: neither where it is heard of, nor where
    all are compared."""
    with capture_logs() as said:
        spoil(server, "a", "2:tag:garbage")
        spoil(server, "bad", "no version")
        await other.start("c")
        await reader.holds("b", "c")
        assert not all_read(server)
        speak(server.port, "INCR", f"{CHANGES}:n")
        await other.start("d")
        await reader.holds("b", "c", "d")
        assert all_read(server)
    assert named(said) == ["a", "bad"]


async def test_a_start_beside_sessions_that_cannot_be_decoded(
    server: RedisServer, other: Reading, nursery: trio.Nursery
) -> None:
    """All others are taken up, and then that is all."""
    await other.start("a", "b")
    spoil(server, "bad", "1:tag:garbage")
    spoil(server, "a", "2:tag:")
    with capture_logs() as said:
        async with member(server.url, "ash") as made:
            nursery.start_soon(made.fleet.run, made.runtime, {})
            with trio.fail_after(SOON):
                await made.fleet.wait_whole()
            await made.holds("b")
            nursery.cancel_scope.cancel()
    assert named(said) == ["a", "bad"]


@pytest.mark.parametrize(
    "entry", [("n", "3"), ("n", "3", "c", "session", "a", "b", "v", "x"), ("n", "x"), ("some", "words")]
)
async def test_a_change_that_cannot_be_decoded(
    server: RedisServer, other: Reading, reader: Reading, entry: tuple[str, ...]
) -> None:
    """Whoever wrote it into the store: all sessions are compared, and reading goes on."""
    if entry[1] == "3":
        speak(server.port, "INCR", f"{CHANGES}:n")
    speak(server.port, "HDEL", "hatchway:actors:session", "a")
    speak(server.port, "XADD", CHANGES, "*", *entry)
    await reader.holds("b")
    assert all_read(server)
    await other.start("c")
    await reader.holds("b", "c")


async def test_nothing_is_believed_before_it_was_read(other: Reading, relay: Relay, nursery: trio.Nursery) -> None:
    """An engine whose store is away from the start knows of no session, and does not take that for all."""
    await other.start("a")
    async with member(relay.url, "ash") as made:
        relay.cut()
        nursery.start_soon(made.fleet.run, made.runtime, {})
        for _ in range(20):
            await trio.sleep(0.01)
            assert not made.fleet.fresh
        relay.mend()
        await made.holds("a")
        nursery.cancel_scope.cancel()


async def test_an_emptied_store_is_noticed(server: RedisServer, reader: Reading) -> None:
    """No message tells of the sessions that ended by it, so the memory is believed no more."""
    await reader.fleet.store.identity()  # as an engine asks it at its start
    speak(server.port, "FLUSHALL")
    with trio.fail_after(SOON):
        while reader.fleet.fresh:
            await trio.sleep(0.01)
    with pytest.raises(StoreUnavailable, match="was emptied"):
        await reader.start("c")


async def test_changes_stay_for_ten_minutes(server: RedisServer, other: Reading) -> None:
    """However many there are; older ones go, some hundred aside."""
    for number in range(1, 1001):
        speak(server.port, "XADD", CHANGES, f"{number}-0", "n", str(number))
    speak(server.port, "SET", f"{CHANGES}:n", "1000")
    names = [f"s{number:03}" for number in range(300)]
    await other.start(*names)
    assert 300 <= int(speak(server.port, "XLEN", CHANGES)[1:]) < 500
