"""The handbook's arithmetic follows from the measured costs, and a session's row weighs what is reckoned with."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from hatchway.engine.access.principal import SessionFacts
from hatchway.engine.base.errors import StoreUnavailable
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.store.protocol import Change, Stored
from tests.bench.sizing import ABSORB_CPU, BUSY, ROW_BYTES, grow, most_sessions, rows
from tests.readme import CHAPTERS
from tests.support.redis_server import RedisServer, redis_store, speak

SIZING = CHAPTERS["sizing"].read_text()


def test_the_handbooks_numbers_follow() -> None:
    """Each row of its table, and where Redis gives out."""
    for row in rows():
        assert row in SIZING
    assert f"{most_sessions():,} sessions" in SIZING


def test_more_engines_help_only_so_far() -> None:
    """Where every engine hears of more changes than it can take, the reckoning says so."""
    with pytest.raises(OverflowError):
        grow(int(BUSY / ABSORB_CPU * 1800) + 1)


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
