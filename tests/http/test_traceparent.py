"""Whoever sends a `traceparent` (W3C Trace Context) finds the line of it: in the response, and in the journal."""

from __future__ import annotations

import httpx
import pytest
from structlog.testing import capture_logs

from hatchway.engine.engine import Engine
from tests.support import processes
from tests.support.fakes import Browser, key, sign_in, signed, watch_of
from tests.support.worker_connections import engine_with_workers

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
HEADERS = {"traceparent": TRACE}


@pytest.mark.virtual_time
async def test_a_trace_is_kept_and_given_on(browser: Browser, engine: Engine) -> None:
    """A sign-in with one: its record and the log have it, and the response says our name of the request beside it."""
    nonce = (await browser.get("/api/auth/challenge/", headers=HEADERS)).json()["nonce"]
    with capture_logs() as lines:
        reply = await browser.post("/api/auth/verify/", signed(nonce, key()), headers=HEADERS)
    assert [line["traceparent"] for line in lines if line["event"] == "session.start"] == [TRACE]
    record = watch_of(engine).records[-1]
    assert (record.event, record.traceparent) == ("start", TRACE)
    assert reply.headers["x-request-id"] == f"{record.request_id};traceparent={TRACE}"


@pytest.mark.virtual_time
async def test_refusals_are_traced(browser: Browser, engine: Engine) -> None:
    """A failed sign-in, a missing token and a permission that lacks, too."""
    reply = await browser.post("/api/auth/verify/", {"nonce": "x", "signature": "AAAA"}, headers=HEADERS)
    assert (reply.status, watch_of(engine).records[-1].traceparent) == (401, TRACE)
    assert reply.headers["x-request-id"].endswith(TRACE)
    assert (await browser.get("/api/auth/inspect/", headers=HEADERS)).headers["x-request-id"].endswith(TRACE)


@pytest.mark.virtual_time
async def test_what_is_lacking_is_recorded(browser: Browser, engine: Engine) -> None:
    """A start of an instance without the permission is a refusal that says what was asked, and what was held."""
    engine.keys.register(key("two").public, ("SHELL",))
    session = await sign_in(browser, key("two"))
    reply = await browser.post("/api/platform/singularity/instance/", {"image": "x"}, token=session["token"])
    assert reply.status == 403
    record = watch_of(engine).records[-1]
    assert (record.kind, record.chart, record.event, record.cause) == (
        "refusal",
        "instance",
        "request",
        "permission_denied",
    )
    assert record.saw
    assert (record.saw.asked, record.saw.held) == ("RUNTIME", ("SHELL",))


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    "value",
    [
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","x":"y',
        "",
    ],
)
async def test_what_is_none_is_passed_over(browser: Browser, engine: Engine, value: str) -> None:
    """A malformed one is no error, and is kept nowhere (section 4.3 of Trace Context)."""
    reply = await browser.post("/api/auth/verify/", {"nonce": "x", "signature": "A"}, headers={"traceparent": value})
    assert "x-request-id" not in reply.headers
    assert not watch_of(engine).records[-1].traceparent


@pytest.mark.process
def test_through_workers(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A worker's response is no other's again: each request with a trace has a name of its own."""
    home = tmp_path_factory.mktemp("workers") / "hatchway"
    with engine_with_workers(home) as engine, httpx.Client(base_url=engine.url) as client:
        token = processes.sign_in(client)["token"]
        bearer, path = processes.bearer(token), "/api/auth/inspect/"
        ids = [client.get(path, headers=HEADERS | bearer).headers["x-request-id"] for _ in range(3)]
        assert len(set(ids)) == 3
        assert all(name.endswith(f";traceparent={TRACE}") for name in ids)
        assert "x-request-id" not in client.get(path, headers=bearer).headers
