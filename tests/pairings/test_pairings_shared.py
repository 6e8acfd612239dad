"""The pairing service where other engines print and claim codes too: what they are told, and whose guess is counted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from hatchway.engine.base.errors import PairingCodeRefused, StoreUnavailable, TooManyRequests
from hatchway.engine.engine import Engine
from hatchway.engine.pairings.claims import Claim, Claimant, Shown
from hatchway.engine.pairings.pairings import Pairings
from hatchway.engine.runtime.records import NOBODY, Origin
from hatchway.engine.store.memory import MemoryStore
from tests.support.fakes import watch_of
from tests.support.virtual_pairings import OPERATOR, Host

pytestmark = pytest.mark.virtual_time


class Others:
    """The rest of a fleet: what it was told, and what it answers to a claim, None for one that is taken."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.answer: PairingCodeRefused | None = None
        self.gone = False

    async def publish(self, pairing: str, code: str) -> None:
        self.told.append(("publish", code))
        if self.gone:
            raise StoreUnavailable("the fleet's store can't be reached")

    def retire(self, code: str) -> None:
        self.told.append(("retire", code))

    async def claim(self, code: str, shown: Shown, origin: Origin) -> Claim:
        self.told.append(("claim", code))
        if self.answer is not None:
            raise self.answer
        return Claim("elsewhere", origin)

    def leave(self, claim: Claim) -> None:
        self.told.append(("leave", claim.id))

    def stop(self) -> None:
        self.told.append(("stop", ""))


@pytest.fixture
async def others(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Others:
    others = Others()
    monkeypatch.setattr(engine.pairings, "_remote_codes", others)
    return others


async def claim(pairings: Pairings, code: str = "WRONG123") -> Claim:
    return await pairings.claim(code, Claimant("192.0.2.1", None, b""), Origin(None, "192.0.2.1"))


async def test_a_code_is_everybodys_while_it_is_out(engine: Engine, others: Others) -> None:
    """Published before it is printed, and no longer once it is claimed or withdrawn."""
    host = Host(engine)
    first, second = await host.print_code(), await host.print_code()
    await engine.pairings.withdraw(first.id, OPERATOR)
    await claim(engine.pairings, second.code)
    await host.answer(second, False)
    codes = [("publish", first.code), ("publish", second.code), ("retire", first.code), ("retire", second.code)]
    assert others.told == codes


async def test_a_code_that_could_not_be_published_is_not_out(engine: Engine, others: Others) -> None:
    """Nobody is shown a code that only one engine of several would take."""
    others.gone = True
    for _ in range(5):
        with pytest.raises(StoreUnavailable):
            await Host(engine).print_code()
    assert len(engine.pairings) == 0


async def test_a_code_whose_terminal_went_away_while_it_was_published_is_not_out(
    engine: Engine, others: Others, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has seen it, so it takes none of the four places, though there is nobody left to wait for its end."""
    monkeypatch.setattr(others, "publish", lambda *_: trio.sleep_forever())
    monkeypatch.setattr(MemoryStore, "commit", slow(MemoryStore.commit))
    with trio.move_on_after(1):
        await Host(engine).print_code()
    assert len(engine.pairings) == 0


def slow(commit: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """A store where another's turn may come between."""

    async def later(*change: Any) -> None:
        await trio.sleep(0.01)
        await commit(*change)

    return later


@pytest.mark.parametrize(("cause", "counted"), [("wrong_code", True), ("used_code", False), (None, False)])
async def test_a_guess_is_what_no_engine_has_out(
    engine: Engine, others: Others, cause: str | None, counted: bool
) -> None:
    """A code that another engine knows, used up or not, costs its address no try."""
    others.answer = PairingCodeRefused(cause) if cause else None
    outcomes = []
    for _ in range(7):
        try:
            await claim(engine.pairings)
            outcomes.append("taken")
        except TooManyRequests:
            outcomes.append("wait")
        except PairingCodeRefused as refused:
            outcomes.append(refused.cause)
    said = cause or "taken"
    assert outcomes == ([said] * 5 + ["wait"] * 2 if counted else [said] * 7)
    assert others.told == [("claim", "WR0NG123")] * (5 if counted else 7)
    told = [(record.kind, record.cause) for record in watch_of(engine).records if record.chart == "pairing"]
    assert told == [("refusal", cause)] * (0 if cause is None else len(others.told))


async def test_both_ends_are_told_elsewhere(engine: Engine, others: Others, monkeypatch: pytest.MonkeyPatch) -> None:
    """That a console went away, and that the engine stops."""
    elsewhere = await claim(engine.pairings)
    elsewhere.answer(PairingCodeRefused("rejected"))
    others.told.clear()
    await engine.pairings.leave(elsewhere)
    assert others.told == [("leave", "elsewhere")]
    assert not elsewhere.given_up
    await engine.pairings.withdraw_all("engine_stopped")
    assert others.told[-1] == ("stop", "")
    monkeypatch.setattr(engine.pairings, "_remote_codes", None)
    await engine.pairings.withdraw_all("engine_stopped")
    await engine.pairings.leave(elsewhere)
    await engine.pairings.withdraw("nobody's", NOBODY)
