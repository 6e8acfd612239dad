"""The promises that the test engine watches: what breaks one is seen, and fails the test that it happened in."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode

import pytest

from hatchway.api.testing.watchers import BrokenPromise, Watchers, session_of
from hatchway.engine.runtime.records import Record


def record(seq: int, chart: str, actor: str, event: str, target: str, identity: str = "") -> Record:
    return Record(0.0, seq, "transition", chart, actor, event, "somewhere", target, identity=identity)


def token(name: object) -> bytes:
    body = urlsafe_b64encode(json.dumps({"sid": name}).encode()).rstrip(b"=")
    return b"Bearer e30." + body + b".c2ln"


def test_good_records_break_nothing() -> None:
    """A code's whole way, and a session's."""
    watchers = Watchers()
    for seq, (chart, actor, event, target, identity) in enumerate(
        [
            ("pairing", "p", "issue", "issued", ""),
            ("pairing", "p", "claim", "claimed", ""),
            ("pairing", "p", "approve", "approved", ""),
            ("session", "s", "start", "active", "pairing:p"),
            ("session", "s", "logout", "ended", "pairing:p"),
        ]
    ):
        watchers(record(seq, chart, actor, event, target, identity=identity))
    watchers.check()
    assert watchers.told("session") == [("start", "active"), ("logout", "ended")]


def test_a_code_signs_in_once() -> None:
    """A second session by one code, or one without a yes, is a broken promise."""
    watchers = Watchers()
    watchers(record(1, "pairing", "p", "approve", "approved"))
    watchers(record(2, "session", "one", "start", "active", identity="pairing:p"))
    watchers.check()
    watchers(record(3, "session", "two", "start", "active", identity="pairing:p"))
    with pytest.raises(BrokenPromise, match="a second time"):
        watchers.check()


def test_nothing_moves_after_its_end() -> None:
    """An actor that was over moves no more."""
    watchers = Watchers()
    watchers(record(1, "session", "one", "logout", "ended"))
    watchers(record(2, "session", "one", "renew", "active"))
    with pytest.raises(BrokenPromise, match="moved after its end"):
        watchers.check()


def test_records_are_numbered_upward() -> None:
    """One that comes twice is seen."""
    watchers = Watchers()
    for _ in range(2):
        watchers(record(1, "pairing", "p", "issue", "issued"))
    with pytest.raises(BrokenPromise, match="record 1 comes after record 1"):
        watchers.check()


def test_no_answer_after_a_logout() -> None:
    """A 200 to a token whose session had ended before it was asked is a broken promise; a 401 is none."""
    watchers = Watchers()
    assert watchers.asked(token("one")) is None
    watchers(record(1, "session", "one", "logout", "ended"))
    ended = watchers.asked(token("one"))
    assert ended == "one"
    watchers.answered(ended, 401, "/x")
    watchers.check()
    watchers.answered(ended, 200, "/x")
    with pytest.raises(BrokenPromise, match="/x answered 200"):
        watchers.check()


@pytest.mark.parametrize(
    "header", [None, b"", b"Bearer", b"Bearer a", b"Bearer a.%%%.c", token(5), b"Bearer a.bnVsbA.c"]
)
def test_headers_without_a_session(header: bytes | None) -> None:
    """Whatever stands in a header, it names a session or none."""
    assert session_of(header) is None
