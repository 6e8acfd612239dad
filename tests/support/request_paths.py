"""One request to real engines, one for each way that requests take to the gateway: all responses must be equal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import httpx
import pytest

from tests.support.hostile_requests import Raw, exchange, request
from tests.support.processes import running_engine, sign_in

CHALLENGE, VERIFY, INSPECT = "/api/auth/challenge/", "/api/auth/verify/", "/api/auth/inspect/"
METHODS = {CHALLENGE: "GET", VERIFY: "POST", INSPECT: "GET"}
"""The endpoints that the plain-request parser and worker processes answer, and the method of each."""

JSON = "Content-Type: application/json"

SETTINGS: tuple[dict[str, str], ...] = ({}, {"HATCHWAY_LANE": "false"}, {"HATCHWAY_WORKERS": "2"})
"""By the plain-request parser, and by h11 what that leaves; by h11 all; behind worker processes."""


class Served(NamedTuple):
    """An engine's port, and a token of its."""

    port: int
    token: str


Engines = tuple[Served, ...]


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """An engine for each of SETTINGS."""
    folder = tmp_path_factory.mktemp("manners")
    with ExitStack() as stack:
        served = []
        for place, settings in enumerate(SETTINGS):
            engine = stack.enter_context(running_engine(folder / str(place) / "home", **settings))
            with httpx.Client(base_url=engine.url) as client:
                served.append(Served(engine.port, sign_in(client)["token"]))
        yield tuple(served)


def everywhere(engines: Engines, method: str, target: str, *headers: str, body: bytes = b"", host: str = "") -> Raw:
    """One request to every engine; `PORT` and `TOKEN` in it are that engine's own. The response, equal for all."""
    requests = [
        request(
            method,
            target.replace("TOKEN", one.token),
            *(header.replace("PORT", str(one.port)).replace("TOKEN", one.token) for header in headers),
            port=one.port,
            body=body,
            host=host.replace("PORT", str(one.port)) or None,
            close=False,  # the parser of plain requests leaves those that end the connection
        )
        for one in engines
    ]
    return _same(engines, requests)


def raw(engines: Engines, data: bytes) -> Raw:
    """Bytes to every engine; `PORT` and `TOKEN` in them are that engine's own."""
    return _same(
        engines, [data.replace(b"PORT", b"%d" % one.port).replace(b"TOKEN", one.token.encode()) for one in engines]
    )


def _same(engines: Engines, requests: list[bytes]) -> Raw:
    answers = [exchange(one.port, data) for one, data in zip(engines, requests, strict=True)]
    told = [_comparable(answer, one) for answer, one in zip(answers, engines, strict=True)]
    assert all(other == told[0] for other in told), told
    assert not any(one.token[:40].encode() in answer.body for answer, one in zip(answers, engines, strict=True))
    check_manners(answers[0])
    return answers[0]


def _comparable(answer: Raw, served: Served) -> Any:
    """What must be equal: all but the date, the random parts of a nonce, a session's times and names, and the port."""
    headers = sorted(pair for pair in answer.headers if pair[0] not in ("date", "content-length"))
    body = re.sub(rb'"(nonce|session|expires_at)":("[^"]*"|[0-9.]+)', rb'"\1":0', answer.body)
    return answer.status, headers, body.replace(b"%d" % served.port, b"PORT")


def check_manners(answer: Raw) -> None:
    """What every answer keeps, whatever was asked."""
    names = [name for name, _ in answer.headers]
    assert not any(name.startswith("access-control-") for name in names)
    assert not {"server", "set-cookie", "x-powered-by"} & set(names)
    assert len(names) == len(set(names))
    assert answer.status < 500 or answer.status in (501, 505)
    assert b"Traceback" not in answer.body
    if answer.body:
        assert answer.header("x-content-type-options") == "nosniff"
        kept = answer.header("content-security-policy")  # a file of the console may be kept, and is asked about
        assert ("no-cache" if kept else "no-store") in (answer.header("cache-control") or "")
    if answer.body and answer.status >= 400:
        assert answer.header("content-type") == "application/problem+json"
        problem = answer.json()
        assert {"type", "title", "status", "detail", "code"} <= set(problem)
        assert problem["status"] == answer.status
    if answer.status == 401:
        assert (answer.header("www-authenticate") or "").startswith("Bearer")


def code(answer: Raw) -> tuple[int, str]:
    """Status and the problem's code."""
    return answer.status, answer.json()["code"]


def plain(engines: Engines, endpoint: str, *headers: str, target: str = "", host: str = "") -> Raw:
    """A sound request to an endpoint, but for what is changed."""
    body = b"{}" if endpoint == VERIFY else b""
    kind = (JSON,) if body else ()
    return everywhere(engines, METHODS[endpoint], target or endpoint, *kind, *headers, body=body, host=host)


OUTCOME = {CHALLENGE: 200, VERIFY: 422, INSPECT: 401}
"""What a request without anything odd gets: a challenge, two missing fields named, no token."""
