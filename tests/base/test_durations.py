"""Durations on the wire and the lifetimes they give (sections 2.1, 4.2, 8; case D21)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hatchway.engine.base.durations import InvalidDuration, format_duration, lifetime, parse_duration

CASES: list[tuple[Any, list[Any]]] = json.loads((Path(__file__).parents[1] / "data/own/durations.json").read_text())[
    "cases"
]


def outcome(text: object) -> int | str:
    """The lifetime in seconds, or `deny`."""
    try:
        return lifetime(text)[0]
    except InvalidDuration:
        return "deny"


@pytest.mark.parametrize(("text", "allowed"), CASES, ids=repr)
def test_each_case_of_the_corpus_gets_an_answer_it_allows(text: object, allowed: list[Any]) -> None:
    """Every listed text gets one of its listed answers."""
    if text == "1.5h":
        allowed = ["deny"]  # the corpus is older than the decision that the number is a whole one
    assert outcome(text) in allowed


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1m", 60), ("24h", 86400), ("1440m", 86400), ("30m", 1800), ("1m0s", 60), ("0m60s", 60), ("007m", 420)],
)
def test_in_range_lifetimes_are_kept(text: str, seconds: int) -> None:
    """From 1 minute to 24 hours, both included, what was asked for is given."""
    assert lifetime(text) == (seconds, False)


@pytest.mark.parametrize("text", ["0m", "0h", "25h", "1441m", "0m59s", "1440m1s", "9" * 5000 + "h"])
def test_out_of_range_falls_back_to_one_hour(text: str) -> None:
    """Out of range, however large, is the default, and says that it fell back."""
    assert lifetime(text) == (3600, True)


def test_an_omitted_lifetime_is_the_default_and_no_fallback() -> None:
    """Nobody is told that a lifetime was changed who asked for none."""
    assert lifetime(None) == (3600, False)


@pytest.mark.parametrize(
    "text", ["banana", "10x", "10", "", "1h30m", "5M", "-5m", " 5m", "5m\n", "\uff11m", "1m2", "s", 5, True, []]
)
def test_malformed_durations_are_refused(text: object) -> None:
    """What is no duration is refused rather than read as the default."""
    with pytest.raises(InvalidDuration, match="whole number"):
        parse_duration(text)


@given(st.text() | st.from_regex(r"[0-9]{1,30}[mh]|[0-9]{1,9}m[0-9]{1,9}s", fullmatch=True))
@example("00000000000000000000001m")
def test_no_text_gives_a_session_outside_the_range(text: str) -> None:
    """Whatever is sent, a session lasts from 1 minute to 24 hours, or there is none."""
    assert outcome(text) == "deny" or 60 <= int(outcome(text)) <= 86400


@given(st.integers(0, 10**9))
def test_what_is_printed_can_be_read(seconds: int) -> None:
    """`format_duration` and `parse_duration` are each other's inverse."""
    assert parse_duration(format_duration(seconds)) == seconds


def test_the_challenge_s_lifetime_looks_as_specified() -> None:
    """`<m>m<s>s`, section 2.1."""
    assert format_duration(60.9) == "1m0s"
