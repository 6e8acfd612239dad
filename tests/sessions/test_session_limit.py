"""How many sessions an identity may have, and lists in pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

from hatchway.api.client.base import Driven
from hatchway.api.client.flows import Ask, Flow, Flows
from hatchway.api.client.wire import NotAnEngine
from hatchway.api.http.app import make_app
from hatchway.engine.access.principal import IssuedSession
from hatchway.engine.base.errors import TooManyRequests
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.engine import Engine
from hatchway.engine.runtime.records import NOBODY
from hatchway.engine.settings.settings import Limits
from tests.support.fakes import Browser, key, sign_in, signed, virtual_engine, watch_of

pytestmark = pytest.mark.virtual_time
HOUR = 3600
SESSIONS = "/api/auth/sessions/"


@pytest.fixture
async def engine(home: Path) -> AsyncIterator[Engine]:
    async with virtual_engine(home, limits=Limits(sessions_per_identity=5)) as made:
        yield made


async def start(engine: Engine, identity: str | None = None, lifetime: int = 24 * HOUR) -> IssuedSession:
    return await engine.sessions.start(
        "key", identity or key().identity, FIVE, lifetime, proof="signature", origin=NOBODY
    )


def name_of(engine: Engine, signed_in: IssuedSession) -> str:
    return engine.sessions.name_of(signed_in.token)


def live(engine: Engine) -> list[str]:
    return [actor.id for actor in engine.runtime.actors("session")]


async def test_the_oldest_out_of_use_makes_room(engine: Engine) -> None:
    """Past the limit the oldest session that was not used for an hour ends, and none that was used."""
    made = []
    for _ in range(5):
        made.append(await start(engine))
        await trio.sleep(1)
    await trio.sleep(HOUR - 60)
    engine.sessions.authenticate(made[0].token)
    await trio.sleep(120)
    sixth = await start(engine)
    assert sorted(live(engine)) == [name_of(engine, one) for one in (made[0], *made[2:], sixth)]
    ended = [record for record in watch_of(engine).records if record.cause == "too_many_sessions"]
    assert [record.actor for record in ended] == [name_of(engine, made[1])]


async def test_sessions_in_use_stay(engine: Engine) -> None:
    """Where all are in use the next sign-in is refused, with the time until that may change; one logged out is room."""
    made = [await start(engine) for _ in range(5)]
    await trio.sleep(HOUR - 10)
    with pytest.raises(TooManyRequests, match=r"5 sessions are live.*limits\.sessions_per_identity") as refused:
        await start(engine)
    assert refused.value.retry_after == 10
    await start(engine, key("two").identity)
    await engine.sessions.logout(engine.sessions.authenticate(made[3].token), NOBODY)
    await start(engine)
    assert len(live(engine)) == 6


async def test_many_at_once_pass_no_limit(engine: Engine) -> None:
    """Sign-ins that are under way count: of twenty at once five are let in."""
    told = list[bool]()

    async def one() -> None:
        try:
            await start(engine, lifetime=60)
            told.append(True)
        except TooManyRequests:
            told.append(False)

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(one)
    assert sum(told) == len(live(engine)) == 5
    await trio.sleep(61)
    assert len([await start(engine) for _ in range(5)]) == 5


async def test_a_refused_sign_in_is_429_and_burns_no_nonce(engine: Engine) -> None:
    """Over HTTP: 429 with Retry-After, and the same nonce signs in once there is room."""
    browser = Browser(make_app(engine))
    made = [await sign_in(browser) for _ in range(5)]
    body = signed((await browser.get("/api/auth/challenge/")).json()["nonce"], key())
    refused = await browser.post("/api/auth/verify/", body)
    assert (refused.status, refused.json()["code"]) == (429, "too_many_requests")
    assert int(refused.headers["retry-after"]) > 0
    await browser.post("/api/auth/logout/", {}, token=made[0]["token"])
    assert (await browser.post("/api/auth/verify/", body)).status == 200


async def pages(browser: Browser, token: str, query: str = "") -> list[list[str]]:
    """The ids of a list, page by page."""
    found, after = list[list[str]](), ""
    while True:
        told = (await browser.get(f"{SESSIONS}?{query}&after={after}".replace("?&", "?"), token=token)).json()
        found.append([row["session"] for row in told["sessions"]])
        if "next" not in told:
            return found
        after = told["next"]
        assert after == found[-1][-1]


async def test_sessions_come_in_pages(home: Path) -> None:
    """At most 200 a page, one's own or with MASTER all; what ends meanwhile makes no page repeat or miss another."""
    async with virtual_engine(home, limits=Limits(sessions_per_identity=10_000)) as engine:
        browser = Browser(make_app(engine))
        engine.keys.register(key("two").public, FIVE)
        mine = await sign_in(browser)
        for number in range(450):
            await start(engine, key("two").identity if number % 3 == 0 else None)
        everything = sorted(live(engine))
        own = await sign_in(browser, key("own"))
        assert [len(page) for page in await pages(browser, own["token"])] == [200, 200, 52]
        listed = [name for page in await pages(browser, own["token"]) for name in page]
        assert [name for name in listed if name in everything] == everything
        mine_now = {one.id for one in engine.runtime.actors("session") if one.facts.identity == key().identity}
        ours = [name for name in everything if name in mine_now]
        assert await pages(browser, mine["token"], "limit=100") == [
            ours[:100],
            ours[100:200],
            ours[200:300],
            ours[300:],
        ]
        first = (await browser.get(f"{SESSIONS}?limit=2", token=mine["token"])).json()
        principal = engine.sessions.authenticate(mine["token"])
        await engine.sessions.revoke(principal, first["next"], NOBODY)
        behind = (await browser.get(f"{SESSIONS}?limit=2&after={first['next']}", token=mine["token"])).json()
        assert [row["session"] for row in behind["sessions"]] == ours[2:4]


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "limit=x", "limit=", "limit=1e2", "after=%2F", "page=2"])
async def test_a_page_that_is_none_is_refused(engine: Engine, query: str) -> None:
    """422, with what is wrong."""
    browser = Browser(make_app(engine))
    told = await browser.get(f"{SESSIONS}?{query}", token=(await sign_in(browser))["token"])
    assert (told.status, list(told.json()["errors"])) == (422, [query.partition("=")[0]])


async def test_the_index_follows_every_change(home: Path) -> None:
    """What is listed is what lives: after a restart, an end by time, a revocation."""
    async with virtual_engine(home) as engine:
        made = [await start(engine, lifetime=600) for _ in range(30)]
        principal = engine.sessions.authenticate(made[0].token)
        for one in made[5:10]:
            await engine.sessions.revoke(principal, name_of(engine, one), NOBODY)
    async with virtual_engine(home) as engine:
        assert [actor.id for actor in engine.sessions.visible(principal)] == sorted(live(engine))
        assert len(live(engine)) == 25
        await trio.sleep(601)
        assert list(engine.sessions.visible(principal)) == []
        assert engine.runtime.count_of("session", key().identity) == 0


def test_the_client_follows_every_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole list, whatever its pages; one that leads back is no engine's."""
    told: dict[str, dict[str, Any]] = {
        "": {"rows": [{"n": 1}], "next": "b"},
        "b": {"rows": [{"n": 2}], "next": "c"},
        "c": {"rows": [{"n": 3}]},
    }
    flows = Flows("http://127.0.0.1:1", None, None, None, lambda stored: None)

    def answered(ask: Ask) -> Flow[Any]:
        yield from ()
        return told[ask.query.get("after", "")]

    monkeypatch.setattr(flows, "json", answered)
    assert Driven(flows.rows("/", "rows")).result == [{"n": 1}, {"n": 2}, {"n": 3}]
    told["c"]["next"] = "b"
    with pytest.raises(NotAnEngine, match="lead back"):
        Driven(flows.rows("/", "rows"))
