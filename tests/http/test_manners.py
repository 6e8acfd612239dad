"""HTTP manners: every case against each plain endpoint, by each way there; targets, methods, bodies, sizes."""

from __future__ import annotations

import pytest

from tests.support.request_paths import (
    CHALLENGE,
    INSPECT,
    JSON,
    METHODS,
    OUTCOME,
    VERIFY,
    Engines,
    code,
    engines,
    everywhere,
    raw,
)

__all__ = ["engines"]

pytestmark = pytest.mark.process


@pytest.mark.parametrize("endpoint", METHODS)
@pytest.mark.parametrize("spell", ["{}", "{}?", "{}?x=%FF&x", "/api/%61uth/{last}", "http://127.0.0.1:PORT{}"])
def test_spellings_of_a_target(engines: Engines, endpoint: str, spell: str) -> None:
    """With a query, percent-encoded, in absolute form, with and without the trailing slash: one answer, no redirect."""
    for path in (endpoint, endpoint.rstrip("/")):
        target = spell.format(path, last=path.removeprefix("/api/auth/"))
        bodies = b"{}" if endpoint == VERIFY else b""
        kind = f"{JSON}\r\n" if bodies else ""
        head = f"{METHODS[endpoint]} {target} HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n{kind}"
        data = f"{head}Content-Length: {len(bodies)}\r\n\r\n".encode() + bodies
        assert raw(engines, data).status == OUTCOME[endpoint]


@pytest.mark.parametrize(
    "target",
    [
        "//api/auth/inspect/",
        "/api/auth/inspect//",
        "/api//auth/inspect/",
        "/api/auth/./inspect/",
        "/api/auth/../auth/inspect/",
        "/API/auth/inspect/",
        "/api/auth/inspect%2F%2F",
        "/api/auth/inspect/%00",
        "/api/auth/inspect;x/",
        "/",
        "/nothing",
        "/console/../index.html",
        "/console/%2e%2e%2fpyproject.toml",
        "/console/none.js",
        "/%FF",
        "/" + "a" * 9000,
    ],
)
def test_other_paths(engines: Engines, target: str) -> None:
    """A path that is nearly an endpoint's is none: 404, no redirect. Dots are not resolved, nothing else is served."""
    answer = everywhere(engines, "GET", target)
    if target == "/":
        assert answer.status == 200
    elif target.startswith("//"):
        assert code(answer) == (400, "bad_request"), "the name of another host, to some parsers"
    elif target == "/api/auth/inspect%2F%2F":
        assert answer.status in (401, 404)
    else:
        assert code(answer) == (404, "not_found")
        assert answer.header("location") is None


@pytest.mark.parametrize("endpoint", METHODS)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "X" * 50])
def test_methods(engines: Engines, endpoint: str, method: str) -> None:
    """D22, N7: what an endpoint does not do is 405 with the methods it has; TRACE echoes and OPTIONS allows nothing."""
    if method == METHODS[endpoint]:
        return
    for path in (endpoint, endpoint.rstrip("/")):
        answer = everywhere(engines, method, path, "X-Secret: echo me", "Access-Control-Request-Method: POST")
        assert code(answer) == (405, "method_not_allowed")
        allowed = {word.strip() for word in (answer.header("allow") or "").split(",")}
        assert METHODS[endpoint] in allowed
        assert method not in allowed
        assert b"echo me" not in answer.body


@pytest.mark.parametrize("endpoint", [CHALLENGE, INSPECT])
def test_head(engines: Engines, endpoint: str) -> None:
    """HEAD answers as GET would, without the body (RFC 9110 section 9.3.2)."""
    answer = everywhere(engines, "HEAD", endpoint)
    assert (answer.status, answer.body) == (OUTCOME[endpoint], b"")


@pytest.mark.parametrize(
    "kind",
    [
        None,
        "text/plain",
        "text/plain; charset=utf-8",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=a",
        "application/json; charset=utf-16",
        "application/json5",
        "",
        "*/*",
    ],
)
def test_other_media_types(engines: Engines, kind: str | None) -> None:
    """D11, B3: a body that is not said to be JSON in UTF-8 is 415, whatever is in it."""
    headers = () if kind is None else (f"Content-Type: {kind}",)
    assert code(everywhere(engines, "POST", VERIFY, *headers, body=b'{"nonce":"a","signature":"b"}')) == (
        415,
        "unsupported_media_type",
    )


@pytest.mark.parametrize("second", ["application/json", "text/plain"])
def test_two_media_types(engines: Engines, second: str) -> None:
    """A type sent twice is a list, which no type is (RFC 9110 section 5.3): 415, whichever comes first."""
    for kinds in (("application/json", second), (second, "application/json")):
        headers = [f"Content-Type: {kind}" for kind in kinds]
        answer = everywhere(engines, "POST", VERIFY, *headers, body=b'{"nonce":"a","signature":"b"}')
        assert code(answer) == (415, "unsupported_media_type")


@pytest.mark.parametrize(("encoding", "status"), [("gzip", 415), ("br, gzip", 415), ("identity", 400)])
def test_an_encoded_body(engines: Engines, encoding: str, status: int) -> None:
    """RFC 9110 section 8.4: one that is said to be encoded is 415 too, and no broken JSON."""
    headers = ("Content-Type: application/json", f"Content-Encoding: {encoding}")
    assert code(everywhere(engines, "POST", VERIFY, *headers, body=b"\x1f\x8b\x08"))[0] == status


BODIES = {
    "empty": (b"", 400),
    "list": (b"[]", 400),
    "text": (b'"x"', 400),
    "number": (b"1", 400),
    "NaN": (b'{"nonce":NaN}', 400),
    "two objects": (b"{}{}", 400),
    "a key twice": (b'{"nonce":"a","nonce":"b"}', 400),
    "UTF-16": ('{"nonce":"a"}'.encode("utf-16"), 400),
    "BOM": (b"\xef\xbb\xbf{}", 400),
    "bad UTF-8": (b'{"nonce":"\xff"}', 400),
    "lone surrogate": (b'{"nonce":"\\ud800","signature":"b"}', 400),
    "surrogates encoded": (b'{"nonce":"\xed\xa0\x80"}', 400),
    "200k brackets": (b"[" * 60_000, 400),
    "too deep": (b'{"nonce":' + b"[" * 40 + b"]" * 40 + b"}", 400),
    "huge number": (b'{"nonce":' + b"9" * 10_000 + b"}", 400),
    "wrong types": (b'{"nonce":1,"signature":[],"algorithm":{},"lifetime":true}', 422),
    "null fields": (b'{"nonce":null,"signature":null}', 422),
    "unknown fields": (b'{"nonce":"a","signature":"b","permissions":["MASTER"],"exp":1}', 422),
    "many unknown fields": (b"{" + b",".join(b'"%d":1' % n for n in range(5000)) + b"}", 422),
    "a bad algorithm": (b'{"nonce":"a","signature":"b","algorithm":"none"}', 422),
    "a bad lifetime": (b'{"nonce":"a","signature":"b","lifetime":"banana"}', 422),
    "NUL": (b'{"nonce":"\\u0000","signature":"\\u0000"}', 401),
    "a large nonce": (b'{"nonce":"' + b"a" * 60_000 + b'","signature":"b"}', 401),
    "a large signature": (b'{"nonce":"a","signature":"' + b"A" * 60_000 + b'"}', 401),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies(engines: Engines, name: str) -> None:
    """D8, B3: what is no JSON object is 400, wrong fields are 422 and each is named, and a wrong value is a 401."""
    body, status = BODIES[name]
    answer = everywhere(engines, "POST", VERIFY, JSON, body=body)
    assert answer.status == status
    assert answer.json()["code"] == {400: "not_json", 422: "invalid_request", 401: "invalid_signature"}[status]
    if status == 422:
        assert answer.json()["errors"]
        assert len(answer.body) < 66_000, "a refusal is no larger than what was sent"


@pytest.mark.parametrize("endpoint", METHODS)
def test_sizes(engines: Engines, endpoint: str) -> None:
    """D8: a head over 16 KiB is 431, a body over 64 KiB 413, told or chunked, and the rest of it is not awaited."""
    head = f"{METHODS[endpoint]} {endpoint} HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n{JSON}\r\n".encode()
    head += b"Authorization: Bearer TOKEN\r\n"  # it is looked at before the body
    assert raw(engines, head + b"X: " + b"a" * 20_000 + b"\r\n\r\n").status == 431
    assert code(raw(engines, head + b"Content-Length: 65537\r\n\r\n")) == (413, "body_too_large")
    assert code(raw(engines, head + b"Content-Length: 67108864\r\n\r\n" + b"a" * 100)) == (413, "body_too_large")
    chunks = b"4000\r\n" + b"a" * 0x4000 + b"\r\n"
    assert code(raw(engines, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks * 5)) == (413, "body_too_large")
    assert raw(engines, head + b"Content-Length: 9999999999999999999999999\r\n\r\n").status in (400, 413)
    assert raw(engines, head + b"Transfer-Encoding: chunked\r\n\r\n" + b"F" * 30 + b"\r\n").status in (400, 413)


MALFORMED = {
    "CL and TE": b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "TE and CL": b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
    "two CL": b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "two equal CL": b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "CL 2, 2": b"content-length: 2, 2\r\n\r\n{}",
    "CL +2": b"Content-Length: +2\r\n\r\n{}",
    "CL -2": b"Content-Length: -2\r\n\r\n{}",
    "CL 0x2": b"Content-Length: 0x2\r\n\r\n{}",
    "CL 2, 3": b"Content-Length: 2, 3\r\n\r\n{}",
    "bad chunk": b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    "NUL in a header": b"X: a\0b\r\n\r\n",
    "obs-fold": b"X: a\r\n b\r\n\r\n",
    "bare LF": b"X: a\n\r\n",
    "no colon": b"X\r\n\r\n",
    "space in a name": b"X Y: a\r\n\r\n",
}


@pytest.mark.parametrize("endpoint", METHODS)
@pytest.mark.parametrize("name", MALFORMED)
def test_what_two_parsers_could_read_differently(engines: Engines, endpoint: str, name: str) -> None:
    """D22, N5: refused with 400, and the connection ends."""
    head = f"{METHODS[endpoint]} {endpoint} HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n{JSON}\r\n".encode()
    assert raw(engines, head + MALFORMED[name]).status == 400


@pytest.mark.parametrize(
    "line",
    [
        b"GET ?x HTTP/1.1",
        b"GET * HTTP/1.1",
        b"GET http://evil.test/ HTTP/1.1",
        b"GET x HTTP/1.1",
        b"GET /\xff HTTP/1.1",
        b"GET / HTTP/1.2",
        b"GET / HTTP/9",
        b"GET /",
        b"PRI * HTTP/2.0",
        b"CONNECT 127.0.0.1:1 HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"GET / HTTP/1.1 x",
        b" GET / HTTP/1.1",
        b"\0",
        b"GET /%",
    ],
)
def test_request_lines(engines: Engines, line: bytes) -> None:
    """D22: odd targets, versions and methods are a plain refusal."""
    answer = raw(engines, line + b"\r\nHost: 127.0.0.1:PORT\r\n\r\n")
    assert answer.status in (400, 501, 505)
