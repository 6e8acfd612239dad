"""Every interleaving of the events of one code, at every await, through the real runtime, services and store."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch

import msgspec
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from hatchway.api.http.endpoints import auth
from hatchway.api.http.request import Request
from hatchway.api.testing.explorer import World, explore
from hatchway.engine.access.tokens import Tokens
from hatchway.engine.base.clock import TrioClock
from hatchway.engine.base.errors import PairingCodeRefused, PairingExpired
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.keys.keys import generate_token_key
from hatchway.engine.pairings import pairings
from hatchway.engine.pairings.pairings import Claim, Claimant, Pairings
from hatchway.engine.runtime import ActorLocks, Runtime, actors
from hatchway.engine.runtime.records import Origin, Records
from hatchway.engine.sessions.sessions import Sessions
from hatchway.engine.settings.settings import Settings
from hatchway.engine.store.memory import MemoryStore
from hatchway.engine.store.protocol import Change
from hatchway.statecharts import pairing, session
from hatchway.statecharts.interpreter import Interpreter
from hatchway.statecharts.pairing import CLAIM_WINDOW, DECISION_WINDOW
from tests.seeds import drawn
from tests.support.fakes import Watchers, effort

INTERPRETERS = {chart.name: Interpreter(chart) for chart in (pairing.CHART, session.CHART)}
token_key = cache(generate_token_key)

AGES = {"fresh": (0.0, (CLAIM_WINDOW,)), "old": (CLAIM_WINDOW - 1, (1.0, DECISION_WINDOW - 1))}
"""How old the code is as everybody comes, and the jumps of the clock: to where both windows end at once; or to the end
of the claim's and then to that of a decision begun before it. An event is before, or at, the end of its window."""


class WaitingStore(MemoryStore):
    """Others may run before a change is made, for as long as they like."""

    shields_commit = False

    blind = False
    """Planted: any version is taken."""

    def __init__(self, clock: TrioClock) -> None:
        super().__init__(clock)
        self.holds: set[tuple[str, str]] = set()
        """Chart and name of each actor that is stored."""

    async def commit(self, change: Change) -> None:
        await trio.lowlevel.checkpoint()
        if self.blind:
            held = await self.load(change.chart, change.actor)
            change = msgspec.structs.replace(change, expected=held.version if held else 0)
        await super().commit(change)
        (self.holds.discard if change.stored is None else self.holds.add)((change.chart, change.actor))


class SeenLocks(ActorLocks):
    """Tells who waits for an actor, in which order."""

    seen: ClassVar[list[SeenLocks]] = []
    """All of a world, which is made anew for each run."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: dict[str, list[str]] = {}
        self.seen.append(self)

    def acquire_free(self, name: str) -> bool:
        free = super().acquire_free(name)
        if free:
            self._come(name)
        return free

    async def acquire(self, name: str) -> None:
        if self.acquire_free(name):
            return
        self._come(name)
        try:
            await super().acquire(name)
        except BaseException:
            self._go(name)
            raise

    def _come(self, name: str) -> None:
        self.taken.setdefault(name, []).append(str(trio.lowlevel.current_task().name))

    def _go(self, name: str) -> None:
        self.taken[name].remove(str(trio.lowlevel.current_task().name))

    def release(self, name: str) -> None:
        self._go(name)
        super().release(name)


class SeenPairings(Pairings):
    """Tells the claims that were taken."""

    claims: list[Claim]

    async def claim(self, text: str, claimant: Claimant, origin: Origin) -> Claim:
        claim = await super().claim(text, claimant, origin)
        self.claims.append(claim)
        return claim


class CodeWorld(World):
    """One code that is out, and all that may happen to it: each a task of its own."""

    waits_only = True
    clock_jumps = False

    def __init__(self, happenings: tuple[str, ...], age: str, sees_looks: bool) -> None:
        self.happenings, self.sees_looks = happenings, sees_looks
        self.age, self.jumps = AGES[age]
        self.clock = TrioClock(tick=float("inf"))
        self.watch = Watchers()
        self.told: list[str] = []
        self.lines: dict[str, list[Any]] = {"A": [], "B": []}
        self.refused: set[str] = set()
        self.scope = trio.CancelScope()
        self.said_yes = self.a_is_done = False

    def _build(self) -> None:
        """The services; they look at the clock as they are made."""
        self.stores = WaitingStore(self.clock), WaitingStore(self.clock)
        self.runtime = Runtime(self.clock, Records(self.clock, self.watch))
        settings = Settings()
        keys = AuthorizedKeys(Path("/nonexistent/authorized_keys"))
        tokens = Tokens("urn:engine", token_key())
        self.sessions = Sessions(self.runtime, self.stores[0], keys, tokens, lambda: settings)
        self.pairings = SeenPairings(
            self.runtime, self.stores[1], lambda: settings, self.sessions.start, self.sessions.end
        )
        self.pairings.claims = []

    def state(self) -> Hashable:
        """All that the future depends on."""
        locks = [sorted(one.taken.items()) for one in SeenLocks.seen]
        actors = [
            (actor.id, actor.state, actor.version, actor.deadline, actor.timer > 0)
            for chart in ("session", "pairing")
            for actor in self.runtime.actors(chart)
        ]
        stored = [sorted(store.holds) for store in self.stores]
        claims = [(claim.origin.address, claim.answered, claim.given_up) for claim in self.pairings.claims]
        lines = [(address, *map(_kind_of, lines)) for address, lines in self.lines.items()]
        told = [self.told, lines, sorted(self.refused), self.said_yes, self.scope.cancel_called]
        looks = self._looks() if self.sees_looks else None
        return str((trio.current_time(), locks, actors, stored, len(self.pairings), claims, told, looks))

    def _looks(self) -> Hashable:
        """When the timers look next: told by nothing but the timers themselves, since nobody else is to see it."""
        timers = self.runtime.timers
        armed = [(due, actor.id, actor.timer == number) for due, number, actor in sorted(timers._heaps["elapsed"])]
        return str((timers._asleep_until["elapsed"], timers._wake.is_set(), armed))

    def outcome(self) -> Hashable:
        lines = [(address, *map(_kind_of, lines)) for address, lines in self.lines.items()]
        live = len(list(self.runtime.actors("session")))
        return tuple(self.told), tuple(lines), frozenset(self.refused), self.scope.cancel_called, live

    def idle(self, task: Any) -> bool:
        """The timers look at their clocks and find nothing due: nobody sees it, and they look again when there is."""
        return task.name == "timers" and not self.sees_looks and not self._due()

    def commutes(self, task: Any) -> bool:
        """Once the code is over, only a console that may still be told, or hang up, meets what others do."""
        name = str(task.name)
        if name == "leave" and self.a_is_done:
            return True
        if any(True for _ in self.runtime.actors("pairing")) or name in ("leave", "timers"):
            return False
        if name == "approve":
            return all(claim.answered for claim in self.pairings.claims)  # else its session is being made
        claims = (claim for claim in self.pairings.claims if f"claim_{claim.origin.address}".lower() == name)
        claim = next(claims, None)
        if not name.startswith("claim") or claim is None:
            return True  # it finds nothing, or is refused
        return claim.answered and (name == "claim_b" or self.scope.cancel_called)

    def _due(self) -> bool:
        now = {"session": self.clock.wall(), "pairing": self.clock.elapsed()}
        return any(
            actor.timer and actor.deadline is not None and actor.deadline <= now[chart]
            for chart in now
            for actor in self.runtime.actors(chart)
        )

    async def main(self) -> None:
        SeenLocks.seen.clear()
        self._build()
        with drawn(1):
            await self._run()
        self.check()

    async def _run(self) -> None:
        issued = await self.pairings.issue(FIVE, 3600, lambda event, **_: self.told.append(event), Origin("operator"))
        self.name, self.code = issued.id, issued.code
        self._jump(self.age)
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
        self.a_is_done = True

    async def claim_b(self) -> None:
        await self._claim("B")

    async def _claim(self, address: str) -> None:
        request = Request("POST", "/api/auth/pair/request/", b"", (), b"", (address, 40000), ("127.0.0.1", 7420))
        invocation: Any = SimpleNamespace(
            engine=self,
            request=request,
            forwarded=None,
            origin=Origin(None, address),
            fields=auth.PairFields(self.code),
        )
        try:
            stream: Any = (await auth.pair(invocation)).stream
        except PairingCodeRefused:
            self.refused.add(address)
            return
        try:
            async for line in stream:
                await trio.lowlevel.checkpoint()  # it is sent
                if line.strip():
                    self.lines[address].append(msgspec.json.decode(line))
        finally:
            await stream.aclose()

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
        first, *more = self.jumps
        self._jump(first)
        for seconds in more:
            await trio.lowlevel.checkpoint()
            self._jump(seconds)

    def _jump(self, seconds: float) -> None:
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, MockClock)
        clock.jump(seconds)

    def check(self) -> None:
        """The end: whatever happened in whatever order."""
        self.watch.check()
        sessions = [record for record in self.watch.records if (record.chart, record.event) == ("session", "start")]
        tokens = [line for lines in self.lines.values() for line in lines if "token" in line]
        live = list(self.runtime.actors("session"))
        assert len(sessions) <= 1, "the code signed in twice"
        assert len(tokens) <= len(sessions)
        assert self.said_yes or not sessions, "a session that nobody approved"
        assert not len(self.pairings), "the code never came to an end"
        assert not self.stores[1].holds, "the code's end was not stored"
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
        patch.object(actors, "ActorLocks", SeenLocks),
        patch.object(actors, "Interpreter", lambda chart: INTERPRETERS[chart.name]),
        patch.object(auth, "HEARTBEAT", float("inf")),  # neither says anything that isn't said without it
        patch.object(pairings, "LEAVING", 1e9),  # time flies here while a store takes it slowly
    ):
        yield


def _kind_of(line: dict[str, Any]) -> str:
    return "accepted" if "accepted" in line else "token" if "token" in line else str(line["code"])


def world(age: str, *happenings: str, sees_looks: bool = False) -> CodeWorld:
    with drawn(0):
        return CodeWorld(happenings, age, sees_looks)


FEW: dict[str, tuple[str, ...]] = {
    "two consoles": ("claim_a", "claim_b"),
    "a console that goes": ("claim_a", "approve", "leave"),
    "two answers": ("claim_a", "approve", "reject"),
    "withdrawn": ("claim_a", "approve", "withdraw"),
    "two consoles and a yes": ("claim_a", "claim_b", "approve"),
    "two consoles, one of which goes": ("claim_a", "claim_b", "approve", "leave"),
    "answers to a console that goes": ("claim_a", "approve", "reject", "leave"),
}
"""What happens besides the passing of both windows, which is in all of them."""

ALL = {"everything": ("claim_a", "claim_b", "approve", "reject", "withdraw", "leave")}

ORDERS = [(name, age) for name in FEW | ALL for age in AGES]

if effort() < 10:
    ORDERS = [(name, age) for name in FEW for age in AGES if len(FEW[name]) < 4]
    ORDERS.append(("two consoles, one of which goes", "old"))

WHOLE = [(name, age) for name in FEW for age in AGES]
"""What is explored without the reduction too."""

if effort() < 10:
    WHOLE = [("two consoles", "fresh"), ("two consoles", "old"), ("a console that goes", "fresh")]


@pytest.mark.fuzz
@pytest.mark.parametrize(("name", "age"), WHOLE)
def test_the_reduction_loses_nothing(name: str, age: str) -> None:
    """Of a few events: every order and the reduced ones come out the same, and what is said to commute does."""
    whole = explore(partial(world, age, *FEW[name]), reduced=False)
    reduced = explore(partial(world, age, *FEW[name]))
    assert whole.check_commuting() > 10
    assert reduced.outcomes == whole.outcomes
    assert len(reduced.ways) < len(whole.ways)


@pytest.mark.fuzz
def test_idle_looks_change_nothing() -> None:
    """The timers' looks that find nothing due, in every order with all else: the same comes of it."""
    consoles = FEW["two consoles"]
    looks = explore(partial(world, "old", *consoles, sees_looks=True), reduced=False)
    assert looks.outcomes == explore(partial(world, "old", *consoles)).outcomes


@pytest.mark.fuzz
@pytest.mark.parametrize(("name", "age"), ORDERS)
def test_every_order(name: str, age: str) -> None:
    """Whatever comes first: a code signs in once at most, never without a yes, and is always over in the end; each
    claim gets its last item; a console that goes leaves no session behind."""
    explored = explore(partial(world, age, *(FEW | ALL)[name]))
    print(f"{name}, {age}: {explored.runs} runs, {len(explored.ways)} states, {len(explored.outcomes)} outcomes")
    assert len(explored.ways) > 50


@contextmanager
def _claim_not_atomic() -> Iterator[None]:
    """Planted: events of one actor don't wait for each other, and a store takes any version."""

    async def at_once(self: ActorLocks, name: object) -> None: ...

    with (
        patch.object(ActorLocks, "acquire", at_once),
        patch.object(ActorLocks, "release", lambda self, name: None),
        patch.object(WaitingStore, "blind", True),
    ):
        yield


@contextmanager
def _approval_outlives_leaving() -> Iterator[None]:
    """Planted: a console that went while its session was being made keeps it."""

    async def nothing(self: Sessions, token: str, cause: str) -> None: ...

    with patch.object(Sessions, "end", nothing):
        yield


@pytest.mark.parametrize("plant", [_claim_not_atomic, _approval_outlives_leaving])
def test_a_planted_bug_is_found(plant: Callable[[], AbstractContextManager[None]]) -> None:
    """Among all events at once."""
    with plant(), pytest.raises((AssertionError, BaseExceptionGroup)) as found:
        explore(partial(world, "fresh", *ALL["everything"]))
    assert "in this order" in found.value.__notes__[0]
