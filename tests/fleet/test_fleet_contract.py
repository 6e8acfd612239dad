"""The contract's own tests, unchanged, on an engine whose store is Redis."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.pairings import test_pairing_processes as pairing
from tests.security import test_security_pairing as guesses
from tests.security import test_security_tokens as tokens
from tests.support.processes import EngineProcess, running_engine
from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.redis, pytest.mark.process, pytest.mark.tools]

OUT_OF_THE_WAY = {
    f"HATCHWAY_LIMITS_{name}": "10000" for name in ("FAILED_VERIFIES", "WRONG_CODES", "WRONG_CODES_TOTAL")
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    """One of a fleet of one, whose limits are out of the way."""
    folder = tmp_path_factory.mktemp("contract")
    redis = RedisServer(folder / "redis").start()
    try:
        with running_engine(folder / "hatchway", HATCHWAY_STORE=redis.url, **OUT_OF_THE_WAY) as running:
            yield running
    finally:
        redis.close()


@pytest.fixture
def client(engine: EngineProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=engine.url) as made:
        yield made


test_a_signature_works_once = tokens.test_a_signature_works_once
test_a_bad_try_burns_nobodys_nonce = tokens.test_a_bad_try_burns_nobodys_nonce
test_forged_signatures = tokens.test_forged_signatures
test_one_spelling_of_a_signature = tokens.test_one_spelling_of_a_signature
test_one_refusal_for_every_bad_verify = tokens.test_one_refusal_for_every_bad_verify
test_the_93_attacks = tokens.test_the_93_attacks
test_every_claim_counts = tokens.test_every_claim_counts
test_odd_codes = guesses.test_odd_codes
test_four_at_once_and_no_more = guesses.test_four_at_once_and_no_more
test_approve_and_reject = pairing.test_approve_and_reject
test_both_windows_pass = pairing.test_both_windows_pass
test_the_command_ends = pairing.test_the_command_ends
test_the_console_hangs_up = pairing.test_the_console_hangs_up
test_the_engine_restarts = pairing.test_the_engine_restarts
test_two_addresses_within_a_millisecond = pairing.test_two_addresses_within_a_millisecond
