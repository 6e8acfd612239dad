"""What `chart check` says of a chart, held against running it."""

from __future__ import annotations

import pytest

from hatchway.statecharts import examine
from hatchway.statecharts.catalogue import CHARTS
from hatchway.statecharts.chart import NONE, Chart, ChartFault, Delay, Transition, always
from hatchway.statecharts.interpreter import EventRefused, Interpreter

GIVEN = {"now": 0.0, "deadline": 1.0, "proof": "signature"}
"""With this every guard of ours says yes."""


@pytest.mark.parametrize("chart", CHARTS.values(), ids=lambda chart: chart.name)
def test_the_ways_lead_there(chart: Chart) -> None:
    """The events that are told lead from `none` to each state, and no fewer do."""
    interpreter = Interpreter(chart)
    ways = examine.shortest_ways(chart)
    assert set(ways) == set(chart.states)
    for target, events in ways.items():
        state = NONE
        for event in events:
            state = interpreter.advance(state, event, dict(GIVEN)).target
        assert state == target
        assert len(events) <= 1 + min((len(ways[row.state]) for row in chart.rows if row.target == target), default=0)


@pytest.mark.parametrize("chart", CHARTS.values(), ids=lambda chart: chart.name)
def test_the_table_is_what_is_run(chart: Chart) -> None:
    """In every state that can be left, for every event: where it leads, or that it is refused."""
    interpreter = Interpreter(chart)
    for event, row in examine.effects_of_events(chart).items():
        assert set(row) == set(chart.states) - chart.final
        for state, told in row.items():
            try:
                assert told.split(" [")[0] == interpreter.advance(state, event, dict(GIVEN)).target
            except EventRefused:
                assert told == "-"


def test_each_delay_has_its_way_out() -> None:
    """Named by its event, with the state it leads to."""
    assert examine.ways_out(CHARTS["pairing"]) == {
        "issued": ("claim_elapsed", "expired"),
        "claimed": ("decision_elapsed", "expired"),
    }


def test_every_fault_is_named() -> None:
    """All at once, each on a line."""
    rows = (
        Transition(NONE, "begin", always, "open"),
        Transition("open", "begin", always, "open"),
        Transition("open", "begin", always, "open"),
        Transition("done", "end", always, "open"),
        Transition("lost", "end", always, "done"),
    )
    with pytest.raises(ChartFault) as fault:
        Chart("bad", rows, frozenset({"done"}), {"open": Delay(5, "late")})
    assert str(fault.value).splitlines() == [
        "bad: a second row for 'begin' in 'open' can never be taken",
        "bad: a row leaves the final state 'done'",
        "bad: 'late' must leave 'open' whatever the guards say",
        "bad: 'open' is a trap: no final state is reached from it",
        "bad: 'done' is never reached",
        "bad: 'lost' is never reached",
    ]
