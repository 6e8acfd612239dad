"""What the engine measures can be read by Prometheus, is true, and tells strangers nothing."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Histogram as TheirHistogram

from hatchway.api.http.app import make_app
from hatchway.engine.base.version import installed_version
from hatchway.engine.engine import Engine
from hatchway.engine.journal.metrics import Histogram
from hatchway.engine.runtime.records import NOBODY, Record
from tests.support.fakes import ROOT, Browser, Reply, key, sign_in
from tests.support.live_engine import live_engine
from tests.support.scraped_metrics import Labels, parsed

DASHBOARD = json.loads((ROOT / "api" / "dashboards" / "hatchway.json").read_text())


class Scraped(dict[str, dict[Labels, float]]):
    def value(self, name: str, **labels: str) -> float:
        return self[name][frozenset(labels.items())]


async def scrape(browser: Browser, **more: Any) -> Scraped:
    reply = await browser.get("/metrics", **more)
    assert reply.status == 200, reply.body
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return Scraped(parsed(reply.body.decode()))


@pytest.fixture
async def engine(home: Path) -> AsyncIterator[Engine]:
    async with live_engine(home) as live:
        yield live.engine


@pytest.fixture
async def browser(engine: Engine) -> Browser:
    return Browser(make_app(engine), host=engine.settings.addresses[0])


async def test_an_engine_whose_keys_are_refused_is_not_ready(engine: Engine, browser: Browser) -> None:
    """Nobody can sign in, so a balancer sends nobody there; the host is told why, and a client no path."""
    assert (await browser.get("/readyz")).status == 200
    engine.keys.path.chmod(0o644)
    told = await browser.get("/readyz")
    assert (told.status, told.json()["code"]) == (503, "file_refused")
    assert str(engine.home) not in told.body.decode()
    assert (await scrape(browser)).value("hatchway_ready") == 0
    assert "chmod 600" in engine.status()["not_ready"]
    engine.keys.path.chmod(0o600)
    assert (await browser.get("/readyz")).status == 200


async def pair(engine: Engine, browser: Browser) -> None:
    """A whole pairing: a code, its claim, the operator's yes."""
    told = trio.Event()

    def terminal(event: str, **details: Any) -> None:
        if event == "claimed":
            told.set()

    issued = await engine.pairings.issue(("SHELL",), 3600, terminal, NOBODY)
    reply = Reply()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(browser.talk, reply, "POST", "/api/auth/pair/request/", {"code": issued.code})
        await told.wait()
        await engine.pairings.answer(issued.id, True, NOBODY)
    assert "token" in reply.lines()[-1]


async def test_everything_measured_is_true(engine: Engine, browser: Browser) -> None:
    """Sign-ins by key and code, a logout, a failure: each is counted once, where it belongs."""
    token = (await sign_in(browser))["token"]
    await sign_in(browser)
    await pair(engine, browser)
    await browser.post("/api/auth/logout/", token=token)
    await browser.post("/api/auth/verify/", {"nonce": "x", "signature": "AAAA"})
    await browser.post("/api/auth/pair/request/", {"code": "ABCD1234"})
    found = await scrape(browser)
    for labels, count in (
        ({"chart": "session", "event": "start", "target": "active"}, 3),
        ({"chart": "session", "event": "logout", "target": "ended"}, 1),
        ({"chart": "pairing", "event": "approve", "target": "approved"}, 1),
    ):
        assert found.value("hatchway_transitions_total", **labels) == count
    assert {dict(labels)["chart"] for labels in found["hatchway_refusals_total"]} == {"session", "pairing"}
    assert found.value("hatchway_actors", chart="session", state="active") == 2
    assert found.value("hatchway_actors", chart="pairing", state="issued") == 0
    assert found.value("hatchway_timers_armed") == 2
    verify = {"method": "POST", "path": "/api/auth/verify/"}
    assert found.value("hatchway_request_duration_seconds_count", **verify, status="200") == 2
    assert found.value("hatchway_request_duration_seconds_count", **verify, status="401") == 1
    assert found.value("hatchway_sign_in_duration_seconds_count", method="key") == 2
    assert found.value("hatchway_sign_in_duration_seconds_count", method="pairing") == 1
    assert found.value("hatchway_store_commit_duration_seconds_count", chart="session") == 4
    info = {"issuer": engine.identity, "version": installed_version()}
    assert found.value("hatchway_engine_info", **info) == 1
    assert found.value("hatchway_store_bytes") == engine.store.size() > 0
    assert found.value("hatchway_records_total") == engine.journal.last_seq
    assert found.value("process_resident_memory_bytes") > 1e6


async def test_live_actors_are_counted_over_a_restart(home: Path) -> None:
    """Sessions that the store brings back are live from the start; those that end are not."""
    async with live_engine(home) as live:
        browser = Browser(make_app(live.engine), host=live.engine.settings.addresses[0])
        tokens = [(await sign_in(browser))["token"] for _ in range(3)]
    async with live_engine(home) as live:
        browser = Browser(make_app(live.engine), host=live.engine.settings.addresses[0])
        assert (await scrape(browser)).value("hatchway_actors", chart="session", state="active") == 3
        await browser.post("/api/auth/logout/", token=tokens[0])
        assert (await scrape(browser)).value("hatchway_actors", chart="session", state="active") == 2


async def test_the_loop_and_timers_are_watched(engine: Engine, browser: Browser) -> None:
    """The event loop's lag is looked at twice a second, the lateness of every timer as it fires."""
    engine.metrics.observe_lateness(0.02)
    with trio.fail_after(60):
        while (await scrape(browser)).value("hatchway_event_loop_lag_seconds_count") < 2:
            await trio.sleep(0.1)
    found = await scrape(browser)
    assert found.value("hatchway_timer_lateness_seconds_sum") == pytest.approx(0.02)
    assert found.value("hatchway_event_loop_lag_seconds_sum") < 20


async def test_no_label_is_a_strangers_choice(engine: Engine, browser: Browser) -> None:
    """Paths, codes, names and identities that anybody may send are in no label: the number of lines is bounded."""
    before = sum(map(len, (await scrape(browser)).values()))
    for number in range(40):
        await browser.get(f"/api/nothing/{number}/")
        await browser.get(f"/console/{number}.js")
        await browser.post("/api/auth/verify/", {"nonce": f"nonce{number}", "signature": "AAAA"})
        await browser.get(f"/api/auth/challenge/?identity=who{number}")
    reply = await browser.get("/metrics")
    assert sum(map(len, parsed(reply.body.decode()).values())) < before + 120
    assert b"nonce1" not in reply.body
    assert b"who1" not in reply.body
    assert key().identity.encode() not in reply.body


@pytest.mark.parametrize(
    ("address", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("127.8.8.8", {}, 200),
        ("::1", {}, 200),
        ("192.0.2.7", {}, 401),
        ("", {}, 401),
        ("127.0.0.1", {"x-forwarded-for": "192.0.2.7"}, 401),
        ("127.0.0.1", {"forwarded": "for=192.0.2.7"}, 401),
    ],
)
async def test_strangers_need_the_master(browser: Browser, address: str, headers: dict[str, str], status: int) -> None:
    """Open on this host, but not through a proxy on it; from elsewhere only with a MASTER token."""
    browser.address = address
    assert (await browser.get("/metrics", headers=headers)).status == status
    master = (await sign_in(browser, key("engine")))["token"]
    assert (await browser.get("/metrics", headers=headers, token=master)).status == 200
    other = (await sign_in(browser))["token"]
    assert (await browser.get("/metrics", headers=headers, token=other)).status == (200 if status == 200 else 403)


def queries() -> list[str]:
    """Every query of the dashboard: panels, variables, annotations."""
    panels = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    variables = [one["query"]["query"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]
    return panels + variables + [one["expr"] for one in DASHBOARD["annotations"]["list"]]


async def test_the_dashboard_asks_for_what_there_is(engine: Engine, browser: Browser) -> None:
    """Every metric and label in every query of the Grafana dashboard exists; every metric of ours is shown."""
    await sign_in(browser)
    await pair(engine, browser)
    await browser.post("/api/auth/verify/", {"nonce": "x", "signature": "AAAA"})
    engine.metrics.observe_lateness(0.001)
    with trio.fail_after(60):
        while (found := await scrape(browser)).value("hatchway_event_loop_lag_seconds_count") < 1:
            await trio.sleep(0.1)
    shown = set()
    for query in queries():
        names = re.findall(r"\b(?:hatchway|process)_\w+", query)
        assert names, query
        assert set(names) <= set(found), query
        labels = {label for name in names for sample in found[name] for label, _ in sample} | {"instance"}
        used = re.findall(r"(\w+)=~?\"", query) + re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", query)))
        assert set(used) <= labels, query
        shown.update(names)
        assert query.count("(") == query.count(")")
        assert query.count("{") == query.count("}")
    families = {
        re.sub(r"_(bucket|count|sum|created|total)$", "", name) for name in found if name.startswith("hatchway_")
    }
    assert families == {re.sub(r"_(bucket|count|sum|total)$", "", name) for name in shown if name[0] == "h"}


def test_the_dashboard_is_whole() -> None:
    """Panels don't overlap, each says what it shows and has a data source to choose."""
    spots: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not own & spots
        assert place["x"] + place["w"] <= 24
        spots |= own
        if panel["type"] != "row":
            assert panel["description"]
            assert panel["datasource"]["uid"] == "${datasource}"
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


async def test_a_pairing_that_ends_otherwise_is_forgotten(engine: Engine) -> None:
    """Claims that end in any other way are no sign-ins, and nothing of them is kept."""
    for target in ("rejected", "expired", "left", "withdrawn"):
        for event, source, to in (("claim", "issued", "claimed"), ("end", "claimed", target)):
            engine.metrics.take(Record(1.0, 1, "transition", "pairing", "p", event, source, to))
    assert engine.metrics._claimed == {}
    assert b'sign_in_duration_seconds_count{method="pairing"' not in engine.metrics.text()


@pytest.mark.parametrize("labels", [(), ("path", "status")])
def test_our_histograms_tell_what_the_client_librarys_own_would(labels: tuple[str, ...]) -> None:
    """Buckets, counts and sums, at their bounds too: the same text to the byte."""
    texts, bounds = [], (0.001, 0.5, 1, 10)
    for theirs in (True, False):
        registry = CollectorRegistry()
        histogram: Any = Histogram("took_seconds", "Time.", labels, bounds)
        if theirs:
            histogram = TheirHistogram("took_seconds", "Time.", labels, buckets=bounds, registry=None)
        registry.register(histogram)
        for number, value in enumerate((0.0, 0.001, 0.0011, 0.5, 0.7, 10.0, 11.5)):
            values = (f"/{number % 2}", "200")[: len(labels)]
            (histogram if theirs and not labels else histogram.labels(*values)).observe(value)
        texts.append(generate_latest(registry))
    assert texts[0] == texts[1]
    assert b'le="+Inf"' in texts[1]
