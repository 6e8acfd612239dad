"""The session's chart keeps the rules of section 3.2."""

import pytest

from hatchway.statecharts.chart import NONE
from hatchway.statecharts.interpreter import EventRefused, Interpreter
from hatchway.statecharts.session import CHART, DEFAULT_LIFETIME, LONGEST_LIFETIME, SHORTEST_LIFETIME

INTERPRETER = Interpreter(CHART)


def test_the_lifetimes_are_the_contracts() -> None:
    """1 minute to 24 hours, 1 hour by default (section 8), on the clock that tokens go by."""
    assert (SHORTEST_LIFETIME, DEFAULT_LIFETIME, LONGEST_LIFETIME) == (60, 3600, 86400)
    assert (CHART.delays["active"].seconds, CHART.delays["active"].clock) == ("session_lifetime", "wall")


@pytest.mark.parametrize("proof", ["signature", "approval"])
def test_credentials_start_a_session(proof: str) -> None:
    """A verified signature or an operator's yes, and nothing else, issues a token."""
    assert INTERPRETER.advance(NONE, "start", {"proof": proof}).effects == ("issue_token",)


@pytest.mark.parametrize("proof", [None, "", "Signature", "claim", True])
def test_nothing_else_does(proof: object) -> None:
    """Anything but the two proofs is refused by the guard."""
    with pytest.raises(EventRefused, match="credentials_are_valid"):
        INTERPRETER.advance(NONE, "start", {"proof": proof})


def test_renewal_starts_the_lifetime_anew() -> None:
    """`renew` leads from active to active: the state is entered again, so its delay is armed again."""
    step = INTERPRETER.advance("active", "renew", {})
    assert (step.source, step.target, step.effects) == ("active", "active", ("issue_token",))


@pytest.mark.parametrize("state", ["ended", "expired"])
def test_an_ended_session_stays_ended(state: str) -> None:
    """Logout, revocation and expiry are final: no event revives the session."""
    for event in CHART.events:
        with pytest.raises(EventRefused, match="no_row"):
            INTERPRETER.advance(state, event, {"proof": "signature"})
