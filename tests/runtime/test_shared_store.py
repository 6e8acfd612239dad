"""Two engines' runtimes over one store, in virtual time: whoever is first wins, and the other believes the store."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
import trio
from trio.testing import MockClock

from hatchway.engine.base.clock import TrioClock
from hatchway.engine.base.errors import EngineUnavailable, StoreUnavailable
from hatchway.engine.runtime import Runtime
from hatchway.engine.runtime.records import Record, Records
from hatchway.engine.settings.redis_address import read_address
from hatchway.engine.store.memory import MemoryStore
from hatchway.engine.store.protocol import Change, Stored
from hatchway.engine.store.redis_link import RedisLink
from hatchway.statecharts import session
from hatchway.statecharts.chart import NONE, Chart, Transition, always
from hatchway.statecharts.interpreter import EventRefused

pytestmark = pytest.mark.virtual_time

LIFETIME = 100.0


class Facts(msgspec.Struct, frozen=True):
    """A session's, as far as its chart goes."""

    lifetime: float = LIFETIME


class SharedStore(MemoryStore):
    """One that others write to as well; a step takes a moment to be stored, in which `meanwhile` may happen."""

    shields_commit = False

    shared = True
    slowness = 0.0

    async def commit(self, change: Change) -> None:
        await trio.sleep(self.slowness)
        await super().commit(change)


class Side:
    """One engine's runtime, and what it recorded."""

    def __init__(self, store: SharedStore, clock: TrioClock) -> None:
        self.records: list[Record] = []
        self.runtime = Runtime(clock, Records(clock, self.records.append))
        nothing = dict.fromkeys(("issue_token", "end_session", "clean_up_tokens"), lambda actor, data: None)
        rules = {"session_lifetime": lambda facts, now: now + facts.lifetime}
        self.runtime.register(session.CHART, facts=Facts, store=store, effects=nothing, rules=rules)

    def told(self) -> list[tuple[str, str | None]]:
        return [(record.event, record.target) for record in self.records]

    async def send(self, event: str) -> None:
        await self.runtime.send("session", "s", event)

    async def hear(self, versions: Mapping[str, int]) -> None:
        await self.runtime.absorb("session", versions)

    @property
    def state(self) -> str | None:
        actor = self.runtime.peek("session", "s")
        return actor.state if actor else None


@pytest.fixture
def sides() -> tuple[SharedStore, Side, Side]:
    clock = TrioClock()
    store = SharedStore(clock)
    return store, Side(store, clock), Side(store, clock)


Sides = tuple[SharedStore, Side, Side]


async def started(side: Side) -> None:
    await side.runtime.create("session", "s", "start", Facts(), proof="signature")


async def test_an_event_finds_what_was_made_elsewhere(sides: Sides, autojump_clock: MockClock) -> None:
    """Without a message: the store is asked in the event's turn. A logout there beats a renewal here."""
    _, a, b = sides
    await started(a)
    await b.send("renew")
    await a.send("logout")
    with pytest.raises(EventRefused):
        await b.send("renew")
    assert (a.state, b.state) == (None, None)


async def test_of_two_at_once_one_is_first(sides: Sides, autojump_clock: MockClock) -> None:
    """A renewal and a logout that start from one version: whichever is stored second looks again, and none is lost."""
    store, a, b = sides
    await started(a)
    store.slowness = 0.1
    outcomes: list[str] = []

    async def attempt(side: Side, event: str) -> None:
        try:
            await side.send(event)
            outcomes.append(event)
        except EventRefused:
            outcomes.append(f"no {event}")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(attempt, a, "renew")
        nursery.start_soon(attempt, b, "logout")
    assert "logout" in outcomes
    assert await store.load("session", "s") is None


async def test_a_delay_whose_actor_ends_as_the_store_goes_away(
    sides: Sides, autojump_clock: MockClock, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A logout is being stored as the lifetime ends; then the store answers nobody. Other delays fire all the same."""
    store, a, _ = sides
    nursery.start_soon(a.runtime.run)
    await started(a)
    await trio.sleep(LIFETIME - 0.5)
    store.slowness = 1.0
    with monkeypatch.context() as away:
        nursery.start_soon(a.send, "logout")
        await trio.sleep(0.9)
        away.setattr(store, "load", _away)
        await trio.sleep(1)
    store.slowness = 0.0
    await started(a)
    await trio.sleep(LIFETIME + 1)
    assert a.told()[-1] == ("lifetime_elapsed", "expired")


async def _away(chart: str, actor: str) -> None:
    raise StoreUnavailable("away")


async def test_one_engine_sweeps(sides: Sides, autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """An expiry is one record, of the engine that made the session; the other forgets it without a word."""
    _, a, b = sides
    for side in (a, b):
        nursery.start_soon(side.runtime.run)
    told: list[tuple[str | None, ...]] = []
    a.runtime.subscribe_moves(lambda *moved: told.append(moved))
    await started(a)
    await b.hear({"s": 1})
    await trio.sleep(LIFETIME + 30)
    assert told == [], "what an engine does itself is no news to it"
    assert ("lifetime_elapsed", "expired") in a.told()
    assert (a.state, b.state, b.told()) == (None, None, [])


async def test_a_dead_engines_sessions_are_swept(
    sides: Sides, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """The engine that made it is gone: another one sweeps it, some seconds later."""
    _, a, b = sides
    nursery.start_soon(b.runtime.run)
    await started(a)
    await b.hear({"s": 1})
    await trio.sleep(LIFETIME + 1.9)
    assert b.told() == [], "the one that made it comes first, while it lives"
    await trio.sleep(8.3)
    assert b.told() == [("lifetime_elapsed", "expired")]


async def test_what_was_renewed_elsewhere_does_not_expire(
    sides: Sides, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """Also where the renewal is stored while the expiry is on its way to the store."""
    store, a, b = sides
    nursery.start_soon(a.runtime.run)
    await started(a)
    await trio.sleep(LIFETIME - 0.05)
    store.slowness = 0.1  # the expiry sets out at the deadline, the renewal was before it and comes first
    await b.send("renew")
    await trio.sleep(5)
    assert a.told() == [("start", "active")]
    assert a.state == "active"


async def test_what_was_ended_elsewhere_does_not_expire(
    sides: Sides, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """It was logged out while the expiry was on its way to the store: that is all that is told of it."""
    store, a, b = sides
    nursery.start_soon(a.runtime.run)
    await started(a)
    await trio.sleep(LIFETIME - 0.05)
    store.slowness = 0.1
    await b.send("logout")
    await trio.sleep(5)
    assert (a.told(), a.state) == ([("start", "active")], None)


async def test_what_was_moved_elsewhere_and_is_over_all_the_same_expires(
    sides: Sides, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """Renewed for no time at all while the expiry was on its way to the store: it is looked at again at once."""
    store, a, b = sides
    await started(a)
    await trio.sleep(LIFETIME - 0.05)
    store.slowness = 0.1
    nursery.start_soon(partial(b.runtime.send, "session", "s", "renew", changes={"lifetime": 0.0}))
    await trio.sleep(0.05)
    held: Any = a.runtime.peek("session", "s")
    await a.runtime.catch_up(held)
    assert (a.told()[1:], a.state) == ([("lifetime_elapsed", "expired")], None)


WATCH = Chart(
    name="watch",
    rows=(
        Transition(NONE, "hire", always, "asleep"),
        Transition("asleep", "wake", always, "up"),
        Transition("up", "rest", always, "asleep"),
        Transition("up", "leave", always, "gone"),
    ),
    final=frozenset({"gone"}),
)


async def test_what_is_refused_here_may_be_right_there(autojump_clock: MockClock) -> None:
    """By the state that is known here the event would be refused, yet another engine has moved it on: it is asked."""
    store = SharedStore(TrioClock())
    a, b = (Runtime(TrioClock(), Records(TrioClock(), lambda record: None)) for _ in "ab")
    for side in (a, b):
        side.register(WATCH, facts=Facts, store=store, effects={})
    await a.create("watch", "w", "hire", Facts())
    await b.absorb("watch", {"w": 1})
    for side, event in ((a, "wake"), (b, "rest"), (a, "wake"), (b, "rest")):
        await side.send("watch", "w", event)
    stored = await store.load("watch", "w")
    assert stored is not None
    assert (stored.state, stored.version) == ("asleep", 5)


async def test_what_moved_elsewhere_is_told_once(sides: Sides, autojump_clock: MockClock) -> None:
    """To whoever watches here: from which state to which, and that it is gone. What is known already asks no store."""
    store, a, b = sides
    told: list[tuple[str | None, ...]] = []
    looks: list[list[str]] = []
    load_many = store.load_many

    async def noted(chart: str, names: list[str]) -> list[Stored | None]:
        looks.append(names)
        return await load_many(chart, names)

    b.runtime.subscribe_moves(lambda *moved: told.append(moved))
    with patch.object(store, "load_many", noted):
        await started(a)
        for event in ("renew", "logout"):
            for _ in range(2):
                await b.hear({"s": 1 if event == "renew" else 2, "stranger": 0})
            await a.send(event)
        for _ in range(2):
            await b.hear({"s": 0})
    steps = [("none", "active"), ("active", "active"), ("active", None)]
    assert told == [("session", "s", *step) for step in steps]
    assert looks == [["s"]] * 3


async def test_a_message_never_undoes(sides: Sides, autojump_clock: MockClock) -> None:
    """A message of an older step, come late, changes nothing: the store is believed, not the message."""
    _, a, b = sides
    await started(a)
    await b.hear({"s": 1})
    await a.send("renew")
    await b.hear({"s": 2})
    await b.hear({"s": 1})
    held: Any = b.runtime.peek("session", "s")
    assert held.version == 2
    await a.send("logout")
    await b.hear({"s": 2})
    assert b.state == "active"  # by that message there was nothing new
    await b.hear({"s": 0})
    assert b.state is None


async def test_a_name_that_is_used_again_begins_anew(sides: Sides, autojump_clock: MockClock) -> None:
    """The end between was not heard of: the store is believed all the same, though it is at an earlier step."""
    _, a, b = sides
    await started(a)
    await a.send("renew")
    await b.hear({"s": 2})
    await a.send("logout")
    await started(a)
    await b.hear({"s": 1})
    held: Any = b.runtime.peek("session", "s")
    assert held.version == 1
    await b.send("renew")
    assert held.version == 2


def test_without_the_extra_the_refusal_says_what_to_install() -> None:
    """coredis is wanted by nobody but a fleet."""
    with patch.dict(sys.modules, {"coredis": None}), pytest.raises(EngineUnavailable, match=r"hatchway\[fleet\]"):
        RedisLink(read_address("redis://127.0.0.1:1/0"))
