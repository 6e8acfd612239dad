"""Points in time as people type them."""

from __future__ import annotations

import time
from datetime import datetime

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatchway.api.cli.moments import moment_of


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
