"""Points in time as people type them."""

from __future__ import annotations

import time
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


def test_the_end_of_a_while() -> None:
    """A day is meant to its end, and a time of day is the first one after the beginning; all else is as it says."""
    begin = moment_of("23:00", "--since")
    assert end_of("23:30", "--until", begin) - begin == 1800
    assert end_of("01:00", "--until", begin) - begin in (3600, 7200, 10800)  # a clock may be set in that night
    assert end_of("2026-11-28", "--until", begin) == moment_of("2026-11-29", "--until")
    assert end_of("2026-11-28T12:00Z", "--until", begin) == moment_of("2026-11-28T12:00Z", "--until")
