"""The pairing service without HTTP, in virtual time: what the terminal is told of each end, and of guesses."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
import structlog
import trio

from hatchway.engine.base.errors import PairingCodeRefused
from hatchway.engine.engine import Engine
from hatchway.engine.pairings.claims import Claim, Claimant
from hatchway.engine.runtime.records import NOBODY, Origin
from hatchway.engine.settings.settings import Limits
from tests.support.fakes import virtual_engine, watch_of
from tests.support.virtual_pairings import OPERATOR, Host

pytestmark = pytest.mark.virtual_time


async def claimed(engine: Engine, code: str, address: str = "192.0.2.1") -> Claim:
    """A console's claim of a code."""
    return await engine.pairings.claim(code, Claimant(address, None, b""), Origin(None, address))


@pytest.mark.parametrize(
    ("end", "message", "unclaimed"),
    [
        ("expired", "pairing expired on approval", "pairing expired"),
        ("withdrawn", "withdrawn: the code no longer works", "withdrawn: the code no longer works"),
        ("rejected", "rejected: the console was refused", None),
        ("left", "the console went away before the answer: the code no longer works", None),
        ("approved", "approved: the console is signed in", None),
    ],
)
async def test_the_terminal_is_told_which_end_it_was(
    engine: Engine, end: str, message: str, unclaimed: str | None
) -> None:
    """A claimed code that nobody answered is not one that nobody claimed, and no other end is taken for either."""
    for claims, told in ((True, message), (False, unclaimed)):
        if told is None:
            continue
        host = Host(engine)
        issued = await host.print_code()
        claim = await claimed(engine, issued.code) if claims else None
        if end == "expired":
            with structlog.testing.capture_logs() as lines:
                await trio.sleep(31)
            assert "delay_failed" not in [line["event"] for line in lines]
        elif end == "withdrawn":
            await engine.pairings.withdraw(issued.id, OPERATOR)
        elif end == "left":
            assert claim is not None
            await engine.pairings.leave(claim)
        else:
            await host.answer(issued, end == "approved")
        assert [event for event, _ in host.told] == [*["claimed"] * claims, end]
        assert host.told[-1] == (end, {"message": told})


@pytest.mark.parametrize(("total", "told"), [(5, [1, 2, 5]), (1, [1]), (4, [1, 2, 4])])
async def test_guesses_are_told_at_the_first_half_way_and_at_the_last(home: Path, total: int, told: list[int]) -> None:
    """Whatever number withdraws a code, an odd one too."""
    async with virtual_engine(home, limits=Limits(wrong_codes_total=total)) as engine:
        host = Host(engine)
        issued = await host.print_code()
        for count in range(1, total + 1):
            await engine.pairings.wrong_code(issued.id, count, NOBODY)
        assert [details["count"] for event, details in host.told if event == "wrong_codes"] == told
        assert host.last == "withdrawn"


async def test_more_guesses_than_are_allowed_withdraw_a_code_too(home: Path) -> None:
    """Other engines count along, and the number may be lowered while a code is out: the exact one is never seen."""
    async with virtual_engine(home, limits=Limits(wrong_codes_total=5)) as engine:
        host = Host(engine)
        issued = await host.print_code()
        await engine.pairings.wrong_code(issued.id, 4)
        assert len(engine.pairings) == 1
        await engine.pairings.wrong_code(issued.id, 7)
        assert len(engine.pairings) == 0
        assert "too many wrong codes" in host.told[-1][1]["message"]


@pytest.mark.parametrize(("drawn", "shown"), [(0, "00"), (-1, "99")])
async def test_the_number_to_compare_has_two_digits(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, drawn: int, shown: str
) -> None:
    """The smallest and the largest too."""
    monkeypatch.setattr(secrets, "randbelow", lambda below: drawn % below)
    issued = await Host(engine).print_code()
    assert (await claimed(engine, issued.code)).match == shown


async def test_nothing_happens_to_a_code_that_is_used_up(engine: Engine) -> None:
    """Withdrawn again, left after its answer: no word at the terminal, and no refusal among the records."""
    host = Host(engine)
    issued = await host.print_code()
    claim = await claimed(engine, issued.code)
    await host.answer(issued, False)
    said, records = list(host.told), list(watch_of(engine).records)
    await engine.pairings.withdraw(issued.id, OPERATOR)
    await engine.pairings.leave(claim)
    await engine.pairings.wrong_code(issued.id, 1)
    assert (host.told, watch_of(engine).records) == (said, records)


async def test_every_code_that_is_refused_is_a_record(engine: Engine) -> None:
    """With the cause that the console is not told, and where it came from."""
    issued = await Host(engine).print_code()
    await engine.pairings.withdraw(issued.id, OPERATOR)
    for code in (issued.code, "WRONG123"):
        with pytest.raises(PairingCodeRefused):
            await claimed(engine, code)
    told = [(record.event, record.cause, record.address) for record in watch_of(engine).records[-2:]]
    assert told == [("claim", "used_code", "192.0.2.1"), ("claim", "wrong_code", "192.0.2.1")]
