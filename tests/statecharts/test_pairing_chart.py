"""The pairing code's chart keeps the rules of section 3.1."""

import pytest

from hatchway.statecharts.chart import NONE
from hatchway.statecharts.interpreter import EventRefused, Interpreter
from hatchway.statecharts.pairing import CHART, CLAIM_WINDOW, DECISION_WINDOW

INTERPRETER = Interpreter(CHART)


def at(now: float, window: float = 30.0) -> dict[str, float]:
    """An event `now` seconds after the state was entered."""
    return {"now": 1000 + now, "deadline": 1000 + window}


def test_the_windows_are_the_contracts() -> None:
    """30 seconds for the console, a further 30 for the operator (section 8), by the clock that never jumps."""
    assert (CLAIM_WINDOW, DECISION_WINDOW) == (30.0, 30.0)
    assert {delay.clock for delay in CHART.delays.values()} == {"elapsed"}
    assert {state: delay.event for state, delay in CHART.delays.items()} == {
        "issued": "claim_elapsed",
        "claimed": "decision_elapsed",
    }


@pytest.mark.parametrize(("state", "event"), [("issued", "claim"), ("claimed", "approve")])
def test_the_deadline_itself_is_too_late(state: str, event: str) -> None:
    """A claim or a `y` just before its deadline counts; at the deadline, or after, it is refused."""
    for early in (0.0, 29.9, 29.999_999):
        assert INTERPRETER.advance(state, event, at(early)).event == event
    for late in (30.0, 30.1, 1e9):
        with pytest.raises(EventRefused, match="window"):
            INTERPRETER.advance(state, event, at(late))


def test_a_code_works_once() -> None:
    """Approval, rejection, expiry, and every other end consume the code; nothing leaves an end (rule 1)."""
    ends = [row for row in CHART.rows if row.target in CHART.final]
    assert len(ends) == 7
    assert all(row.effects[0] == "consume_code" for row in ends)
    assert {row.state for row in CHART.rows}.isdisjoint(CHART.final)


def test_only_an_issued_code_is_claimed() -> None:
    """Unknown, used, expired and claimed codes need no rows of their own: `claim` has one row (rule 2)."""
    assert [row.state for row in CHART.rows if row.event == "claim"] == ["issued"]


def test_only_a_yes_signs_in() -> None:
    """`sign_in` hangs on one row, and that row on a claim before it: no approval without a claimed code."""
    assert [(row.state, row.event) for row in CHART.rows if "sign_in" in row.effects] == [("claimed", "approve")]
    assert [row.state for row in CHART.rows if row.target == "claimed"] == ["issued"]
    assert [row.event for row in CHART.rows if row.state == NONE] == ["issue"]


def test_a_waiting_console_is_always_answered() -> None:
    """Every end of a claimed code answers the request that waits for it, unless the request itself left."""
    told = {row.event: row.effects for row in CHART.rows if row.state == "claimed"}
    assert told.pop("leave") == ("consume_code",)
    assert {effects[-1] for effects in told.values()} == {"sign_in", "refuse_claim", "report_expiry"}
