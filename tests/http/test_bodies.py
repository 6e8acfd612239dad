"""Bodies: one JSON object in UTF-8 with each key once, or a refusal that says what is wrong (HTTP manners)."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatchway.api.http import bodies
from hatchway.api.http.bodies import DEEPEST, read_fields, read_object
from hatchway.api.http.problems import UnsupportedMediaType, problem_response
from hatchway.engine.base.errors import InvalidRequest, NotJson
from tests.support.hostile_requests import refusal_of

JSON = b"application/json"


class Fields(msgspec.Struct, forbid_unknown_fields=True):
    """Fields of each kind that endpoints have."""

    name: str
    count: int = 0
    words: list[str] = []
    sure: bool = False
    lifetime: str | None = None


@pytest.mark.parametrize(
    "kind",
    [
        JSON,
        b"Application/JSON",
        b"application/json; charset=utf-8",
        b'application/json;charset="UTF-8"',
        b" application/json ",
        b"application/json ;  charset=utf-8 ",
    ],
)
def test_spellings_of_the_type(kind: bytes) -> None:
    """RFC 9110 section 8.3.1: case and spaces do not matter, and UTF-8 may be said."""
    assert read_object(kind, b'{"a":1}') == {"a": 1}


@pytest.mark.parametrize(
    "kind",
    [
        None,
        b"",
        b"text/plain",
        b"text/plain;application/json",
        b"application/x-www-form-urlencoded",
        b"multipart/form-data; boundary=x",
        b"application/json; charset=utf-16",
        b"application/json; charset=utf-8; charset=utf-16",
        b"application/jsonp",
        b"application/problem+json",
        b"application/json, text/plain",
        b"application/json\x00",
        b"\xff\xfe",
    ],
)
def test_other_types_are_refused(kind: bytes | None) -> None:
    """P7: what a foreign page can send without asking first is no request of ours."""
    with pytest.raises(UnsupportedMediaType):
        read_object(kind, b'{"a":1}')


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"null",
        b"[]",
        b"[{}]",
        b'"x"',
        b"1",
        b"{",
        b"{}{}",
        b"{} x",
        b"{'a':1}",
        b'{"a":1,}',
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":-Infinity}',
        b'{"a":1,"a":1}',
        b'{"a":{"b":1,"b":2}}',
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":"\\ud800"}',
        b'{"\\udfff":1}',
        b'{"a":"\x01"}',
        b'{"a":"\x00"}',
        b"\xef\xbb\xbf{}",
        '{"a":1}'.encode("utf-16"),
        '{"a":1}'.encode("utf-32"),
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b'{"a":' + b"9" * 5000 + b"}",
        b"{" + b'"a":[' * DEEPEST + b"]" * DEEPEST + b"}",
    ],
)
def test_what_is_no_object(body: bytes) -> None:
    """Each is the one refusal `not_json`: truncated, doubled, repeated, not UTF-8, half a surrogate, too deep."""
    with pytest.raises(NotJson):
        read_object(JSON, body)


def test_depth_is_counted_exactly() -> None:
    """The limit passes, one more does not, whatever the innermost holds; brackets inside a string are no depth."""

    def nested(levels: int, inmost: bytes) -> bytes:
        return b'{"a":' * levels + inmost + b"}" * levels

    for inmost, levels in ((b"1", DEEPEST), (b"{}", DEEPEST - 1), (b"[]", DEEPEST - 1), (b"[1]", DEEPEST - 1)):
        assert read_object(JSON, nested(levels, inmost))
        with pytest.raises(NotJson, match="32 levels"):
            read_object(JSON, nested(levels + 1, inmost))
    assert read_object(JSON, b'{"a":"' + b"[{" * 500 + b'"}')
    assert read_object(JSON, b'{"a":[' + b",".join([b"[]"] * 500) + b"]}")


def test_every_wrong_field_is_named() -> None:
    """Missing, unknown and mistyped fields at once, each with why, in words without a stranger's value."""
    value = {"count": "1", "words": ["x", 2], "sure": 1, "permissions": ["MASTER"]}
    with pytest.raises(InvalidRequest) as raised:
        read_fields(Fields, value)
    assert set(raised.value.errors) == {"name", "count", "words", "sure", "permissions"}
    assert raised.value.errors["name"] == "is required"
    assert raised.value.errors["permissions"] == "is unknown"
    assert raised.value.errors["count"] == "expected a whole number, got text"
    assert raised.value.errors["words"] == "expected text, got a whole number, at item 1"
    assert "MASTER" not in raised.value.detail


def test_null_is_a_value_only_where_it_is_one() -> None:
    """`lifetime: null` counts as omitted; null for a string does not."""
    assert read_fields(Fields, {"name": "a", "lifetime": None}).lifetime is None
    with pytest.raises(InvalidRequest):
        read_fields(Fields, {"name": None})


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), JSON_VALUES, max_size=6))
def test_every_object_is_read_as_it_is(value: dict[str, Any]) -> None:
    """An object that JSON can say comes back the same, however it is spelled."""
    for ascii_only in (True, False):
        assert read_object(JSON, json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@given(st.binary(max_size=200) | st.text(st.characters(codec="utf-8")).map(str.encode))
def test_no_bytes_break_the_reader(body: bytes) -> None:
    """An object or a refusal, and the refusal is a sendable answer."""
    refused = refusal_of(lambda: read_object(JSON, body))
    assert refused is None or problem_response(refused).status in (400, 415)


@given(st.dictionaries(st.sampled_from(["name", "count", "words", "sure", "lifetime"]) | st.text(), JSON_VALUES))
def test_no_object_breaks_the_fields(value: dict[str, Any]) -> None:
    """The fields, or an `invalid_request` that names at least one of them."""
    refused = refusal_of(lambda: read_fields(Fields, value))
    if refused is None:
        assert {"name"} <= set(value) <= {"name", "count", "words", "sure", "lifetime"}
    else:
        assert refused.errors
        assert problem_response(refused).status == 422


TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=4), st.data())
def test_a_plain_body_is_read_as_any_other(pairs: list[tuple[str, str]], data: st.DataObject) -> None:
    """The quick way for objects of texts reads, and refuses, what the long way does: changed, cut, doubled, odd."""
    members = ", ".join(f"{json.dumps(name, ensure_ascii=False)}:{json.dumps(text)}" for name, text in pairs)
    body = bytearray(f"{{{members}}}".encode())
    for place in data.draw(st.lists(st.integers(0, len(body) - 1), max_size=3)):
        body[place] = data.draw(st.sampled_from(b'"\\{}[]:, \t\n\x00\x1f\x7f\xff\xc3a1'))
    quick = bodies._read_plain(bytes(body))
    if quick is not None:
        assert quick == bodies._decoder.decode(body.decode())


def test_the_quick_way_is_taken_by_a_sign_in() -> None:
    """What our clients send is read quickly."""
    assert bodies._read_plain(b'{"nonce": "n", "signature": "s", "algorithm": "PS256"}') is not None
