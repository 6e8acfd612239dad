"""The instance's chart: every start is answered, every instance ends, nothing is left half done."""

import pytest

from hatchway.statecharts.chart import NONE
from hatchway.statecharts.instance import CHART, FETCHED_START_WINDOW, LOCAL_START_WINDOW, STOP_WINDOW
from hatchway.statecharts.interpreter import EventRefused, Interpreter

INTERPRETER = Interpreter(CHART)
DATA = {"now": 1.0, "deadline": 2.0}


def test_the_states_are_these_seven() -> None:
    """Requested, starting, queued, running, stopping, stopped, failed; the last two are ends."""
    assert CHART.states == (NONE, "requested", "starting", "stopped", "failed", "queued", "stopping", "running")
    assert CHART.final == {"stopped", "failed"}


def test_the_chart_is_ours() -> None:
    """The specification has no row of it, and the README says so of each."""
    assert all(row.ours for row in CHART.rows)


BEFORE = ("requested", "starting", "queued")
"""The states of a start that is yet to be answered."""


def walk(*events: str) -> str:
    state = NONE
    for event in events:
        state = INTERPRETER.advance(state, event, DATA).target
    return state


@pytest.mark.parametrize(
    ("events", "state"),
    [
        (("request", "begin", "confirm"), "running"),
        (("request", "begin", "confirm", "end"), "stopped"),
        (("request", "begin", "confirm", "stop", "end"), "stopped"),
        (("request", "begin", "fail"), "failed"),
        (("request", "begin", "queue", "place", "confirm", "end"), "stopped"),
        (("request", "begin", "queue", "fail"), "failed"),
        (("request", "begin", "queue", "stop", "fail"), "failed"),
        (("request", "begin", "queue", "place", "start_elapsed", "fail"), "failed"),
        (("request", "begin", "confirm", "fail"), "failed"),
        (("request", "begin", "start_elapsed", "fail"), "failed"),
        (("request", "begin", "stop", "fail"), "failed"),
        (("request", "stop"), "stopped"),
        (("request", "start_elapsed"), "failed"),
        (("request", "begin", "confirm", "stop", "stop_elapsed", "stop_elapsed", "end"), "stopped"),
    ],
)
def test_the_ways_of_an_instance(events: tuple[str, ...], state: str) -> None:
    """A container that ends by itself, one that is stopped, a start that fails, is given up, or never begins."""
    assert walk(*events) == state


def test_a_start_is_answered_once() -> None:
    """Whoever waits for a start is told on every way out of it: confirmed on one row, refused on each other."""
    told = {
        (row.state, row.event): [effect for effect in row.effects if effect in ("confirm_start", "refuse_start")]
        for row in CHART.rows
        if row.state in BEFORE and row.target not in BEFORE
    }
    assert len(told) == 8
    assert told.pop(("starting", "confirm")) == ["confirm_start"]
    assert all(effects == ["refuse_start"] for effects in told.values())


def test_every_end_is_reported() -> None:
    """A stop waits for the instance's end, whichever row brings it."""
    assert all((row.target in CHART.final) == ("report_end" in row.effects) for row in CHART.rows)


def test_no_state_is_waited_in_for_ever() -> None:
    """A start and a stop have deadlines; only a queued or a running instance may take its time."""
    assert {state: delay.event for state, delay in CHART.delays.items()} == {
        "requested": "start_elapsed",
        "starting": "start_elapsed",
        "stopping": "stop_elapsed",
    }
    assert (LOCAL_START_WINDOW, FETCHED_START_WINDOW, STOP_WINDOW) == (60, 600, 30)


@pytest.mark.parametrize("state", ["stopped", "failed", "stopping"])
def test_nothing_is_stopped_twice(state: str) -> None:
    """A stop of what ends or has ended is refused, not repeated."""
    with pytest.raises(EventRefused):
        INTERPRETER.advance(state, "stop", DATA)
