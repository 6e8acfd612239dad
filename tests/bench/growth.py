"""Sign-in, inspect, renew and logout with many live sessions beside the same with a few, over HTTP."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import trio

from hatchway.api.http.app import make_app
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.engine import Engine, open_engine
from hatchway.engine.runtime.records import NOBODY
from hatchway.engine.settings.settings import Limits, Settings
from tests.bench.results import Plan, Results
from tests.support.fakes import Browser, key, sign_in
from tests.support.processes import prepare

USED, TURNS = 30, 9
"""Sessions that go through their whole life in one turn of an engine, and its turns in a round: their median counts."""


async def fill(engine: Engine, count: int) -> None:
    """Live sessions, as a sign-in leaves them."""

    async def start_some() -> None:
        for _ in range(count // 64):
            await engine.sessions.start("key", key().public.identity, FIVE, 3600, proof="signature", origin=NOBODY)

    async with trio.open_nursery() as nursery:
        for _ in range(64):
            nursery.start_soon(start_some)


async def lives(browser: Browser) -> dict[str, float]:
    """CPU seconds of each stage of a session's life, over HTTP."""
    told: dict[str, float] = {}
    began = time.process_time()

    def lap(name: str) -> None:
        nonlocal began
        told[name] = (time.process_time() - began) / USED
        began = time.process_time()

    sessions = [await sign_in(browser) for _ in range(USED)]
    lap("sign-in")
    for session in sessions:
        for _ in range(10):
            assert (await browser.get("/api/auth/inspect/", token=session["token"])).status == 200
    lap("inspect")
    for session in sessions:
        assert (await browser.post("/api/auth/renew/", {}, token=session["token"])).status == 200
    lap("renew")
    for session in sessions:
        assert (await browser.post("/api/auth/logout/", {}, token=session["token"])).status == 204
    lap("logout")
    return told


async def turns(few: Browser, full: Browser) -> tuple[dict[str, float], dict[str, float]]:
    """Both engines by turns, each first as often as the other."""
    told: list[tuple[dict[str, float], dict[str, float]]] = []
    for number in range(TURNS):
        if number % 2:
            first = await lives(few)
            told.append((first, await lives(full)))
        else:
            second = await lives(full)
            told.append((await lives(few), second))
    few_told, full_told = zip(*told, strict=True)
    return _medians(few_told), _medians(full_told)


def _medians(told: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: median(one[name] for one in told) for name in told[0]}


def unbound() -> Settings:
    return Settings(limits=Limits(sessions_per_identity=1_000_000))


def measure(results: Results, plan: Plan) -> None:
    """By turns, on two engines in one process: one nearly empty, one full."""
    many = int(100_000 * plan.size)

    async def run() -> list[tuple[dict[str, float], dict[str, float]]]:
        with tempfile.TemporaryDirectory() as folder:
            few_home, many_home = Path(folder) / "few", Path(folder) / "many"
            prepare(few_home)
            prepare(many_home)
            async with open_engine(few_home, unbound) as few, open_engine(many_home, unbound) as full:
                await fill(few, 128)
                await fill(full, many)
                few_client, full_client = Browser(make_app(few)), Browser(make_app(full))
                await lives(few_client)
                await lives(full_client)
                gc.collect()
                gc.freeze()  # as an engine does when it runs
                return [await turns(few_client, full_client) for _ in range(plan.rounds)]

    rounds = trio.run(run)
    for name in rounds[0][0]:
        results.add(f"{name}, 100 sessions", "us CPU", [few[name] * 1e6 for few, _ in rounds])
        results.add(f"{name}, {many:,} sessions", "us CPU", [full[name] * 1e6 for _, full in rounds])
        results.ratio(f"{name}, {many:,} / 100 sessions", f"{name}, {many:,} sessions", f"{name}, 100 sessions")
