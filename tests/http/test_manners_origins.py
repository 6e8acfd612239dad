"""HTTP manners, who asks from where: Host, Origin and Authorization at each plain endpoint, by each way there."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.request_paths import INSPECT, METHODS, OUTCOME, Engines, code, engines, everywhere, plain, raw

__all__ = ["engines"]

pytestmark = pytest.mark.process


@pytest.mark.parametrize("endpoint", METHODS)
@pytest.mark.parametrize(
    "host",
    [
        "evil.test",
        "evil.test:PORT",
        "127.0.0.1.evil.test:PORT",
        "localhost.evil.test:PORT",
        "0.0.0.0:PORT",
        "localhost:1",
        "127.0.0.1",
        "[::1]:1",
        "127.0.0.2:PORT",
    ],
)
def test_a_foreign_host(engines: Engines, endpoint: str, host: str) -> None:
    """D9, B14: 421 before anything else, naming the setting; for a loopback name with another port also `ssh -L`."""
    answer = plain(engines, endpoint, host=host)
    assert code(answer) == (421, "misdirected_request")
    detail = answer.json()["detail"]
    assert "`addresses`" in detail
    loopback = re.fullmatch(r"(localhost|127\.0\.0\.[12]|\[::1\])(:\w+)?", host)
    assert bool(re.search(r"ssh -L \d+:127\.0\.0\.1:\d+", detail)) == bool(loopback)


@pytest.mark.parametrize("endpoint", METHODS)
@pytest.mark.parametrize("host", ["localhost:PORT", "LOCALHOST:PORT", "x.localhost:PORT", "[::1]:PORT"])
def test_our_host(engines: Engines, endpoint: str, host: str) -> None:
    """D9: every loopback name with the port is ours."""
    assert plain(engines, endpoint, host=host).status == OUTCOME[endpoint]


@pytest.mark.parametrize("endpoint", METHODS)
@pytest.mark.parametrize(
    "line",
    [
        "",
        "Host:\r\n",
        "Host: a\r\nHost: a\r\n",
        "Host: 127.0.0.1:PORT\r\nHost: 127.0.0.1:PORT\r\n",
        "Host: [::1\r\n",
        "Host: user@localhost:PORT\r\n",
        "Host: 127.0.0.1:PORT, evil.test\r\n",
        "Host: caf\xe9\r\n",
        "Host : 127.0.0.1:PORT\r\n",
    ],
)
def test_no_host_or_two(engines: Engines, endpoint: str, line: str) -> None:
    """D9: exactly one Host, in its form: 400."""
    assert raw(engines, f"{METHODS[endpoint]} {endpoint} HTTP/1.1\r\n{line}\r\n".encode("latin-1")).status == 400


@pytest.mark.parametrize("endpoint", METHODS)
@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.test",
        "null",
        "http://127.0.0.1:1",
        "https://evil.test:PORT",
        "http://127.0.0.1.evil.test:PORT",
        "x",
        "file://",
    ],
)
def test_a_foreign_origin(engines: Engines, endpoint: str, origin: str) -> None:
    """D10: another origin's page is refused, and no header opens anything to it; neither is its preflight."""
    assert code(plain(engines, endpoint, f"Origin: {origin}")) == (403, "foreign_origin")
    preflight = ("Access-Control-Request-Method: POST", "Access-Control-Request-Private-Network: true")
    assert code(everywhere(engines, "OPTIONS", endpoint, f"Origin: {origin}", *preflight)) == (403, "foreign_origin")


@pytest.mark.parametrize("endpoint", METHODS)
def test_origins_are_each_looked_at(engines: Engines, endpoint: str) -> None:
    """Our own page may ask; a second Origin beside ours does not pass in its shadow, whichever comes first."""
    ours, foreign = "Origin: http://127.0.0.1:PORT", "Origin: http://evil.test"
    assert plain(engines, endpoint, ours).status == OUTCOME[endpoint]
    assert plain(engines, endpoint, "Origin: http://localhost:PORT").status == OUTCOME[endpoint]
    assert plain(engines, endpoint, ours, foreign).status == 403
    assert plain(engines, endpoint, foreign, ours).status == 403


def test_tokens_travel_in_one_header(engines: Engines) -> None:
    """D22, J9: one Authorization header; not the query, a cookie or a header of another name. `bearer` in any case."""
    bearer = "Authorization: Bearer TOKEN"
    assert plain(engines, INSPECT, bearer).json()["valid"] is True
    assert plain(engines, INSPECT, bearer.replace("Bearer", "bEARER")).json()["valid"] is True
    assert code(plain(engines, INSPECT, bearer, bearer)) == (400, "bad_request")
    assert code(plain(engines, INSPECT, bearer, "Authorization: Basic eDp5")) == (400, "bad_request")
    for header in ("Cookie: token=TOKEN", "X-Access-Token: TOKEN"):
        answer = plain(engines, INSPECT, header)
        assert (answer.status, answer.header("www-authenticate")) == (401, "Bearer")
    assert plain(engines, INSPECT, target=f"{INSPECT}?token=TOKEN&access_token=TOKEN").status == 401


@pytest.mark.parametrize(
    "value",
    [
        "Bearer",
        "Bearer ",
        "Bearer  TOKEN",
        "Basic TOKEN",
        "TOKEN",
        "Bearer\tTOKEN",
        "Bearer TOKEN, Bearer TOKEN",
        "Bearer TOKEN\x01",
        "Bearer \xff",
        "Bearer TOKENx",
        "Bearer " + "A" * 9000,
    ],
)
def test_odd_authorization(engines: Engines, value: str) -> None:
    """Finding 6, D33: 401 that says `valid: false`, and nothing of the header comes back."""
    answer = plain(engines, INSPECT, f"Authorization: {value}")
    assert code(answer) == (401, "invalid_token")
    assert answer.json()["valid"] is False
    assert json.dumps(answer.json())
