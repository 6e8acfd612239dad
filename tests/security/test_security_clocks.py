"""Clocks that jump, go back, or stand still in sleep: pairings go by elapsed time, sessions by the wall."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from hatchway.api.http.app import make_app
from hatchway.engine.base.clock import TrioClock
from hatchway.engine.base.errors import PairingExpired
from tests.support.fakes import Browser, key, sign_in, signed, virtual_engine
from tests.support.virtual_pairings import EXPIRED, PAIR, Host, claim, is_problem

pytestmark = pytest.mark.virtual_time

INSPECT = "/api/auth/inspect/"


class SleepyClock(TrioClock):
    """The clocks of a host that has slept for `slept` seconds, which trio's own clock knows nothing of."""

    slept = 0.0

    def elapsed(self) -> float:
        return super().elapsed() + self.slept

    def wall(self) -> float:
        return super().wall() + self.slept


@pytest.mark.parametrize("skew", [3600.0, -3600.0])
async def test_a_wall_clock_that_jumps_moves_no_pairing(home: Path, skew: float) -> None:
    """D17: an hour forward or back while a code is out and while it waits: thirty seconds each, as ever."""
    clock = TrioClock()
    async with virtual_engine(home, clock) as engine, trio.open_nursery() as nursery:
        host, browser = Host(engine), Browser(make_app(engine))
        issued = await host.print_code()
        clock.skew = skew
        await trio.sleep(28)
        reply = await claim(nursery, browser, issued.code)
        assert reply.status == 200
        clock.skew = -skew
        await trio.sleep(28)
        await host.answer(issued, True)
        await reply.done.wait()
        assert "token" in reply.lines()[-1]
        late = await host.print_code()
        clock.skew = skew
        await trio.sleep(31)
        assert (await browser.post(PAIR, {"code": late.code})).status == 401


async def test_a_host_that_slept(home: Path) -> None:
    """B10: an hour's sleep ends what was out, waiting, asked or active, at its first use, whatever the timers saw."""
    clock = SleepyClock()
    async with virtual_engine(home, clock) as engine, trio.open_nursery() as nursery:
        host, browser = Host(engine), Browser(make_app(engine))
        session = await sign_in(browser, lifetime="30m")
        nonce = (await browser.get("/api/auth/challenge/")).json()["nonce"]
        out, claimed = await host.print_code(), await host.print_code()
        reply = await claim(nursery, browser, claimed.code)
        clock.slept = 3600
        assert (await browser.post(PAIR, {"code": out.code})).status == 401
        with pytest.raises(PairingExpired):
            await host.answer(claimed, True)
        await reply.done.wait()
        assert is_problem(reply.lines()[-1], EXPIRED)
        assert (await browser.get(INSPECT, token=session["token"])).status == 401
        assert (await browser.post("/api/auth/verify/", signed(nonce, key()))).status == 401


async def test_a_token_from_the_future(home: Path) -> None:
    """B9, D17: a clock set back a little makes no token of ours premature; `exp` alone counts, to the second."""
    clock = TrioClock()
    async with virtual_engine(home, clock) as engine:
        browser = Browser(make_app(engine))
        session = await sign_in(browser, lifetime="1m")
        clock.skew = -2
        assert (await browser.get(INSPECT, token=session["token"])).status == 200
        clock.skew = session["expires_at"] - engine.clock.wall() + clock.skew
        assert (await browser.get(INSPECT, token=session["token"])).status == 401
