"""What a checker decides again is what `transitions` decides: for every state, event and outcome of the guards."""

from __future__ import annotations

from itertools import product

import pytest

from hatchway.statecharts.catalogue import CHARTS
from hatchway.statecharts.chart import NONE, Chart, Data, reachable
from hatchway.statecharts.decide import Decider
from hatchway.statecharts.interpreter import EventRefused, Interpreter

INPUTS: tuple[Data, ...] = tuple(
    {"now": now, "deadline": 10.0, "proof": proof}
    for now, proof in product((9.0, 10.0, 11.0), ("signature", "approval", None, "other"))
)


@pytest.mark.parametrize("chart", CHARTS.values(), ids=lambda chart: chart.name)
def test_it_decides_as_the_interpreter(chart: Chart) -> None:
    """The same row, or the same cause of a refusal."""
    advance, decide = Interpreter(chart).advance, Decider(chart).decide
    outcomes = set()
    for state, event, data in product(chart.states, chart.events, INPUTS):
        try:
            expected: object = advance(state, event, data).row
        except EventRefused as refused:
            expected = refused.cause
        assert decide(state, event, data) == expected
        outcomes.add(type(expected))
    assert len(outcomes) == 2


@pytest.mark.parametrize("chart", CHARTS.values(), ids=lambda chart: chart.name)
def test_what_may_follow(chart: Chart) -> None:
    """From none everything is reached, from a final state nothing else."""
    assert reachable(chart, NONE) == set(chart.states)
    assert all(reachable(chart, state) == {state} for state in chart.final)
