"""Who may what at which endpoint: every permission at every row of the table, against a real engine process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from hatchway.api.http.endpoint import Endpoint
from hatchway.api.http.table import ENDPOINTS
from hatchway.engine.base.permissions import FIVE, MASTER, READ, allows
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from tests.support.fakes import key
from tests.support.hostile_requests import Raw, exchange, request
from tests.support.processes import EngineProcess, prepare, running_engine, sign_in
from tests.support.real_pairings import pair

pytestmark = pytest.mark.process

GRADES = (*FIVE, *(f"{name}:{READ}" for name in FIVE))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    """One whose authorized_keys has a key for each permission and grade."""
    home = tmp_path_factory.mktemp("endpoints") / "home"
    prepare(home)
    keys = AuthorizedKeys(home / "authorized_keys")
    for name in GRADES:
        keys.register(key(name).public, (name,), name)
    with running_engine(home) as running:
        yield running


@pytest.fixture(scope="module")
def tokens(engine: EngineProcess) -> dict[str, str]:
    """A token for each way of holding each permission."""
    with httpx.Client(base_url=engine.url) as client:
        made = {f"key {name}": sign_in(client, key(name))["token"] for name in GRADES}
        made[f"key {MASTER}"] = sign_in(client, key("own"))["token"]
    return made | {f"pairing {name}": pair(engine, [name])["token"] for name in GRADES}


def ask(engine: EngineProcess, endpoint: Endpoint, token: str | None, body: bytes = b"{}") -> Raw:
    """The beginning of a response; events go on for ever, so of them only a foreign host's part is read."""
    path = endpoint.path.format(session="none", identity="none", name="pairing", file="none.js")
    headers = ("Content-Type: application/json",) if endpoint.body else ()
    if token is not None:
        headers = (*headers, f"Authorization: Bearer {token}")
    if endpoint.path == "/api/events/":
        headers = (*headers, "Last-Event-ID: no id")  # refused once its permission is seen: nothing is held
    return exchange(
        engine.port, request(endpoint.method, path, *headers, port=engine.port, body=body if endpoint.body else b"")
    )


ENDING = {"/api/auth/logout/", "/api/auth/renew/"}


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: f"{endpoint.method} {endpoint.path}")
def test_each_permission_at_each_endpoint(engine: EngineProcess, tokens: dict[str, str], endpoint: Endpoint) -> None:
    """D18: 401 without a token, 403 that names what is missing without the permission, and never 403 with it."""
    assert (ask(engine, endpoint, None).status == 401) == (endpoint.access != "open")
    assert (ask(engine, endpoint, "a.b.c").status == 401) == (endpoint.access != "open")
    if endpoint.path in ENDING:
        return  # any session may end or renew itself; test_sessions has them
    for principal, token in tokens.items():
        answer = ask(engine, endpoint, token)
        held = (principal.partition(" ")[2],)
        allowed = endpoint.access in ("open", "session") or allows(held, endpoint.access)
        assert (answer.status == 403) == (not allowed), (principal, answer)
        assert answer.status != 401
        assert answer.status < 500 or answer.status == 503, answer
        if not allowed:
            assert answer.json()["code"] == "permission_denied"
            assert answer.json()["detail"].endswith(endpoint.access)
            assert answer.header("www-authenticate") == f'Bearer error="insufficient_scope", scope="{endpoint.access}"'


def test_permission_comes_before_the_body(engine: EngineProcess, tokens: dict[str, str]) -> None:
    """S1: without RUNTIME a body is not even read for its faults; a read-only RUNTIME is refused the start."""
    start = next(
        endpoint for endpoint in ENDPOINTS if endpoint.path.endswith("/instance/") and endpoint.method == "POST"
    )
    for body in (b"{}", b"[", b'{"image":"x.sif","permissions":["MASTER"]}'):
        assert ask(engine, start, tokens["key SHELL"], body).status == 403
        assert ask(engine, start, tokens["key RUNTIME:READ"], body).status == 403
    assert ask(engine, start, tokens["key RUNTIME"], b"[").status == 400
    assert ask(engine, start, tokens["pairing RUNTIME"], b'{"image":"x","permissions":["MASTER"]}').status == 422


@pytest.mark.parametrize("more", [{"permissions": ["MASTER"]}, {"exp": 1 << 40}, {"subject": "x"}, {"sub": "x"}])
def test_nobody_asks_for_more(engine: EngineProcess, more: dict[str, Any]) -> None:
    """V8, D18: a verify that names permissions is refused for the field; what is granted is authorized_keys' alone."""
    with httpx.Client(base_url=engine.url) as client:
        nonce = client.get("/api/auth/challenge/").json()["nonce"]
        answer = client.post("/api/auth/verify/", json={"nonce": nonce, "signature": "AA", **more})
        assert answer.status_code == 422
        assert set(answer.json()["errors"]) == set(more)
        assert sign_in(client, key("AGENT"))["permissions"] == ["AGENT"]


def test_no_endpoint_answers_other_pages(engine: EngineProcess) -> None:
    """D9, D10: every endpoint, the console's files, a path that is none: no foreign Host or Origin, no CORS."""
    targets = [(d.method, d.path.format(session="a", identity="a", name="a", file="home.js")) for d in ENDPOINTS]
    for method, target in [*targets, ("GET", "/nothing")]:
        for headers, host, status in (
            (("Origin: http://evil.test",), None, 403),
            (("Origin: null",), None, 403),
            ((), "evil.test", 421),
            ((), f"127.0.0.1.evil.test:{engine.port}", 421),
        ):
            answer = exchange(engine.port, request(method, target, *headers, port=engine.port, host=host))
            assert answer.status == status, (method, target, headers, host, answer)
            assert not any(name.startswith("access-control-") for name, _ in answer.headers)


def test_the_console_is_bound(engine: EngineProcess) -> None:
    """D10: a strict policy, no framing, no sniffing, no referrer; /api/ answers are kept nowhere; no cookie is set."""
    page = exchange(engine.port, request("GET", "/", port=engine.port))
    policy = page.header("content-security-policy") or ""
    for word in ("default-src 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"):
        assert word in policy
    assert page.header("x-content-type-options") == "nosniff"
    assert page.header("referrer-policy") == "no-referrer"
    assert page.header("cross-origin-opener-policy") == "same-origin"
    for endpoint in ENDPOINTS:
        answer = ask(engine, endpoint, None)
        assert answer.header("set-cookie") is None
        if endpoint.path.startswith("/api/"):
            assert answer.header("cache-control") == "no-store"


def test_head_holds_nothing(engine: EngineProcess, tokens: dict[str, str]) -> None:
    """A stream asked for by HEAD is its head alone, at once: nobody is sent the rest (RFC 9110 section 9.3.2)."""
    headers = (f"Authorization: Bearer {tokens['key MASTER']}", "Last-Event-ID: 0")
    answer = exchange(engine.port, request("HEAD", "/api/events/", *headers, port=engine.port))
    assert (answer.status, answer.header("content-type"), answer.body) == (200, "text/event-stream", b"")
    assert answer.header("content-length") is None
