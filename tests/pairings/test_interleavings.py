"""Every interleaving of the events of one code, at every await, through the real runtime, services and store.

What may as well go first goes first (`CodeWorld.commutes`), else all events at once would not come to an end. Smaller
worlds are explored without that too: it loses nothing that may come of any of their states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from unittest.mock import patch

import pytest

from hatchway.api.http.endpoints import auth
from hatchway.api.testing.explorer import explore
from hatchway.engine.pairings import pairings
from hatchway.engine.runtime import ActorLocks, actors
from hatchway.engine.sessions.sessions import Sessions
from hatchway.statecharts import pairing, session
from hatchway.statecharts.interpreter import Interpreter
from tests.pairings.code_world import AGES, CodeWorld
from tests.pairings.seen_services import SeenLocks, WaitingStore
from tests.seeds import drawn
from tests.support.fakes import effort

INTERPRETERS = {chart.name: Interpreter(chart) for chart in (pairing.CHART, session.CHART)}


@pytest.fixture(autouse=True)
def same_every_time() -> Iterator[None]:
    """Names and codes that are the same in each run; charts that are built once."""
    with (
        patch.object(actors, "ActorLocks", SeenLocks),
        patch.object(actors, "Interpreter", lambda chart: INTERPRETERS[chart.name]),
        patch.object(auth, "HEARTBEAT", float("inf")),  # neither says anything that isn't said without it
        patch.object(pairings, "LEAVE_PATIENCE", 1e9),  # time flies here while a store takes it slowly
    ):
        yield


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
    ORDERS += [("two consoles, one of which goes", "old"), ("answers to a console that goes", "fresh")]

WHOLE = [(name, age) for name in FEW for age in AGES]
"""What is explored without the reduction too."""

if effort() < 10:
    WHOLE = [("two consoles", "fresh"), ("two consoles", "old"), ("a console that goes", "fresh")]
    WHOLE.append(("two answers", "fresh"))


@pytest.mark.fuzz
@pytest.mark.parametrize(("name", "age"), WHOLE)
def test_the_reduction_loses_nothing(name: str, age: str) -> None:
    """Of a few events: every order and the reduced ones come out the same, and where something goes first
    alone, nothing is lost of what may come of that state."""
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
    assert len(explored.ways) > 30


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
