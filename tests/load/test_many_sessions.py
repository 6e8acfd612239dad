"""Very many live sessions on SQLite in FULL: what they weigh, and who waits while they all expire."""

from __future__ import annotations

import gc
import resource
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
import trio

from hatchway.engine.base.permissions import FIVE
from hatchway.engine.engine import Engine, open_engine
from hatchway.engine.runtime.records import NOBODY
from hatchway.engine.settings.settings import Limits, Settings
from tests.support.fakes import MovedClock, effort, key
from tests.support.processes import prepare
from tests.support.timing import Share

MIB = 1024 * 1024
SESSIONS = 100_000 if effort() >= 10 else 20_000
AT_ONCE = 256
MANY = Settings(limits=Limits(sessions_per_identity=1_000_000))

pytestmark = pytest.mark.bench


def resident() -> int:
    """Bytes this process holds now."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """A line a step on a captured terminal costs more than the step; an engine's own log is written by a thread."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    structlog.reset_defaults()


async def start_many(engine: Engine) -> None:
    async def some() -> None:
        for _ in range(SESSIONS // AT_ONCE):
            await engine.sessions.start("key", key().identity, FIVE, 3600, proof="signature", origin=NOBODY)

    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(some)


async def test_many_live_sessions(home: Path) -> None:
    """A hundred thousand weigh less than 150 MB; while all expire, requests wait 50 ms at p99 and 250 ms at most.

    As long as the engine has its core: what others take of it is taken off.
    """
    prepare(home)
    clock = MovedClock()
    async with open_engine(home, lambda: MANY, clock) as engine:
        idle = resident()
        await start_many(engine)
        weight = resident() - idle
        live = sum(1 for _ in engine.runtime.actors("session"))
        clock.wall_ahead = 3700.0
        waits, share = list[float](), Share()
        while any(True for _ in engine.runtime.actors("session")):
            before = trio.current_time()
            signed_in = await engine.sessions.start(
                "key", key().identity, FIVE, 86_400, proof="signature", origin=NOBODY
            )
            between = trio.current_time()
            await engine.sessions.end(signed_in.token, "test")
            waits += between - before, trio.current_time() - between
            await trio.sleep(0.005)
        had, p99 = share.now(), statistics.quantiles(waits, n=100, method="inclusive")[98]
    print(f"{live} sessions: {weight / MIB:.0f} MiB, p99 {p99 * 1000:.0f} ms,"
          f" longest {max(waits) * 1000:.0f} ms of {len(waits)}")  # fmt: skip
    assert live > 0.99 * SESSIONS
    assert weight < 150 * MIB * live / 100_000 + 10 * MIB
    assert p99 * had < 0.05
    assert max(waits) * had < 0.25
