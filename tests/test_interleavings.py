"""Every interleaving of the events of one code, at every await, through the real runtime, services and store."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from api.http import auth
from engine import kinds, pairings, timers
from engine.clock import TrioClock
from engine.errors import PairingCodeRefused, PairingExpired
from engine.pairings import Pairings
from engine.records import Origin, Records
from engine.runtime import Runtime
from engine.sessions import Sessions
from engine.settings import Settings
from engine.store.memory import MemoryStore
from engine.store.protocol import Change
from engine.trust.authorized_keys import AuthorizedKeys
from engine.trust.challenges import Challenges
from engine.trust.keys import generate_token_key
from engine.trust.permissions import FIVE
from engine.trust.tokens import Tokens
from statecharts import pairing, session
from statecharts.interpreter import Interpreter
from tests.explorer import explore, where
from tests.fakes import Watch, effort, key
from tests.seeds import drawn

INTERPRETERS = {chart.name: Interpreter(chart) for chart in (pairing.CHART, session.CHART)}
token_key = cache(generate_token_key)

TIMES = (29.0, 2.0, 60.0)
"""Jumps of the clock: inside the claim's window, to its end, and so for a decision; then past everything."""


class WaitingStore(MemoryStore):
    """Others may run before a change is made, for as long as they like."""

    async def commit(self, change: Change) -> None:
        await trio.lowlevel.checkpoint()
        await super().commit(change)


class CodeWorld:
    """One code that is out, and all that may happen to it: each a task of its own."""

    def __init__(self, happenings: tuple[str, ...]) -> None:
        self.happenings = happenings
        self.clock = TrioClock()
        self.watch = Watch()
        self.stores = WaitingStore(self.clock), WaitingStore(self.clock)
        self.runtime = Runtime(self.clock, Records(self.clock, self.watch))
        settings = Settings()
        keys = AuthorizedKeys(Path("/nonexistent/authorized_keys"))
        tokens = Tokens(self.clock, "urn:engine", token_key())
        challenges = Challenges(self.clock)
        self.sessions = Sessions(
            self.runtime, self.stores[0], keys, tokens, challenges, lambda: settings, lambda: key().public
        )
        self.pairings = Pairings(self.runtime, self.stores[1], lambda: settings, self.sessions.start)
        self.told: list[str] = []
        self.lines: dict[str, list[Any]] = {"A": [], "B": []}
        self.refused: set[str] = set()
        self.held: list[auth._Held] = []
        self.scope = trio.CancelScope()
        self.said_yes = False

    def state(self) -> Hashable:
        """All that the future depends on."""
        runtime = self.runtime
        lots = [tuple(task.name for task in lot._parked) if lot else None for lot in runtime._turns._waiting.values()]
        actors = [
            (actor.id, actor.state, actor.version, actor.deadline, actor.timer > 0)
            for chart in ("session", "pairing")
            for actor in runtime.actors(chart)
        ]
        stored = [sorted((chart, *held) for chart, held in store._actors.items()) for store in self.stores]
        live = [(name, code.claim and code.claim.origin) for name, code in self.pairings._live.items()]
        held = [(stream._over, stream._claim.answered, where(stream._lines)) for stream in self.held]
        told = [self.told, self.lines, sorted(self.refused), self.said_yes, self.scope.cancel_called]
        return str((trio.current_time(), lots, actors, stored, live, held, told))

    def idle(self, name: str) -> bool:
        """The timers look at their clocks, and nothing is due."""
        now = {"elapsed": self.clock.elapsed(), "wall": self.clock.wall()}
        return (
            name == "timers"
            and not any(entry[0] <= now[clock] for clock, heap in self.runtime.timers._heaps.items() for entry in heap)
            and not any(actor.deadline <= now["elapsed"] for actor in self.runtime.actors("pairing") if actor.deadline)
        )

    async def main(self) -> None:
        with drawn(1):
            await self._run()
        self.check()

    async def _run(self) -> None:
        issued = await self.pairings.issue(FIVE, 3600, lambda event, **_: self.told.append(event), Origin("operator"))
        self.name, self.code = issued.id, issued.code
        async with trio.open_nursery() as timers:
            timers.start_soon(self.runtime.run, name="timers")
            async with trio.open_nursery() as nursery:
                for happening in (*self.happenings, "time"):
                    nursery.start_soon(getattr(self, happening), name=happening)
            await trio.testing.wait_all_tasks_blocked()
            timers.cancel_scope.cancel()

    async def claim_a(self) -> None:
        with self.scope:
            await self._claim("A")

    async def claim_b(self) -> None:
        await self._claim("B")

    async def _claim(self, address: str) -> None:
        try:
            claim = await self.pairings.claim(self.code, b"", address, None, Origin(None, address))
        except PairingCodeRefused:
            self.refused.add(address)
            return
        visit: Any = SimpleNamespace(engine=SimpleNamespace(**vars(self), stopping=trio.Event()))
        held = auth._Held(visit, claim)
        self.held.append(held)
        try:
            async for line in held:
                await trio.lowlevel.checkpoint()  # it is sent
                if line.strip():
                    self.lines[address].append(msgspec.json.decode(line))
        finally:
            await held.aclose()

    async def leave(self) -> None:
        """A's console hangs up: the server cancels whatever it has reached."""
        self.scope.cancel()

    async def approve(self) -> None:
        self.said_yes = True
        with suppress(PairingExpired):
            await self.pairings.answer(self.name, True, Origin("operator"))

    async def reject(self) -> None:
        with suppress(PairingExpired):
            await self.pairings.answer(self.name, False, Origin("operator"))

    async def withdraw(self) -> None:
        await self.pairings.withdraw(self.name, Origin("operator"))

    async def time(self) -> None:
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, MockClock)
        for seconds in TIMES:
            clock.jump(seconds)
            await trio.lowlevel.checkpoint()

    def check(self) -> None:
        """The end: whatever happened in whatever order."""
        sessions = [record for record in self.watch.records if (record.chart, record.event) == ("session", "start")]
        tokens = [line for lines in self.lines.values() for line in lines if "token" in line]
        live = list(self.runtime.actors("session"))
        assert len(sessions) <= 1, "the code signed in twice"
        assert len(tokens) <= len(sessions)
        assert self.said_yes or not sessions, "a session that nobody approved"
        assert not self.pairings._live, "the code never came to an end"
        assert not self.stores[1]._actors["pairing"], "the code's end was not stored"
        assert self.told[-1] in ("approved", "rejected", "expired", "withdrawn", "left"), self.told
        assert [event for event in self.told if event != "claimed"] == self.told[-1:], "the terminal was told twice"
        assert len(live) == len(tokens), "a session that no console holds, or the reverse"
        for address, lines in self.lines.items():
            if address != "A" or not self.scope.cancel_called:
                out = address in self.refused or f"claim_{address.lower()}" not in self.happenings
                wanted = [] if out else [True, False]
                assert ["accepted" in line for line in lines] == wanted, "a claim without its last item"


@pytest.fixture(autouse=True)
def same_every_time() -> Iterator[None]:
    """Names and codes that are the same in each run; charts that are built once."""
    with (
        patch.object(kinds, "Interpreter", lambda chart: INTERPRETERS[chart.name]),
        patch.object(auth, "HEARTBEAT", float("inf")),  # neither says anything that isn't said without it
        patch.object(timers, "TICK", float("inf")),
        patch.object(pairings, "LEAVING", float("inf")),  # time flies here while a store takes it slowly
    ):
        yield


def world(*happenings: str) -> CodeWorld:
    with drawn(0):
        return CodeWorld(happenings)


SETS: dict[str, tuple[str, ...]] = {
    "two consoles": ("claim_a", "claim_b"),
    "a console that goes": ("claim_a", "approve", "leave"),
    "two answers": ("claim_a", "approve", "reject"),
    "withdrawn": ("claim_a", "approve", "withdraw"),
}
"""What happens besides the passing of both windows, which is in all of them."""

if effort() > 1:
    SETS["two consoles and a yes"] = ("claim_a", "claim_b", "approve")
if effort() >= 10:
    SETS["everything"] = ("claim_a", "claim_b", "approve", "reject", "withdraw", "leave")


@pytest.mark.fuzz
@pytest.mark.parametrize("name", SETS)
def test_every_order(name: str) -> None:
    """Whatever comes first: a code signs in once at most, never without a yes, and is always over in the end; each
    claim gets its last item; a console that goes leaves no session behind."""
    explored = explore(partial(world, *SETS[name]))
    assert len(explored.seen) > 100
