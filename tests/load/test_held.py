"""Many held event streams: what each weighs on a real engine, and that they hold up no sign-in."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio

from hatchway.api.http.app import make_app
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.engine import Engine
from hatchway.engine.runtime.records import Origin
from tests.bench.servers import Server
from tests.bench.streams import drain, hold
from tests.support.fakes import Browser, Reply, key
from tests.support.fakes import sign_in as sign_in_here
from tests.support.processes import executed_engine, sign_in

STREAMS = 300


class Steps(trio.abc.Instrument):
    """How many ticks the event loop makes, and how many steps tasks take in them."""

    def __init__(self) -> None:
        self.ticks = self.steps = 0

    def before_io_wait(self, timeout: float) -> None:
        self.ticks += 1

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps += 1


async def from_yes_to_token(engine: Engine, browser: Browser) -> Steps:
    """What the event loop does from the operator's `y` until the claim's last line, which holds the token, is sent."""
    told: list[str] = []
    issued = await engine.pairings.issue(FIVE, 3600, lambda event, **_: told.append(event), Origin("operator"))
    claim, counted = Reply(), Steps()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(browser.talk, claim, "POST", "/api/auth/pair/request/", {"code": issued.code})
        while "claimed" not in told:
            await trio.sleep(0.1)
        await trio.sleep(2)  # a person compares two digits: the streams have heard of the claim by then
        trio.lowlevel.add_instrument(counted)
        await engine.pairings.answer(issued.id, True, Origin("operator"))
        while b'"token"' not in claim.body:
            await trio.lowlevel.checkpoint()
        trio.lowlevel.remove_instrument(counted)
    return counted


@asynccontextmanager
async def held_streams(browser: Browser, token: str) -> AsyncIterator[list[Reply]]:
    """So many event streams, each waiting for news."""
    replies = [Reply() for _ in range(STREAMS)]
    async with trio.open_nursery() as nursery:
        for reply in replies:
            nursery.start_soon(partial(browser.talk, reply, "GET", "/api/events/", token=token))
        await trio.sleep(3)
        yield replies
        nursery.cancel_scope.cancel()


@pytest.mark.virtual_time
async def test_held_streams_hold_nobody_up(engine: Engine) -> None:
    """With 300 of them the way from the operator's `y` to the token takes a few ticks of the event loop more than with
    none, and a few steps of tasks; the streams hear of it behind that, each of them."""
    browser = Browser(make_app(engine))
    token = (await sign_in_here(browser, key("own")))["token"]
    alone = [await from_yes_to_token(engine, browser) for _ in range(3)]
    async with held_streams(browser, token) as replies:
        held = [await from_yes_to_token(engine, browser) for _ in range(3)]
        await trio.sleep(3)
        assert all(reply.body.count(b'"approve"') >= 3 for reply in replies)
    assert max(one.ticks for one in held) <= max(one.ticks for one in alone) + 4
    assert max(one.steps for one in held) <= max(one.steps for one in alone) + 12


@pytest.mark.process
def test_a_held_stream_is_small_and_idle(home: Path) -> None:
    """A stream takes at most 25 kB, here with room for a page; and without news they cost next to nothing."""
    with executed_engine(home) as engine:
        server = Server(engine.process, engine.port)
        with httpx.Client(base_url=engine.url) as client:
            token = f"Bearer {sign_in(client, key('own'))['token']}"
        before, held = engine.memory(), hold(server, token, STREAMS)
        try:
            drain(held)
            assert (engine.memory() - before) / STREAMS < 30_000
            spent = server.cpu()
            time.sleep(2)
            assert server.cpu() - spent < 0.2
        finally:
            for sock in held:
                sock.close()
