"""The instance endpoints as they are tested on one host, unchanged, on an engine of a fleet."""

from __future__ import annotations

from functools import partial

import pytest

from tests.instances import test_instance_endpoints as one_host
from tests.support.containers import place
from tests.support.instance_client import signed_in
from tests.support.redis_server import RedisServer

__all__ = ["place"]

AS_ORDINARY_USER = True
pytest_plugins = ["tests.support.ordinary_user"]
pytestmark = [pytest.mark.apptainer, pytest.mark.redis]


@pytest.fixture(autouse=True)
def in_a_fleet(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines that a test begins in processes of its own are still one host's: they move into the fleet."""
    monkeypatch.setattr(one_host, "signed_in", partial(signed_in, store=redis.url))


test_the_three_items = one_host.test_the_three_items
test_six_starts_of_one_name = one_host.test_six_starts_of_one_name
test_the_log = one_host.test_the_log
test_a_failed_start_has_the_runtimes_code = one_host.test_a_failed_start_has_the_runtimes_code
test_a_command_outlives_the_engine = one_host.test_a_command_outlives_the_engine
