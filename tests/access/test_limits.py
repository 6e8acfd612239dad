"""The limit on failures: so many a minute from one source, in a table that can't grow without end."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatchway.engine.access import limits
from hatchway.engine.access.limits import FailureLimit, Limit, limit_of, source_of
from hatchway.engine.base.errors import TooManyRequests
from tests.support.fakes import SetClock
from tests.support.hostile_requests import refusal_of


class Setup(NamedTuple):
    limit: FailureLimit
    clock: SetClock


@pytest.fixture
def setup() -> Setup:
    clock = SetClock()
    return Setup(FailureLimit(clock, lambda: 3, "tries"), clock)


def shut(limit: FailureLimit, address: str) -> int:
    """Seconds that an address is told to wait; 0 if it may try."""
    refused = refusal_of(lambda: limit.check(address))
    if refused is None:
        return 0
    assert isinstance(refused, TooManyRequests)
    assert refused.retry_after
    assert f"wait {refused.retry_after} s" in refused.detail
    return refused.retry_after


def test_so_many_then_a_wait_that_is_told(setup: Setup) -> None:
    """The third failure shuts the address out for the rest of the minute, rounded up; then everything is forgotten."""
    for _ in range(3):
        assert shut(setup.limit, "192.0.2.1") == 0
        setup.limit.count("192.0.2.1")
    assert shut(setup.limit, "192.0.2.1") == 60
    setup.clock.now += 59.5
    assert shut(setup.limit, "192.0.2.1") == 1
    setup.clock.now += 0.5
    assert shut(setup.limit, "192.0.2.1") == 0
    setup.clock.now += 1000
    assert shut(setup.limit, "192.0.2.1") == 0
    setup.limit.count("192.0.2.1")
    assert shut(setup.limit, "192.0.2.1") == 0, "a new minute counts anew"


def test_a_failure_at_the_very_end_of_a_minute(setup: Setup) -> None:
    """It is the first of a new one: the window holds its beginning, not its end."""
    for _ in range(2):
        setup.limit.count("192.0.2.1")
    setup.clock.now += limits.WINDOW
    setup.limit.count("192.0.2.1")
    for _ in range(2):
        assert shut(setup.limit, "192.0.2.1") == 0
        setup.limit.count("192.0.2.1")
    assert shut(setup.limit, "192.0.2.1") == 60


def test_a_new_minute_allows_as_many(setup: Setup) -> None:
    """Not one failure more than the first."""
    setup.limit.count("192.0.2.1")
    setup.clock.now += 61
    for _ in range(3):
        assert shut(setup.limit, "192.0.2.1") == 0
        setup.limit.count("192.0.2.1")
    assert shut(setup.limit, "192.0.2.1") == 60


def test_a_limit_of_one_lets_everybody_try_once() -> None:
    """A stranger to the table has failed at nothing yet."""
    limit = FailureLimit(SetClock(), lambda: 1, "tries")
    assert shut(limit, "192.0.2.1") == 0
    limit.count("192.0.2.1")
    assert shut(limit, "192.0.2.1") == 60


async def test_a_try_is_looked_at_and_counted_in_one(setup: Setup) -> None:
    """What is taken counts, what is given back does not; the one too many is refused and counts no more."""
    for _ in range(3):
        await setup.limit.take("192.0.2.1")
    for _ in range(2):
        with pytest.raises(TooManyRequests):
            await setup.limit.take("192.0.2.1")
    await setup.limit.give_back("192.0.2.1")
    await setup.limit.take("192.0.2.1")
    assert shut(setup.limit, "192.0.2.1") == 60


class Fleet:
    """A fleet that counts nothing yet."""

    def __init__(self, own: Limit) -> None:
        self.own = own

    def limit(self, most: Callable[[], int], what: str) -> Limit:
        return self.own

    def check_fresh(self) -> None: ...

    async def wait_fresh(self) -> None: ...

    async def wait_whole(self, seconds: float) -> None: ...


def test_an_engine_of_a_fleet_counts_with_it(setup: Setup) -> None:
    """Where there is a fleet its count is the one; alone, an engine counts for itself."""
    assert limit_of(Fleet(setup.limit), setup.clock, lambda: 3, "tries") is setup.limit
    assert isinstance(limit_of(None, setup.clock, lambda: 3, "tries"), FailureLimit)


def test_sources_are_apart(setup: Setup) -> None:
    """One address shut leaves its neighbour open; a whole /64 is one source."""
    for _ in range(3):
        setup.limit.count("192.0.2.1")
        setup.limit.count("2001:db8::1")
    assert shut(setup.limit, "192.0.2.2") == 0
    assert shut(setup.limit, "2001:db8::ffff:1") == 60
    assert shut(setup.limit, "2001:db8:0:1::1") == 0


def test_a_try_that_was_none_is_taken_back(setup: Setup) -> None:
    """What is uncounted leaves no trace, and never goes below nothing."""
    for _ in range(10):
        setup.limit.count("192.0.2.1")
        setup.limit.uncount("192.0.2.1")
    setup.limit.uncount("192.0.2.1")
    setup.limit.uncount("unknown")
    for _ in range(3):
        assert shut(setup.limit, "192.0.2.1") == 0
        setup.limit.count("192.0.2.1")
    setup.limit.uncount("192.0.2.1")
    assert shut(setup.limit, "192.0.2.1") == 0


def test_what_is_taken_back_begins_no_minute(setup: Setup) -> None:
    """The minute of those to come begins with the first of them, also in the first minute of the machine's clock."""
    setup.clock.now = 1.0
    setup.limit.uncount("192.0.2.1")
    setup.limit.count("192.0.2.1")
    setup.limit.uncount("192.0.2.1")
    setup.clock.now = 60.5
    for _ in range(3):
        assert shut(setup.limit, "192.0.2.1") == 0
        setup.limit.count("192.0.2.1")
    setup.clock.now = 61.5
    assert shut(setup.limit, "192.0.2.1") == 59


def test_the_table_is_bounded(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of addresses drops the one that failed longest ago, and none that fails now."""
    monkeypatch.setattr(limits, "SOURCES", 100)
    for number in range(1000):
        setup.limit.count(f"10.0.{number >> 8}.{number & 255}")
        setup.limit.count("192.0.2.1")
    assert len(setup.limit._failures) == 100
    assert shut(setup.limit, "192.0.2.1") == 60


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:DB8:1:2::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("not an address", "not an address"),
    ],
)
def test_what_one_source_is(address: str, source: str) -> None:
    """IPv4 alone, mapped or not; the /64 of IPv6, whatever its zone; any other text is itself."""
    assert source_of(address) == source


@given(st.lists(st.sampled_from(["count", "uncount", "wait"]), max_size=60))
def test_nobody_gets_more_than_the_limit(steps: list[str]) -> None:
    """Whatever happens, within one minute no source has more failures counted than its limit without being shut."""
    clock = SetClock()
    limit = FailureLimit(clock, lambda: 3, "tries")
    since, counted = clock.now, 0
    for step in steps:
        if step == "wait":
            clock.now += 17
        elif step == "count":
            if clock.now - since >= limits.WINDOW or counted == 0:
                since, counted = clock.now, 0
            counted += 1
            limit.count("a")
        else:
            counted = max(counted - 1, 0)
            limit.uncount("a")
        open_again = clock.now - since >= limits.WINDOW
        assert bool(shut(limit, "a")) == (counted >= 3 and not open_again)


@given(st.text(st.characters()))
def test_any_text_is_some_source(text: str) -> None:
    """No peer name raises."""
    assert isinstance(source_of(text), str)
