"""One chart step beside `transitions`' own trigger and xstate's; bytes of an actor; a million timers."""

from __future__ import annotations

import gc
import heapq
import json
import resource
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import trio
from transitions import Machine

from hatchway.engine.access.principal import SessionFacts
from hatchway.engine.base.clock import SystemClock
from hatchway.engine.runtime import Runtime
from hatchway.engine.runtime.records import Records
from hatchway.engine.runtime.timers import Timers
from hatchway.engine.store.memory import MemoryStore
from hatchway.statecharts import session
from tests.bench.results import Plan, Results, at

FACTS = SessionFacts("SHA256:one", "key", ("SHELL", "AGENT"), 3600, 0.0, 2e9, "127.0.0.1")
ACTORS = 10_000
"""Live ones that the steps go round; one alone would sit in the processor's nearest cache, which no engine's does."""

XSTATE = Path(__file__).parent / "peers" / "step.mjs"


def resident() -> int:
    """Bytes that this process holds resident now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def a_runtime() -> Runtime:
    """A runtime with the session's chart over a store in memory; its effects do nothing, its records go nowhere."""
    clock = SystemClock()
    runtime = Runtime(clock, Records(clock))
    runtime.register(
        session.CHART,
        facts=SessionFacts,
        store=MemoryStore(clock),
        effects=dict.fromkeys(session.CHART.effects, lambda actor, data: None),
        rules={"session_lifetime": lambda facts, now: now + facts.lifetime},
    )
    return runtime


def a_trigger() -> Callable[[int], None]:
    """`transitions` alone: the same chart, one machine, an event triggered on a row with slots."""

    class Row:
        __slots__ = ("state",)
        state: str

    machine = Machine(model=None, states=list(session.CHART.states), initial="none", auto_transitions=False)
    for way in session.CHART.rows:
        machine.add_transition(way.event, way.state, way.target)
    rows, trigger = [Row() for _ in range(ACTORS)], machine.events["renew"].trigger
    for row in rows:
        row.state = "active"

    def run(times: int) -> None:
        for number in range(times):
            trigger(rows[number % ACTORS])

    return run


def step_and_trigger(rounds: int, times: int) -> tuple[list[float], list[float]]:
    """CPU seconds of a whole step (advance, store, record, delay armed again) and of a bare trigger, by turns."""
    steps, triggers = [], []
    trigger = a_trigger()

    async def run() -> None:
        runtime = a_runtime()
        names = [f"{number:016d}" for number in range(ACTORS)]
        for name in names:
            await runtime.create("session", name, "start", FACTS, proof="signature")
        for _ in range(rounds):
            began = time.process_time()
            for number in range(times):
                await runtime.send("session", names[number % ACTORS], "renew")
            between = time.process_time()
            trigger(times)
            steps.append((between - began) / times)
            triggers.append((time.process_time() - between) / times)

    trio.run(run)
    return steps, triggers


def actor_bytes(count: int) -> float:
    """Bytes of a live actor with its facts, its armed delay, and its row in a store in memory."""

    async def run() -> float:
        runtime, clock = a_runtime(), SystemClock()
        gc.collect()
        before = resident()
        for number in range(count):
            now = clock.wall()
            facts = SessionFacts("SHA256:one", "key", FACTS.permissions, 3600, now, now + 1e5, "127.0.0.1")
            await runtime.create("session", f"{number:016d}", "start", facts, proof="signature")
        gc.collect()
        return (resident() - before) / count

    return trio.run(run)


def by_hand_bytes(count: int) -> float:
    """Bytes of the same as dicts by hand, and an entry in a heap: what one writes without a runtime and a store."""
    heap: list[tuple[float, int, Any]] = []
    kept: dict[str, dict[str, Any]] = {}
    gc.collect()
    before = resident()
    for number in range(count):
        now = time.time()
        facts = {"identity": FACTS.identity, "permissions": FACTS.permissions, "lifetime": 3600, "started": now}
        actor = {"state": "active", "version": 1, "deadline": now + 3600, "facts": facts}
        kept[f"{number:016d}"] = actor
        heapq.heappush(heap, (now + 3600, number, actor))
    gc.collect()
    return (resident() - before) / count


class Timed:
    """What is armed."""

    __slots__ = ("timer",)

    def __init__(self) -> None:
        self.timer = 0


async def timers(count: int, firing: int, seconds: float) -> dict[str, float]:
    """`count` armed timers: bytes, seconds to arm, share of a core when idle, lateness while `firing` a second fire."""
    late: list[float] = []

    async def fire(item: Timed) -> None:
        await trio.lowlevel.checkpoint()

    armed: Timers[Timed] = Timers(SystemClock(), fire, late.append)
    items = [Timed() for _ in range(count)]
    gc.collect()
    before, began, now = resident(), time.perf_counter(), SystemClock().elapsed()
    for number, item in enumerate(items):
        armed.arm(item, now + 3600 + number * 0.001)
    told = {"seconds": time.perf_counter() - began, "bytes": float(resident() - before)}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(armed.run)
        await trio.sleep(0.1)
        spent = time.process_time()
        await trio.sleep(seconds)
        told["idle"] = (time.process_time() - spent) / seconds
        now = SystemClock().elapsed() + 0.5
        for number in range(int(firing * seconds)):
            armed.arm(items[number * 7 % count], now + number / firing)
        await trio.sleep(seconds + 1)
        nursery.cancel_scope.cancel()
    late.sort()
    return told | {"p999": late[int(len(late) * 0.999)], "fired": float(len(late))}


async def bare_heap(count: int, firing: int, seconds: float) -> dict[str, float]:
    """The same by a heap and a loop that sleeps until its first entry: nothing can be armed or disarmed meanwhile."""
    items = [Timed() for _ in range(count)]
    gc.collect()
    before, began, clock, heap = resident(), time.perf_counter(), SystemClock(), list[tuple[float, int, Timed]]()
    for number, item in enumerate(items):
        heapq.heappush(heap, (clock.elapsed() + 3600, number, item))
    told = {"seconds": time.perf_counter() - began, "bytes": float(resident() - before)}
    late, now = list[float](), clock.elapsed() + 0.5
    for number in range(int(firing * seconds)):
        heapq.heappush(heap, (now + number / firing, -number, items[number * 7 % count]))
    while len(late) < int(firing * seconds):
        await trio.sleep(max(heap[0][0] - clock.elapsed(), 0))
        while heap[0][0] <= clock.elapsed():
            late.append(clock.elapsed() - heapq.heappop(heap)[0])
    return told | {"p999": at(0.999, late)}


def xstate(cache: Path, times: int, rounds: int) -> list[float] | None:
    """Seconds of an xstate event on an actor whose state has a timer; None where node or xstate are missing."""
    if not (cache / "node_modules" / "xstate").is_dir():
        return None
    script = cache / XSTATE.name  # node looks for packages beside the script
    script.write_text(XSTATE.read_text())
    done = subprocess.run(
        ["node", script, str(ACTORS), str(times), str(rounds)], capture_output=True, check=True, text=True
    )
    told: list[float] = json.loads(done.stdout)
    return told


def measure(results: Results, plan: Plan) -> None:
    """All of it."""
    steps, triggers = step_and_trigger(plan.rounds, 20_000)
    results.add("chart step", "us", [one * 1e6 for one in steps])
    results.add("transitions' own trigger", "us", [one * 1e6 for one in triggers])
    results.ratio("chart step / transitions' own trigger", "chart step", "transitions' own trigger")
    if plan.cache and (told := xstate(plan.cache, 20_000, plan.rounds)):
        results.add("xstate event with a timer", "us", [one * 1e6 for one in told])
        results.ratio("chart step / xstate's", "chart step", "xstate event with a timer")
    live = int(100_000 * plan.size)
    for name, measured in (("live actor with an armed delay", actor_bytes), ("the same by hand", by_hand_bytes)):
        results.add(name, "bytes", [isolated(measured, live) for _ in range(plan.rounds)])
    results.ratio("live actor / the same by hand", "live actor with an armed delay", "the same by hand")
    _measure_timers(results, plan)


def _measure_timers(results: Results, plan: Plan) -> None:
    count = int(1_000_000 * plan.size)
    told_timers, bare = [], []
    for _ in range(plan.rounds):
        told_timers.append(isolated(trio.run, timers, count, 1000, plan.seconds))
        bare.append(isolated(trio.run, bare_heap, count, 1000, plan.seconds))
    for key, unit, scale in (
        ("bytes", "MB", 1e-6),
        ("seconds", "s", 1),
        ("idle", "% of a core", 100),
        ("p999", "ms", 1e3),
    ):
        name = _TIMERS[key].format(count)
        results.add(name, unit, [one[key] * scale for one in told_timers])
        if key in bare[0]:
            results.add(f"{name}, a bare heap", unit, [one[key] * scale for one in bare])
            results.ratio(f"timers, {_ASPECTS[key]} / a bare heap's", name, f"{name}, a bare heap")


_TIMERS = {
    "bytes": "{:,} armed timers, memory",
    "seconds": "{:,} timers, time to arm",
    "idle": "{:,} timers, idle",
    "p999": "{:,} timers, p99.9 lateness at 1,000/s",
}


_ASPECTS = {"bytes": "memory", "seconds": "time to arm", "p999": "p99.9 lateness"}


def isolated(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function gives in a process of its own: memory that others left free would be used again."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        return processes.submit(function, *arguments).result()
