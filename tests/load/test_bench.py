"""A smoke of the bench: ratios that stay what they are on a busy machine, with room. The rest is run by hand."""

from __future__ import annotations

import json
import os
import resource
import subprocess
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
from tests.bench import endpoints, fleet
from tests.bench.before import beside
from tests.bench.history import drawn, keep, releases
from tests.bench.load import latency
from tests.bench.needs import cores_in_words, lacking
from tests.bench.noise import noise
from tests.bench.profile import KEPT, LOOP, OTHERS, PARTS, measured, part_of, table
from tests.bench.promises import PROMISES
from tests.bench.results import Figure, Plan, Promise, Results, at
from tests.bench.servers import CLIENT_CORE, pin
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

    kept(2.0, ratio, tries=9)


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
    promises = [
        Promise("ours", "at most", 20),
        Promise("ours / theirs", "at most", 0.6),
        Promise("not run", "at most", 1),
    ]
    table = results.table(promises, before)
    assert "| ours | 22 us | 0% | at most 20 **missed** | 11 | +100% |" in table
    assert "| ours / theirs | 0.5 x | 0% | at most 0.6 | 0.5 | +0% |" in table
    assert "nobody" not in table
    assert results.verdicts(promises, "missed") == ["ours"]


@pytest.mark.parametrize(
    ("kind", "rounds", "verdict"),
    [
        ("at most", (0.8, 0.9, 0.9), "kept"),
        ("at most", (1.2, 1.3, 1.3), "missed"),
        ("at most", (0.6, 0.9, 0.9), "unsettled"),
        ("at most", (1.05, 1.1, 1.9), "unsettled"),
        ("at least", (1.2, 1.3, 1.3), "kept"),
        ("at least", (0.8, 0.9, 0.9), "missed"),
        ("at least", (0.9, 1.1, 1.1), "unsettled"),
        ("at most", (0.0, 0.0, 0.0), "kept"),
    ],
)
def test_no_verdict_where_the_rounds_lie_apart(kind: str, rounds: tuple[float, ...], verdict: str) -> None:
    """A spread larger than what is between the median and the bound settles nothing, on either side of it."""
    assert Promise("it", kind, 1.0).verdict(Figure("it", "x", rounds)) == verdict


def test_every_bound_is_a_ratio() -> None:
    """A slower machine breaks none: what is promised stands beside a yardstick of the same run, or is a count."""
    assert [one.figure for one in PROMISES if " / " not in one.figure and not one.figure.endswith("errors")] == []


def test_what_is_lacking_is_told_before_anything_runs(tmp_path: Path) -> None:
    """By name, with the command that installs it; exit code 2, no traceback, and no waiting."""
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench", "endpoints", "--cache", str(tmp_path / "none")],
        cwd=ROOT,
        env=os.environ | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "  wrk: apt-get install wrk\n" in done.stderr
    assert "jupyter_server, oidc-provider: python -m tests.bench --install\n" in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout


def test_a_part_needs_its_own_tools_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps and starts without peers run on a bare machine."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert lacking(["steps", "growth", "startup", "streams"], None, 0.01) == []
    assert [lack.name for lack in lacking(["workers"], None)] == ["wrk", "taskset"]
    assert [lack.name for lack in lacking(["fleet"], None)] == ["redis-server"]
    assert {lack.name for lack in lacking(["steps"], tmp_path)} >= {"node", "npm", "xstate"}


def test_too_few_open_files_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand streams want as many; with the command that allows them."""
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, 4096))
    assert [(lack.name, lack.command) for lack in lacking(["streams"], None)] == [
        ("10,200 open files (4,096 are allowed)", "ulimit -Hn 10200 (as root)")
    ]
    assert lacking(["streams"], None, 0.2) == []
    assert lacking(["steps"], None) == []


def test_a_python_without_the_libraries_is_told() -> None:
    """No traceback where the bench's own libraries aren't installed: their name, and how they are."""
    program = "import runpy, sys; sys.modules['httpx'] = None; runpy.run_module('tests.bench', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "this Python lacks what the bench needs: httpx: pip install -e '.[dev]'\n"


def test_what_few_cores_cannot_show_is_told() -> None:
    """In words, where it matters for what was measured."""
    assert cores_in_words(["steps", "workers"], 4) == []
    assert cores_in_words(["steps"], 2) == []
    assert ["workers" in sentence for sentence in cores_in_words(["steps", "workers"], 2)] == [True]
    assert ["one core" in sentence for sentence in cores_in_words(["steps"], 1)] == [True]


def test_every_part_of_a_sign_in_is_somewhere() -> None:
    """Each place that a part of the profile names is there, under that part and no other that comes before."""
    for part, places in PARTS.items():
        for place in places:
            path, _, name = place.partition(":")
            found = [*ROOT.glob(f"{path}*")] if not path.endswith("/") else [*(ROOT / path).glob("*.py")]
            assert found, place
            assert not name or f"def {name}(" in found[0].read_text(), place
            assert part_of(place) == part
    assert part_of("") == part_of("api/cli/lifecycle.py:start") == LOOP


@pytest.mark.process
def test_a_profile_tells_the_whole() -> None:
    """Its shares make one, and what a sign-in surely does has one."""
    profile = measured(4.0, 0.5)
    assert sum(profile.shares.values()) == pytest.approx(1)
    assert set(profile.shares) == {*PARTS, LOOP, OTHERS}
    assert min(profile.shares[OTHERS], profile.shares["bytes read and written, and the requests in them"]) > 0
    assert profile.samples > 20
    assert table(profile.shares).count("\n") == len(PARTS) + 3


def test_the_kept_profile_is_of_the_parts_of_today() -> None:
    """What `--keep` has saved, and the handbook tells, can be had again."""
    kept_shares = json.loads(KEPT.read_text()) if KEPT.exists() else dict.fromkeys((*PARTS, LOOP, OTHERS), 0.0)
    assert set(kept_shares) == {*PARTS, LOOP, OTHERS}


def test_releases_are_drawn_in_order(tmp_path: Path) -> None:
    """A column each, the oldest first, with bars by their share of the largest; what was not measured is left open."""
    for number, rounds in (("0.10.0", (4.0, 4.0)), ("0.9.0", (2.0, 2.0)), ("0.2.0", None)):
        results = Results()
        results.noise = {"waited": 0.1, "spread": 0.0}
        if rounds:
            results.add("a / b", "x", rounds)
        keep(results, tmp_path).rename(tmp_path / f"{number}.json")
    lines = drawn(releases(tmp_path), [Promise("a / b", "at most", 5)]).splitlines()
    assert lines[0] == "| what | promised | 0.2.0 | 0.9.0 | 0.10.0 |  |"
    assert lines[2:] == ["| a / b | at most 5 |  | 2 | 4 |  ▅█ |", "| noise |  | 10% | 10% | 10% |  |"]


def test_the_kept_releases_can_be_drawn() -> None:
    """Each file in the tree is one that `--keep` has written."""
    assert "nan" not in drawn(releases(), PROMISES)


def test_noise_is_a_share() -> None:
    """Nobody gets more time than there is."""
    told = noise()
    assert told["waited"] > -0.05
    assert told["spread"] >= 0


@pytest.mark.process
def test_a_tree_stands_beside_another() -> None:
    """Both are asked the same, and each round tells a ratio."""
    found = beside(ROOT, 2, 2)
    assert [(name, len(ratios), all(ratio > 0 for ratio in ratios)) for name, ratios in found.items()] == [
        ("sign-in", 2, True),
        ("first inspect", 2, True),
        ("inspect", 2, True),
        ("pairing", 2, True),
    ]


@pytest.mark.redis
def test_what_a_fleets_sessions_cost() -> None:
    """Each cost is measured, on a real store."""
    results = Results()
    fleet.measure(results, Plan(1, 0.5, 0.02, None))
    assert set(results.figures) == {
        "fleet's session, taken up",
        "fleet's session, held",
        "fleet's session, in Redis",
        "fleet's change heard, 100/s",
        "fleet's change heard, 1000/s",
        "fleet found again, 100 sessions",
        "fleet found again, 2,000 sessions",
        "fleet found again, 2,000 / 100 sessions",
        "fleet joined, 100 sessions",
        "fleet joined, 2,000 sessions",
        "fleet joined, 2,000 / 100 sessions",
    }


PEERS = ("oidc-provider", "FastAPI", "jupyter_server", "Authlib")


@pytest.mark.wrk
def test_the_endpoints_are_measured_to_the_end() -> None:
    """A second of each load without peers: every figure that a promise of theirs needs is there."""
    results = Results()
    before = os.sched_getaffinity(0)
    try:
        pin(CLIENT_CORE)
        endpoints.measure(results, Plan(1, 0.5, 0.01, None))
    finally:
        os.sched_setaffinity(0, before)
    own = [one.figure for one in PROMISES if not any(peer in one.figure for peer in PEERS)]
    wanted = {name for name in own if name.startswith(("inspect, Hatchway", "inspect at", "sessions list"))}
    assert len(wanted) >= 5
    assert wanted <= set(results.figures)


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
