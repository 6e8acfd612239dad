"""The example of the handbook: a lease on a lab's instrument, run durably, in virtual time, on every store."""

from __future__ import annotations

import re
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hatchway.charts import (
    EventRefused,
    MemoryStore,
    Record,
    Records,
    Runtime,
    Store,
    TrioClock,
    redis_store,
    sqlite_store,
)
from tests.examples.lease import CHART, Leases
from tests.readme import CHAPTERS
from tests.support.fakes import ROOT


class Lab:
    """Leases that run, what was told to whom, and the records."""

    def __init__(self, store: Store, clock: TrioClock) -> None:
        self.told: list[tuple[str, str, str]] = []
        self.records: list[Record] = []
        self.runtime = Runtime(clock, Records(clock, self.records.append))
        self.leases = Leases(self.runtime, store, lambda *told: self.told.append(told))


@asynccontextmanager
async def lab(store: Store, clock: TrioClock) -> AsyncIterator[Lab]:
    made = Lab(store, clock)
    await made.runtime.restore("lease")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.runtime.run)
        yield made
        nursery.cancel_scope.cancel()


def blocks(name: str) -> str:
    (found,) = re.findall(rf"^```python {name}\n(.*?)^```", CHAPTERS["charts"].read_text(), re.DOTALL | re.MULTILINE)
    return str(found)


def test_the_handbook_shows_the_example() -> None:
    """Word for word, and what `chart check` says of it."""
    assert blocks("lease") == (ROOT / "tests" / "examples" / "lease.py").read_text()


async def test_the_three_lines(autojump_clock: MockClock) -> None:
    """As they stand in the handbook: an hour passes, with a warning five minutes before its end."""
    clock = TrioClock()
    async with lab(MemoryStore(clock), clock) as here:
        scope: dict[str, Any] = {"leases": here.leases, "trio": trio}
        exec(f"async def lines():\n{textwrap.indent(blocks('virtual'), '    ')}", scope)
        await scope["lines"]()
    assert here.told == [
        ("keeper", "microscope", "ada asks for it"),
        ("ada", "microscope", "granted"),
        ("ada", "microscope", "warned"),
        ("instrument", "microscope", "off"),
        ("ada", "microscope", "expired"),
    ]
    assert [(record.event, record.time - clock.epoch) for record in here.records] == [
        ("request", 0),
        ("grant", 0),
        ("warning_elapsed", 3300),
        ("lease_elapsed", 3600),
    ]


async def test_extended_and_released(autojump_clock: MockClock) -> None:
    """Its holder may extend it, warned or not, and give it back; nobody else; an instrument is one person's."""
    clock = TrioClock()
    async with lab(MemoryStore(clock), clock) as here:
        leases = here.leases
        await leases.request("laser", "ada", 3600)
        with pytest.raises(EventRefused, match="no_row"):
            await leases.request("laser", "bob", 3600)
        await leases.send("grant", "laser", "keeper")
        for wait in (3000, 3500, 100):
            await trio.sleep(wait)
            with pytest.raises(EventRefused, match="is_the_holder"):
                await leases.send("release", "laser", "bob")
            await leases.send("extend", "laser", "ada")
        await leases.send("release", "laser", "ada")
        with pytest.raises(EventRefused, match="no_actor"):
            await leases.send("extend", "laser", "ada")
        await leases.request("laser", "bob", 60)
        await trio.sleep(901)
    assert here.told[-1] == ("bob", "laser", "refused")
    assert ("instrument", "laser", "off") in here.told


async def test_it_outlives_a_restart(autojump_clock: MockClock, tmp_path: Path) -> None:
    """From its file the next process takes up every lease, its delays where they were."""
    clock, path = TrioClock(), tmp_path / "leases.db"
    with sqlite_store(path, clock, inline=True) as store:
        async with lab(store, clock) as before:
            await before.leases.request("laser", "ada", 3600)
            await before.leases.send("grant", "laser", "keeper")
    assert path.stat().st_mode & 0o777 == 0o600
    await trio.sleep(3300)
    with sqlite_store(path, clock, inline=True) as store:
        async with lab(store, clock) as after:
            await trio.sleep(301)
    assert [event for _, _, event in after.told] == ["warned", "off", "expired"]


@pytest.mark.redis
async def test_two_programs_share_a_store(redis: Any) -> None:
    """What one did the other sees at its next event."""
    clock = TrioClock()
    async with (
        redis_store(redis.url) as one,
        redis_store(redis.url) as two,
        lab(one, clock) as here,
        lab(two, clock) as there,
    ):
        await here.leases.request("laser", "ada", 3600)
        await there.runtime.send("lease", "laser", "grant", by="keeper", holder="ada")
        with pytest.raises(EventRefused, match="no_row"):
            await here.leases.send("grant", "laser", "keeper")
    assert there.told == [("ada", "laser", "granted")]


def test_every_name_of_the_chart_has_its_handler() -> None:
    """The example registers without a fault; its effects are the chart's."""
    clock = TrioClock()
    Lab(MemoryStore(clock), clock)
    assert CHART.effects == {"ask_keeper", "tell_holder", "switch_off"}
