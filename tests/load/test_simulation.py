"""Thousands of runs of the whole engine in virtual time, each from one seed; and what the first of them found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from hatchway.api.http.app import make_app
from hatchway.engine.base.clock import TrioClock
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.engine import Engine, open_engine
from hatchway.engine.runtime.records import NOBODY
from hatchway.engine.settings.settings import Settings
from hatchway.engine.store.memory import MemoryStore
from hatchway.engine.store.protocol import Change
from tests.seeds import PLANTED, clean_up, first_broken, repeat, sweep, template
from tests.support.fakes import ROOT, Browser, Reply, effort
from tests.support.small_runtime import SlowStore

SEEDS = range(int(2000 * effort()))


@pytest.mark.fuzz
def test_every_promise_is_kept() -> None:
    """Whatever fails, dies or jumps, in whatever order: codes work once, nobody gets in without signature or yes, no
    ended session answers, timers are on time, claims come to an end, nothing acknowledged is lost."""
    broken = sweep(SEEDS)
    assert not broken, "\n".join(f"{why}; repeat it with: {repeat(seed)}" for seed, why in broken)


@pytest.mark.fuzz
@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_bug_is_found(plant: str) -> None:
    """The simulation sees a bug of each kind that it is there for, within a thousand seeds."""
    assert first_broken(range(1000), plant) is not None


def test_a_seed_repeats() -> None:
    """A seed's run is the same in every process: the command that is printed shows what was seen."""
    stories = [
        subprocess.run(
            [sys.executable, *repeat(18).split()[1:]],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert stories[0].count(b"\n") > 20
    assert stories[0] == stories[1]


MakeStore = Callable[[TrioClock], MemoryStore]


@asynccontextmanager
async def small_engine(
    tmp_path: Path, *, store: MakeStore = MemoryStore, codes: MakeStore = MemoryStore
) -> AsyncIterator[Engine]:
    """One in virtual time, on stores of these kinds."""
    home, clock = tmp_path / "home", TrioClock()
    shutil.copytree(template(), home)
    clean_up()
    async with open_engine(home, Settings, clock, inline=True, store=store(clock), codes=codes(clock)) as engine:
        yield engine


@pytest.mark.virtual_time
@pytest.mark.parametrize("patience", [0.0, 0.5, 1.0])
async def test_a_console_that_leaves_before_its_first_line(tmp_path: Path, patience: float) -> None:
    """A claim whose client hangs up before a line of the answer was begun is over like any other."""
    told = list[str]()
    async with small_engine(tmp_path, codes=partial(SlowStore, takes=1.0)) as engine:
        issued = await engine.pairings.issue(FIVE, 3600, lambda event, **_: told.append(event), NOBODY)
        reply, browser = Reply(), Browser(make_app(engine))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(browser.talk, reply, "POST", "/api/auth/pair/request/", {"code": issued.code})
            await trio.sleep(patience)
            reply.hang_up.set()
        await trio.sleep(3)
        assert (told, len(engine.pairings)) in ((["claimed", "left"], 0), ([], 1))  # the claim was never made, or left


class HangingStore(MemoryStore):
    """Takes a minute for a session's first change."""

    shields_commit = False

    async def commit(self, change: Change) -> None:
        if change.chart == "session" and change.expected == 0:
            await trio.sleep(60)
        await super().commit(change)


@pytest.mark.virtual_time
@pytest.mark.parametrize("headers", [{}, {"accept": "application/json"}], ids=["streamed", "held"])
async def test_a_console_that_leaves_while_its_session_hangs_in_the_store(tmp_path: Path, headers: Any) -> None:
    """Its leaving waits for a while only; a session that is made after that is held by nobody, and ends at once."""
    told = list[str]()
    async with small_engine(tmp_path, store=HangingStore) as engine:
        issued = await engine.pairings.issue(FIVE, 3600, lambda event, **_: told.append(event), NOBODY)
        reply, browser = Reply(), Browser(make_app(engine))
        talk = partial(browser.talk, reply, "POST", "/api/auth/pair/request/", {"code": issued.code}, headers=headers)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk)
            await trio.sleep(1)
            nursery.start_soon(engine.pairings.answer, issued.id, True, NOBODY)
            await trio.sleep(1)
            reply.hang_up.set()
            with trio.fail_after(10):
                await reply.done.wait()
            assert told == ["claimed"]
        assert told == ["claimed", "failed"]
        assert not list(engine.runtime.actors("session"))
        assert b"token" not in reply.body
