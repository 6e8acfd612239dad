"""Remote calls between two engines over a real Redis, with methods of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from math import inf
from typing import Any
from unittest.mock import patch

import pytest
import trio

from hatchway.engine.base.clock import SystemClock
from hatchway.engine.base.errors import (
    HostUnavailable,
    InstanceNotFound,
    PairingCodeRefused,
    PairingExpired,
    Refusal,
    StoreUnavailable,
    TooManyRequests,
)
from hatchway.engine.fleet import change_reader
from hatchway.engine.fleet.fleet import Fleet, open_fleet
from hatchway.engine.fleet.remote_calls import Caller, NoReply, RemoteCalls
from hatchway.engine.runtime import Runtime
from hatchway.engine.runtime.records import Records
from hatchway.engine.store.scripts import REPLY, Script
from tests.support.redis_server import RedisServer, speak

pytestmark = [pytest.mark.redis]

SOON = 10.0
"""Seconds that no call here takes."""


class Side:
    """One engine's fleet and calls, without the engine."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.run_id, self.calls = fleet, fleet.lease.run_id, RemoteCalls(fleet)

    async def deliver(self, other: Side, method: str, ticket: str) -> str:
        """As a script of the store's does that picks the engine by itself."""
        self.fleet.messages.post(other.run_id, kind="call", ticket=ticket, caller=self.run_id, method=method, body=b"")
        return other.run_id


@pytest.fixture
async def sides(redis: RedisServer) -> AsyncIterator[tuple[Side, Side]]:
    clock = SystemClock()
    place = partial(open_fleet, redis.url, clock)
    with patch.object(change_reader, "SHARED_CHARTS", ()):
        async with place("ash", "ash") as ash, place("elm", "elm") as elm, trio.open_nursery() as nursery:
            made = Side(ash), Side(elm)
            for fleet in (ash, elm):
                nursery.start_soon(fleet.run, Runtime(clock, Records(clock, lambda record: None)), {})
            yield made
            nursery.cancel_scope.cancel()


Sides = tuple[Side, Side]


async def test_a_call_and_its_reply(sides: Sides, redis: RedisServer) -> None:
    """Many at a time, each gets its own; a large reply is in the store no longer than until it is taken."""
    a, b = sides

    async def double(body: bytes, caller: Caller) -> bytes:
        assert caller.run_id == a.run_id
        return 2 * body

    b.calls.serve("double", double)
    got: dict[int, bytes] = {}

    async def call(number: int) -> None:
        got[number] = await a.calls.call(b.run_id, "double", bytes([number]) * 40_000, SOON)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(call, number)
    assert got == {number: bytes([number]) * 80_000 for number in range(20)}
    assert b"hatchway:reply" not in speak(redis.port, "KEYS", "hatchway:reply:*")


@pytest.mark.parametrize(
    "refusal",
    [
        InstanceNotFound("no such"),
        StoreUnavailable("away", retry_after=7),
        PairingCodeRefused("left"),
        PairingExpired(),
    ],
)
async def test_a_refusal_is_the_callers_too(sides: Sides, refusal: Refusal) -> None:
    """With its words, its seconds, and the cause that a refused code has for the log."""

    async def refuse(body: bytes, caller: Caller) -> bytes:
        raise refusal

    sides[1].calls.serve("refuse", refuse)
    with pytest.raises(type(refusal)) as refused:
        await sides[0].calls.call(sides[1].run_id, "refuse", b"", SOON)
    got = refused.value
    assert (got.detail, got.cause, got.retry_after) == (refusal.detail, refusal.cause, refusal.retry_after)


@pytest.mark.parametrize("fault", [TooManyRequests("not for a caller"), ValueError("of ours"), KeyError("of ours")])
async def test_anything_else_is_the_called_engines_fault(sides: Sides, fault: Exception) -> None:
    """So is a method that it does not have."""

    async def fail(body: bytes, caller: Caller) -> bytes:
        raise fault

    sides[1].calls.serve("fail", fail)
    for method in ("fail", "unknown"):
        with pytest.raises(HostUnavailable):
            await sides[0].calls.call(sides[1].run_id, method, b"", SOON)


async def test_who_does_not_reply(sides: Sides) -> None:
    """Neither in its time, nor dead when it is called, nor dying while the caller waits."""
    a, b = sides
    b.calls.serve("hang", _hang)
    with pytest.raises(NoReply):
        await a.calls.call(b.run_id, "hang", b"", 0.1)
    with pytest.raises(NoReply), trio.fail_after(SOON):
        await a.calls.call("nobody", "hang", b"", inf)

    async def die() -> None:
        await trio.sleep(0.2)
        await b.fleet.lease.give_up()

    with patch.object(b.fleet.lease, "refresh", trio.lowlevel.checkpoint), trio.fail_after(SOON):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(die)
            with pytest.raises(NoReply):
                await a.calls.call(b.run_id, "hang", b"", inf)


async def _hang(body: bytes, caller: Caller) -> bytes:
    await trio.sleep_forever()
    raise AssertionError


async def present(ended: trio.Event, body: bytes, caller: Caller) -> bytes:
    """A method that waits for what only its caller needs."""
    caller.report(b"at it")
    with caller.presence:
        await trio.sleep_forever()
    ended.set()
    return b"cancelled"


async def test_progress_and_cancel(sides: Sides) -> None:
    """A caller hears of progress before the reply, and of what was done after it has cancelled."""
    a, b = sides
    b.calls.serve("present", partial(present, trio.Event()))
    with trio.fail_after(SOON):
        async with a.calls.open(partial(a.deliver, b, "present")) as call:
            assert await call.progress(SOON) == b"at it"
            call.cancel()
            assert await call.reply() == b"cancelled"


async def test_a_call_that_is_left_is_cancelled(sides: Sides) -> None:
    """Whyever its caller does not wait for the reply."""
    a, b = sides
    ended = trio.Event()
    b.calls.serve("present", partial(present, ended))
    with trio.fail_after(SOON):
        async with a.calls.open(partial(a.deliver, b, "present")) as call:
            await call.progress(SOON)
            call.end(PairingCodeRefused("engine_stopped"))
            with pytest.raises(PairingCodeRefused):
                await call.reply()
        await ended.wait()


async def test_a_dead_caller_is_as_one_that_cancelled(sides: Sides) -> None:
    """Its method is told at a renewal of the lease."""
    a, b = sides
    ended = trio.Event()
    b.calls.serve("present", partial(present, ended))
    with trio.fail_after(SOON):
        async with a.calls.open(partial(a.deliver, b, "present")) as call:
            await call.progress(SOON)
            with patch.object(a.fleet.lease, "refresh", trio.lowlevel.checkpoint):
                await a.fleet.lease.give_up()
                await ended.wait()


async def test_a_refusal_before_any_progress(sides: Sides) -> None:
    """Who waits for progress gets the refusal, and does not wait for its time to be over."""

    async def refuse(body: bytes, caller: Caller) -> bytes:
        raise PairingCodeRefused("used_code")

    a, b = sides
    b.calls.serve("refuse", refuse)
    with trio.fail_after(SOON):
        async with a.calls.open(partial(a.deliver, b, "refuse")) as call:
            with pytest.raises(PairingCodeRefused):
                await call.progress(inf)


async def test_a_call_that_was_sent_twice(sides: Sides) -> None:
    """It runs once, as long as the first one runs."""
    a, b = sides
    runs = []

    async def slow(body: bytes, caller: Caller) -> bytes:
        runs.append(caller.ticket)
        await trio.sleep(0.5)
        return b""

    async def twice(ticket: str) -> str:
        await a.deliver(b, "slow", ticket)
        return await a.deliver(b, "slow", ticket)

    b.calls.serve("slow", slow)
    with trio.fail_after(SOON):
        async with a.calls.open(twice) as call:
            await call.reply()
    assert len(runs) == 1


async def test_a_reply_waits_for_no_other(sides: Sides) -> None:
    """One that the store takes slowly keeps neither other replies nor messages."""
    a, b = sides
    script, slow = b.fleet.link.script, trio.Event()

    async def one_is_slow(what: Script, keys: Any, args: Any, **more: Any) -> Any:
        if what is REPLY and b"slow" in args[1]:
            await slow.wait()
        return await script(what, keys, args, **more)

    async def echo(body: bytes, caller: Caller) -> bytes:
        return body

    b.calls.serve("echo", echo)
    with patch.object(b.fleet.link, "script", one_is_slow), trio.fail_after(SOON):
        async with a.calls.open(partial(a.calls._deliver, b.run_id, "echo", b"slow")) as late:
            assert await a.calls.call(b.run_id, "echo", b"quick", SOON) == b"quick"
            assert not late.replied
            slow.set()
            assert await late.reply() == b"slow"


async def test_a_stop_waits_for_a_reply(sides: Sides, redis: RedisServer) -> None:
    """An engine that is stopped while it replies goes on with that before it gives its lease up."""
    a, _ = sides
    replying = trio.Event()

    async def slowly(what: Script, *args: Any, **more: Any) -> Any:
        if what is REPLY:
            replying.set()
            await trio.sleep(0.3)
        return await script(what, *args, **more)

    async def echo(body: bytes, caller: Caller) -> bytes:
        return body

    async def call(run: str) -> None:
        assert await a.calls.call(run, "echo", b"last", SOON) == b"last"

    clock = SystemClock()
    with trio.fail_after(SOON):
        async with trio.open_nursery() as outer, open_fleet(redis.url, clock, "fir", "fir") as fir:
            script = fir.link.script
            Side(fir).calls.serve("echo", echo)
            with patch.object(fir.link, "script", slowly):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(fir.run, Runtime(clock, Records(clock, lambda record: None)), {})
                    outer.start_soon(call, fir.lease.run_id)
                    await replying.wait()
                    nursery.cancel_scope.cancel()
