"""Points in time as people type them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatchway.api.cli.moments import end_of, moment_of


@given(st.times().map(lambda at: at.replace(microsecond=0)))
def test_a_time_of_day_is_its_last_one(at: object) -> None:
    """Whoever looks into what happened types the clock's time: today's, or yesterday's where it is still to come."""
    began = time.time()
    found = moment_of(str(at), "TIME")
    assert datetime.fromtimestamp(found).time() == at
    assert began - 26 * 3600 <= found <= time.time()  # a day has 25 hours where summer time ends


def test_other_moments() -> None:
    """A while ago, and a date with its time; all else is refused in words."""
    assert abs(moment_of("30m", "TIME") - (time.time() - 1800)) < 60
    assert moment_of("2026-11-28T20:30Z", "TIME") == 1795897800
    for text in ("yesterday", "25:00", "1:2", "12:", ":", "", "12:00 tomorrow"):
        with pytest.raises(click.BadParameter, match="write 30m, 2h or 7d for a while ago, or such as 21:30"):
            moment_of(text, "TIME")


@pytest.fixture
def summer_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clocks that are set in March and October, as Europe's are."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("summer_time")
@pytest.mark.parametrize(
    ("begin", "end", "hours"),
    [
        ("2026-11-20T21:00", "22:00", 1),
        ("2026-11-20T21:00", "20:00", 23),
        ("2026-10-24T21:00", "20:00", 24),
        ("2026-10-25", "2026-10-25", 25),
        ("2026-03-29", "2026-03-29", 23),
        ("2026-11-28", "20261129", 48),
        ("2026-11-28T12:00", "2026-11-28T14:00+01:00", 2),
    ],
)
def test_the_end_of_a_while(begin: str, end: str, hours: int) -> None:
    """A day is meant to its end, and a time of day is the first one after the beginning; all else is as it says."""
    since = moment_of(begin, "--since")
    assert (end_of(end, "--until", since) - since) / 3600 == hours
