"""The handbook's arithmetic follows from the measured costs, and a session's row weighs what is reckoned with."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest

from hatchway.engine.access.principal import SessionFacts
from hatchway.engine.base.errors import StoreUnavailable
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.store.protocol import Change, Stored
from tests.bench.sizing import ROW_BYTES, Growth, grow, most_sessions, rows
from tests.readme import CHAPTERS
from tests.support.redis_server import RedisServer, redis_store, speak

SIZING = CHAPTERS["sizing"].read_text()


def test_the_handbooks_numbers_follow() -> None:
    """Each row of its table, and where Redis gives out."""
    for row in rows():
        assert row in SIZING
    assert f"{most_sessions():,} sessions" in SIZING


def cores(told: Growth, engines: int) -> float:
    """The part of a core that each of so many engines needs, reckoned anew from the costs that the chapter names."""
    costs = r"- ([0-9]+) us of an engine's CPU for an inspection;\n- ([0-9]+) us for a sign-in .*, and ([0-9]+) us more"
    inspection, sign_in, commit = map(int, re.search(costs, SIZING).groups())  # type: ignore[union-attr]
    heard = int(re.search(r"- ([0-9]+) us in every other engine", SIZING)[1])  # type: ignore[index]
    mine = told.inspections * inspection + told.renewals * (sign_in + commit)
    return (mine / engines + told.renewals * (engines - 1) / engines * heard) / 1e6


@pytest.mark.parametrize("sessions", [1, 700_000, 900_000, 5_000_000, 44_000_000])
def test_as_many_engines_as_are_needed(sessions: int) -> None:
    """With so many each is half busy at most, with one less each is more."""
    told = grow(sessions)
    assert cores(told, told.engines) <= 0.5
    assert told.engines == 1 or cores(told, told.engines - 1) > 0.5


def test_more_engines_help_only_so_far() -> None:
    """Where every engine hears of more changes than it can take, the reckoning says so."""
    assert grow(44_900_000).engines > 100
    with pytest.raises(OverflowError, match="more of them do not help"):
        grow(45_000_000)


@pytest.mark.redis
async def test_a_row_weighs_what_is_reckoned(tmp_path: Path) -> None:
    """A thousand real sessions' facts in a real Redis, within a quarter."""
    server = RedisServer(tmp_path / "redis", durable=False).start()
    try:
        async with redis_store(server.url) as store:
            for number in range(1000):
                facts = SessionFacts(f"SHA256:{number:043}", "key", FIVE, 3600, 1.8e9, 1.8e9 + 604_800, "203.0.113.5")
                with suppress(StoreUnavailable):  # on a busy machine it may answer too late
                    await store.commit(Change("session", f"{number:016}", 0, Stored(1, "active", 1.8e9 + 3600, facts)))
        told = speak(server.port, "MEMORY", "USAGE", "hatchway:actors:session", "SAMPLES", "0")
        stored = int(speak(server.port, "HLEN", "hatchway:actors:session")[1:])
        assert 900 < stored <= 1000
        assert int(told[1:]) / stored == pytest.approx(ROW_BYTES, rel=0.25)
    finally:
        server.close()
