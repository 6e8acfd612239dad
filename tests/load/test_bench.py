"""A smoke of the bench: ratios that stay what they are on a busy machine, with room. The rest is run by hand."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from hatchway.api.http.app import make_app
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.engine import Engine
from hatchway.engine.runtime.records import NOBODY
from hatchway.engine.settings.settings import Limits
from tests.bench.load import latency
from tests.bench.results import Promise, Results, at
from tests.bench.startup import COMMAND, seconds_of
from tests.bench.steps import actor_bytes, isolated, step_and_trigger, timers
from tests.support.fakes import ROOT, Browser, key, sign_in, virtual_engine
from tests.support.timing import kept

pytestmark = pytest.mark.bench


def test_a_whole_step_beside_a_bare_trigger() -> None:
    """Advance, store, record and delay cost at most half more than `transitions`' own trigger; here twice that much."""

    def ratio() -> float:
        steps, triggers = step_and_trigger(7, 3000)
        return min(steps) / min(triggers)

    kept(2.0, ratio, tries=3)


def test_a_live_actor_is_small() -> None:
    """With facts, armed delay and its row in the store it takes at most 600 bytes; here 700, for smaller numbers."""
    assert isolated(actor_bytes, 50_000) < 700


def test_armed_timers_are_small_and_idle_ones_free() -> None:
    """A million take under 250 MB and are armed in five seconds; a tenth of them takes a tenth."""
    told = isolated(trio.run, timers, 100_000, 1000, 1.0)
    assert told["bytes"] < 30e6
    assert told["seconds"] < 5
    assert told["idle"] < 0.02
    assert told["fired"] == 1000


def test_help_is_quick() -> None:
    """The command's help comes within a dozen times what a bare Python takes to start, and 0.2 s."""
    bare = min(seconds_of([sys.executable, "-c", "pass"]) for _ in range(3))
    kept(12 * bare + 0.2, lambda: seconds_of([*COMMAND, "--help"]), tries=9)


@pytest.mark.virtual_time
async def test_many_sessions_cost_a_use_no_more_than_few(home: Path) -> None:
    """Sign-in, inspect, renew and logout run the same number of calls with 3,000 live sessions as with none."""
    async with virtual_engine(home, limits=Limits(sessions_per_identity=10_000)) as engine:
        browser = Browser(make_app(engine))
        await _life(browser)
        await trio.sleep(5)  # the new key has been noticed
        few = await _calls_of(lambda: _life(browser))
        await _fill(engine, 3000)
        many = await _calls_of(lambda: _life(browser))
    assert many < few * 1.05


async def _fill(engine: Engine, count: int) -> None:
    for _ in range(count):
        await engine.sessions.start("key", key().public.identity, FIVE, 3600, proof="signature", origin=NOBODY)


async def _life(browser: Browser) -> None:
    session = await sign_in(browser)
    assert (await browser.get("/api/auth/inspect/", token=session["token"])).status == 200
    assert (await browser.post("/api/auth/renew/", {}, token=session["token"])).status == 200
    assert (await browser.post("/api/auth/logout/", {}, token=session["token"])).status == 204


async def _calls_of(what: Callable[[], Any]) -> int:
    """How many functions of our own are called."""
    calls = 0

    def count(frame: Any, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename.startswith(str(ROOT))

    sys.setprofile(count)
    try:
        await what()
    finally:
        sys.setprofile(None)
    return calls


def test_results_tell_medians_ratios_and_changes() -> None:
    """The table names median, spread, promise kept or missed, and the change against a saved run."""
    results = Results()
    results.add("ours", "us", [10, 12, 11])
    results.add("theirs", "us", [20, 24, 22])
    results.ratio("ours / theirs", "ours", "theirs")
    results.ratio("ours / nobody's", "ours", "nobody's")
    before = results.to_json()
    results.add("ours", "us", [22, 22, 22])
    table = results.table([Promise("ours", "at most", 20), Promise("ours / theirs", "at most", 0.6)], before)
    assert "| ours | 22 us | 0% | at most 20 **missed** | 11 | +100% |" in table
    assert "| ours / theirs | 0.5 x | 0% | at most 0.6 | 0.5 | +0% |" in table
    assert "nobody" not in table


def test_results_are_sound_json() -> None:
    """What is endless or unknown is null in the saved run, which any reader of JSON can read, and is compared with."""
    results = Results()
    results.add("late", "ms", [float("inf"), 1.0, float("inf")])
    results.add("none", "/s", [0.0, 0.0, 0.0])
    results.ratio("late / none", "late", "none")
    saved = json.loads(json.dumps(results.to_json(), allow_nan=False))
    assert saved["figures"]["late"]["rounds"] == [None, 1.0, None]
    assert "| late | inf ms |" in results.table([], saved)


def test_a_share_of_a_hundred() -> None:
    """The 99th percentile of a hundred is not the worst of them."""
    assert (at(0.99, range(1, 101)), at(0.5, range(1, 101)), at(0.5, [7])) == (99, 50, 7)


WRK = """\
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     7.62ms    1.10ms  23.14ms   87.50%
    Req/Sec     4.20k   310.11     4.71k    72.99%
  Latency Distribution
     50%    7.48ms
     75%    8.01ms
     90%    8.77ms
     99%    1.20s\x20
  12601 requests in 3.00s, 4.00MB read
"""


def test_wrk_is_read_as_it_writes() -> None:
    """A latency is the one of the distribution, whatever percentage stands at the end of another line."""
    assert (latency(50, WRK), latency(99, WRK)) == pytest.approx((0.00748, 1.2))
