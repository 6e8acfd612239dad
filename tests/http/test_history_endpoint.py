"""`GET /api/events/history/` and `overview/`: for MASTER, in pages, and clear about what is wrong with a question."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.fakes import key
from tests.support.processes import EngineProcess, bearer, running_engine, sign_in

pytestmark = pytest.mark.process

HISTORY, OVERVIEW = "/api/events/history/", "/api/events/overview/"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    with running_engine(tmp_path_factory.mktemp("history") / "hatchway") as running:
        yield running


@pytest.fixture
def client(engine: EngineProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=engine.url) as made:
        made.headers.update(bearer(sign_in(made, key("own"))["token"]))
        yield made


def read(client: httpx.Client, **asked: Any) -> dict[str, Any]:
    response = client.get(HISTORY, params=asked)
    assert response.status_code == 200, response.text
    told: dict[str, Any] = response.json()
    return told


def test_pages_by_what_is_asked(engine: EngineProcess, client: httpx.Client) -> None:
    """Every record once, over pages; by identity, whose + may have become a space; by kind, by event."""
    for _ in range(5):
        sign_in(client)
    client.post("/api/auth/verify/", json={"nonce": "x", "signature": "AAAA"})
    found, after = [], 0
    while True:
        told = read(client, after=after, limit=3)
        found += [record["seq"] for record in told["records"]]
        if told["next"] is None:
            break
        after = told["next"]
    assert found == list(range(1, found[-1] + 1))
    lines = (engine.home / "log" / "events.jsonl").read_bytes().splitlines()
    assert read(client, limit=1000)["records"] == [json.loads(line) for line in lines]
    mine = read(client, identity=key().identity)["records"]
    assert len(mine) >= 5
    assert {record["identity"] for record in mine} == {key().identity}
    refused = client.get(f"{HISTORY}?kind=refusal&identity={key().identity.replace('+', ' ')}")
    assert refused.json()["records"] == []
    assert [record["cause"] for record in read(client, kind="refusal")["records"]]
    session = mine[-1]["actor"]
    assert [record["actor"] for record in read(client, actor=session)["records"]] == [session]


def test_how_things_stood_before_a_page(client: httpx.Client) -> None:
    """The states before its first record, from the beginning to now."""
    first = read(client, limit=1, states="true")
    assert first["states"] == {"session": {"active": 0}} | {
        chart: dict.fromkeys(states, 0) for chart, states in first["states"].items() if chart != "session"
    }
    starts = read(client, event="start", chart="session", limit=1000)["records"]
    starts = [record for record in starts if record["kind"] == "transition"]
    last = read(client, after=starts[-1]["seq"] - 1, limit=1, states="true")
    assert last["states"]["session"]["active"] == len(starts) - 1


def test_a_plot(client: httpx.Client) -> None:
    """Of the last hour, unless another time is asked for."""
    told = client.get(OVERVIEW).json()
    assert set(told) == {"since", "step", "sign_ins", "refusals", "sessions"}
    assert len(told["sign_ins"]) <= 120
    assert sum(told["sign_ins"]) >= 1
    assert told["sessions"][-1] == len(client.get("/api/auth/sessions/").json()["sessions"])


@pytest.mark.parametrize(
    ("path", "field"),
    [
        (HISTORY + "?limit=0", "limit"),
        (HISTORY + "?limit=1001", "limit"),
        (HISTORY + "?after=-1", "after"),
        (HISTORY + "?since=yesterday", "since"),
        (HISTORY + "?until=nan", "until"),
        (HISTORY + "?kind=other", "kind"),
        (HISTORY + "?actor=", "actor"),
        (HISTORY + "?actor=a&actor=b", "actor"),
        (HISTORY + "?states=maybe", "states"),
        (HISTORY + "?aktor=a", "aktor"),
        (HISTORY + "?actor=%ff", "query"),
        (OVERVIEW + "?points=501", "points"),
        (OVERVIEW + "?since=1_0", "since"),
        (OVERVIEW + "?since=2e11", "since"),
    ],
)
def test_what_is_wrong_is_named(client: httpx.Client, path: str, field: str) -> None:
    """The field, and why."""
    response = client.get(path)
    assert (response.status_code, response.json()["code"]) == (422, "invalid_request")
    assert field in response.json()["errors"]


@pytest.mark.parametrize("path", [HISTORY, OVERVIEW])
def test_only_the_master_reads(engine: EngineProcess, path: str) -> None:
    """Nobody else, whatever they may do."""
    with httpx.Client(base_url=engine.url) as client:
        assert client.get(path).status_code == 401
        assert client.get(path, headers=bearer(sign_in(client)["token"])).status_code == 403
