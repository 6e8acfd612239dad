"""The charts against machines we did not write: XState plays its own timers, python-statemachine reads the SCXML."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import trio.testing
from statemachine.io.scxml.processor import SCXMLProcessor

from hatchway.engine.base.clock import TrioClock
from hatchway.engine.runtime import Runtime
from hatchway.engine.runtime.records import Record, Records
from hatchway.engine.store.memory import MemoryStore
from hatchway.statecharts.catalogue import CHARTS
from hatchway.statecharts.chart import NONE, Chart, always
from hatchway.statecharts.draw.exports import scxml, xstate
from hatchway.statecharts.interpreter import EventRefused, Interpreter
from tests.support.fakes import effort

XSTATE = Path(__file__).parents[1] / "data" / "xstate"
SEQUENCES, LONGEST = int(2_500 * effort()), 8
"""Enough to reach every state, and to try every event in each: both are asserted."""

LIFETIME = 90.0
"""Seconds of the sessions here."""

WAITS = (0, 0, 0, 1_000, 29_999, 30_000, 30_001, 45_000, 89_999, 90_000)
"""Milliseconds before an event: often none, often a window to the brim."""

PROOFS = ("signature", "approval", "none")

Move = tuple[int, str, str]
"""Milliseconds to wait, the event, and the proof it brings."""


def moves(chart: Chart, seed: str) -> list[list[Move]]:
    """Random sequences, the same on every machine. Time events are left to the machines' own timers."""
    chance = Random(seed)
    timed = {delay.event for delay in chart.delays.values()}
    events = [event for event in chart.events if event not in timed]
    first = chart.rows[0].event

    def sequence() -> Iterator[Move]:
        if chance.random() < 0.9:
            yield 0, first, "signature"
        for _ in range(chance.randint(1, LONGEST)):
            yield chance.choice(WAITS), chance.choice(events), chance.choice(PROOFS)

    return [list(sequence()) for _ in range(SEQUENCES)]


class Ours:
    """The engine's own runtime, in virtual time; `play` gives the state after each step."""

    def __init__(self, chart: Chart, clock: trio.testing.MockClock) -> None:
        self._chart, self._clock = chart, clock
        time = TrioClock()
        self._runtime = Runtime(time, Records(time, self._note))
        rules = {
            delay.seconds: lambda facts, now: now + LIFETIME
            for delay in chart.delays.values()
            if isinstance(delay.seconds, str)
        }
        self._runtime.register(
            chart,
            facts=msgspec.Struct,
            store=MemoryStore(time),
            effects=dict.fromkeys(chart.effects, lambda actor, data: None),
            rules=rules,
        )
        self._states: dict[str, str] = {}

    def _note(self, record: Record) -> None:
        if record.target is not None:
            self._states[record.actor] = record.target

    async def play(self, actor: str, sequence: list[Move]) -> list[str]:
        return [await self._step(actor, *move) for move in sequence]

    async def _step(self, actor: str, wait: int, event: str, proof: str) -> str:
        self._clock.jump(wait / 1000)
        with suppress(EventRefused):
            if actor in self._states:
                await self._runtime.send(self._chart.name, actor, event, proof=proof)
            else:
                await self._runtime.create(self._chart.name, actor, event, msgspec.Struct(), proof=proof)
        return self._states.get(actor, NONE)


@pytest.fixture(scope="session")
def xstate_folder() -> Path:
    """XState, as the lock file beside the player has it."""
    if not (XSTATE / "node_modules" / "xstate").is_dir():
        subprocess.run(["npm", "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=XSTATE, check=True)
    return XSTATE


@pytest.mark.node
@pytest.mark.fuzz
@pytest.mark.parametrize("chart", CHARTS.values(), ids=CHARTS)
async def test_xstate_goes_where_we_go(chart: Chart, xstate_folder: Path, mock_clock: trio.testing.MockClock) -> None:
    """Random sequences of events and waits: XState, by its own timers, is in our state at every step."""
    sequences = moves(chart, f"xstate {chart.name}")
    question = {"config": xstate(chart), "lifetime": LIFETIME * 1000, "sequences": sequences}
    answer = subprocess.run(
        ["node", "play.mjs"], cwd=xstate_folder, input=json.dumps(question).encode(), capture_output=True, check=True
    )
    ours = Ours(chart, mock_clock)
    theirs = json.loads(answer.stdout)
    seen = set()
    for number, (sequence, states) in enumerate(zip(sequences, theirs, strict=True)):
        assert await ours.play(str(number), sequence) == states, sequence
        seen.update(states)
    assert seen >= set(chart.states) - {NONE}, "the sequences must reach every state to prove anything"


@pytest.mark.fuzz
@pytest.mark.parametrize("chart", CHARTS.values(), ids=CHARTS)
def test_python_statemachine_goes_where_we_go(chart: Chart) -> None:
    """Random sequences on the SCXML without delays, time events sent by us: the same states at every step, and
    every event in every state. A machine without timers remembers nothing else: more sequences prove no more."""
    chance = Random(f"scxml {chart.name}")
    theirs = SCXMLProcessor()
    theirs.parse_scxml(chart.name, scxml(chart, delays=False))
    machine_class, interpreter = theirs.scs[chart.name], Interpreter(chart)
    guards = {row.guard for row in chart.rows} - {always}
    seen = set[tuple[str, str]]()
    for _ in range(SEQUENCES // 4):
        machine, state = machine_class(), NONE
        for _ in range(chance.randint(1, 3 * LONGEST)):
            ways = [row.event for row in chart.rows if row.state == state]
            untried = [event for event in chart.events if (state, event) not in seen]
            event = chance.choice(ways if ways and chance.random() < 0.7 else untried or chart.events)
            data: dict[str, Any] = {"now": chance.choice((0, 1)), "deadline": 1, "proof": chance.choice(PROOFS)}
            holding: dict[str, Any] = {guard.__name__: guard(data) for guard in guards}
            machine.send(event, **holding)
            seen.add((state, event))
            with suppress(EventRefused):
                state = interpreter.advance(state, event, data).target
            assert list(machine.configuration_values) == [state]
    assert seen == set(product({NONE, *chart.states}, chart.events))
