"""The way to the fleet's store, without an engine: other clocks, an empty memory, calls that are given up."""

from __future__ import annotations

import time
from typing import Any

import pytest
import trio

from hatchway.engine.access.challenges import LIFETIME, SLACK, Challenges
from hatchway.engine.access.principal import SessionFacts
from hatchway.engine.base.errors import SignatureRefused, StoreUnavailable
from hatchway.engine.store import redis as redis_module
from hatchway.engine.store.protocol import AlreadyUsed, Change, Once, Stored
from hatchway.engine.store.redis import RedisStore
from tests.support.fakes import SetClock
from tests.support.redis_server import RedisServer, redis_link, redis_store, speak

redis_wanted = pytest.mark.redis

SLOTS = 64
"""Connections that the pool has at most."""


class Server:
    """The time of the store's server, as an engine counts it, and one MAC key."""

    time = 1_000_000.0

    def now(self) -> float:
        return self.time

    def mac_key(self, issued: float) -> bytes:
        return b"k" * 32


@pytest.mark.parametrize(("ahead", "good"), [(-59.0, False), (-1.0, True), (1.0, True), (LIFETIME + 1.0, False)])
def test_a_failover_to_another_clock(ahead: float, good: bool) -> None:
    """A nonce's age goes by the server of now: of a time to come, or too old, it is refused, and a new one wanted.

    When its use is forgotten does not move with the clocks.
    """
    server = Server()
    challenges = Challenges(SetClock(), shared=server)
    nonce = challenges.issue("h")
    until = challenges.read(nonce).until
    assert until == pytest.approx(server.time + LIFETIME + 1 + SLACK)
    server.time += ahead
    if good:
        assert challenges.read(nonce).until == until
    else:
        with pytest.raises(SignatureRefused):
            challenges.read(nonce)
    assert challenges.read(challenges.issue("h")).until == pytest.approx(server.time + LIFETIME + 1 + SLACK)


async def start(store: RedisStore, name: str, once: Once | None = None) -> None:
    facts = SessionFacts("id", "key", ("SHELL",), 60, 0.0, 60.0, "")
    await store.commit(Change("session", name, 0, Stored(1, "active", None, facts), once))


@redis_wanted
async def test_use_is_forgotten_by_the_clock_that_makes_it_old(redis: RedisServer) -> None:
    """A nonce that the server's own clock calls too old is refused, used or not; else its use is kept just as long."""
    async with redis_store(redis.url) as store:
        store.define({"session": SessionFacts})
        late, good = time.time() - 0.1, time.time() + 30
        with pytest.raises(AlreadyUsed):
            await start(store, "a", Once(b"old", 60, late))
        await start(store, "b", Once(b"new", 60, good))
        with pytest.raises(AlreadyUsed):
            await start(store, "c", Once(b"new", 60, good))
        assert speak(redis.port, "PEXPIRETIME", "hatchway:used:" + b"new".hex()) == b":%d\r\n" % int(good * 1000)
        assert await store.load("session", "a") is None


@redis_wanted
async def test_a_store_that_was_emptied_takes_no_change(redis: RedisServer) -> None:
    """Not one, at whatever moment: the step that would make it looks. From then on nothing is asked of it."""
    async with redis_store(redis.url) as store:
        store.define({"session": SessionFacts})
        await store.identity()
        await start(store, "a")
        speak(redis.port, "FLUSHALL")
        with pytest.raises(StoreUnavailable, match="restart the engine"):
            await start(store, "b")
        speak(redis.port, "SET", "hatchway:identity", "another")
        with pytest.raises(StoreUnavailable, match="restart the engine"):
            await store.load("session", "a")
    assert speak(redis.port, "DBSIZE") == b":1\r\n"


@redis_wanted
@pytest.mark.parametrize("answer_lost", [False, True])
async def test_a_change_that_a_full_store_refused_is_not_waited_for(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch, answer_lost: bool
) -> None:
    """Its message never comes. One whose first answer was lost may have been made, whatever the next answer is."""
    monkeypatch.setattr(redis_module, "COMMIT_WITHIN", 0.1)
    async with redis_store(redis.url) as store:
        store.define({"session": SessionFacts})
        await start(store, "a")
        assert store.unheard == {("session", "a", 1)}
        speak(redis.port, "CONFIG", "SET", "maxmemory", "1")
        script, lost = store.link.script, [answer_lost]

        async def asked(*args: Any, **more: Any) -> Any:
            if lost and lost.pop():
                raise StoreUnavailable("no answer in time")
            return await script(*args, **more)

        monkeypatch.setattr(store.link, "script", asked)
        with pytest.raises(StoreUnavailable, match="OOM"):
            await start(store, "b")
        assert (("session", "b", 1) in store.unheard) == answer_lost


@redis_wanted
@pytest.mark.parametrize("waits_for_a_replica", [False, True])
async def test_calls_that_were_given_up(redis: RedisServer, waits_for_a_replica: bool) -> None:
    """More than the pool has connections, cancelled as they connect, or wait for a replica: soon as many work again.

    Each that waits for a replica takes its connection's place in the pool along: then the pool is made anew.
    """

    async def ask(client: Any) -> None:
        if not waits_for_a_replica:
            await client.get("known")
        else:
            with client.ensure_replication(1, 30_000):  # there is none
                await client.set("known", "1")

    async with redis_store(redis.url) as store:
        await store.agree("known", b"1")
        if not waits_for_a_replica:
            speak(redis.port, "CLIENT", "KILL", "TYPE", "normal")
            redis.hold()
        with trio.move_on_after(0.5) as given_up:
            async with trio.open_nursery() as nursery:
                for _ in range(2 * SLOTS):
                    nursery.start_soon(store.link.call, ask, 30)
        assert given_up.cancelled_caught
        redis.resume()
        with trio.fail_after(30):
            while await works(store) < SLOTS:
                await trio.sleep(0.1)


@redis_wanted
async def test_a_primary_without_a_replica_is_told_in_words(redis: RedisServer) -> None:
    """The store is there, and what it lacks is named: not the command that waited, nor a number of milliseconds."""

    async def ask(client: Any) -> None:
        with client.ensure_replication(1, 50):
            await client.set("known", "1")

    async with redis_store(redis.url) as store:
        with pytest.raises(StoreUnavailable) as refused:
            await store.link.call(ask)
    assert "no replica of its primary confirms a change" in refused.value.detail
    assert "EVALSHA" not in refused.value.detail


async def works(store: RedisStore) -> int:
    """How many of as many calls at once as there are connections are answered."""
    answered: list[bytes] = []

    async def ask() -> None:
        try:
            answered.append(await store.link.call(lambda client: client.get("known")))
        except StoreUnavailable:
            return

    async with trio.open_nursery() as nursery:
        for _ in range(SLOTS):
            nursery.start_soon(ask)
    return answered.count(b"1")


@redis_wanted
@pytest.mark.parametrize(
    ("kind", "words", "told"),
    [
        ("ConnectionError", "connecting to 10.0.0.5:6379. Connection refused", False),
        ("MovedError", "3999 10.0.0.5:6381", False),
        ("AuthorizationError", "User engine has no permissions", False),
        ("ResponseError", "OOM command not allowed", True),
        ("ReadOnlyError", "a read only replica", True),
    ],
)
async def test_where_the_store_is_is_for_the_log_alone(redis: RedisServer, kind: str, words: str, told: bool) -> None:
    """What is sent to anybody names no address; the log has all of it."""
    from coredis import exceptions

    async def ask(client: Any) -> None:
        raise getattr(exceptions, kind)(words)

    async with redis_link(redis.url) as link:
        with pytest.raises(StoreUnavailable) as lost:
            await link.call(ask)
    assert words in lost.value.why
    assert (words in lost.value.detail) == told
    assert "10.0.0.5" not in lost.value.detail
