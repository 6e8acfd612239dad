"""What a key's options do to sign-ins and sessions: when it expires, from where it counts, how much it allows."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from hatchway.api.http.app import make_app
from hatchway.engine.base.clock import TrioClock
from hatchway.engine.base.errors import TokenRefused
from hatchway.engine.engine import Engine
from hatchway.engine.keys.key_edits import edit
from hatchway.engine.keys.key_options import expiry_of
from hatchway.engine.keys.keys import PrivateKey
from tests.support.event_stream import Reader
from tests.support.fakes import Browser, jump, key, sign_in, signed, virtual_engine, watch_of

pytestmark = pytest.mark.virtual_time

EPOCH = 1_800_000_000
"""What a test's clock begins with: 2027-01-15 08:00:00 UTC."""

AT_TEN = "20270115100000Z"
"""Two hours later."""


def limit(engine: Engine, private: PrivateKey | None = None, **options: str) -> None:
    """Give a key, by default the usual one, these options, as `key edit` does; underscores stand for hyphens."""
    texts = {name.rstrip("_").replace("_", "-"): text for name, text in options.items()}
    engine.keys.edit(lambda data: edit(data, (private or key()).identity, options=texts))


async def refused(browser: Browser, **headers: str) -> tuple[int, str]:
    """What a sign-in is answered that must not succeed."""
    nonce = (await browser.get("/api/auth/challenge/")).json()["nonce"]
    reply = await browser.post("/api/auth/verify/", signed(nonce, key()), headers=headers)
    return reply.status, reply.json().get("detail", "")


async def inspect(browser: Browser, token: str, **headers: str) -> int:
    return (await browser.get("/api/auth/inspect/", token=token, headers=headers)).status


async def test_a_session_ends_with_its_key_to_the_second(browser: Browser, engine: Engine, clock: TrioClock) -> None:
    """sshd accepts a key in the second that `expiry-time` names and not after: so do sign-in, session and token; a
    clock that is set back revives nothing."""
    limit(engine, expiry_time=AT_TEN)
    session = await sign_in(browser, lifetime="24h")
    assert session["expires_at"] == expiry_of(AT_TEN) + 1 == EPOCH + 7201
    await jump(7200 - trio.current_time())
    assert await inspect(browser, session["token"]) == 200
    late = await sign_in(browser)
    await jump(1)
    assert [await inspect(browser, one["token"]) for one in (session, late)] == [401, 401]
    assert await refused(browser) == (401, "the key has expired: have it registered anew, on the engine's host")
    await trio.sleep(1)
    assert not list(engine.runtime.actors("session"))
    clock.skew = -7200
    assert [await inspect(browser, one["token"]) for one in (session, late)] == [401, 401]


async def test_a_key_whose_end_is_moved_nearer_takes_its_sessions_along(
    browser: Browser, engine: Engine, clock: TrioClock
) -> None:
    """The deadline of the chart moves, so that a clock set back changes nothing; an end moved further off moves none,
    and neither does a renewal."""
    session = await sign_in(browser, lifetime="24h")
    limit(engine, expiry_time=AT_TEN)
    await trio.sleep(2.5)
    assert ("shorten", "active") in watch_of(engine).told("session")
    assert [actor.deadline for actor in engine.runtime.actors("session")] == [EPOCH + 7201]
    told = (await browser.get("/api/auth/inspect/", token=session["token"])).json()
    assert told["expires_at"] == told["key_expires_at"] == EPOCH + 7201
    renewed = (await browser.post("/api/auth/renew/", token=session["token"])).json()
    assert renewed["expires_at"] == EPOCH + 7201
    limit(engine, expiry_time="20280101Z")
    await trio.sleep(2.5)
    assert [actor.deadline for actor in engine.runtime.actors("session")] == [EPOCH + 7201]
    await jump(7201 - trio.current_time())
    await trio.sleep(1)
    clock.skew = -7200
    assert await inspect(browser, renewed["token"]) == 401


async def test_a_key_that_an_edit_ends_is_refused_at_once(browser: Browser, engine: Engine) -> None:
    """At its next use, before anybody has looked at the file; the session ends for good."""
    session = await sign_in(browser)
    limit(engine, expiry_time="20200101Z")
    assert await inspect(browser, session["token"]) == 401
    limit(engine, expiry_time="20300101Z")
    assert await inspect(browser, session["token"]) == 401
    assert watch_of(engine).records[-1].cause == "key_expired"


async def test_what_a_stopped_engine_missed(home: Path) -> None:
    """A key that is over, or ends sooner, when the engine starts again: its sessions end, or are shortened."""
    async with virtual_engine(home, clock := TrioClock()) as engine:
        browser = Browser(make_app(engine))
        engine.keys.register(key("two").public, comment="two")
        first, second = await sign_in(browser, lifetime="24h"), await sign_in(browser, key("two"), lifetime="24h")
        limit(engine, expiry_time="20200101Z")
        limit(engine, key("two"), expiry_time=AT_TEN)
    async with virtual_engine(home, clock) as engine:
        assert await engine.orphans.end_of({key().identity}) == 1
        assert [actor.deadline for actor in engine.runtime.actors("session")] == [EPOCH + 7201]
        browser = Browser(make_app(engine))
        assert [await inspect(browser, one["token"]) for one in (first, second)] == [401, 200]


async def test_the_longest_session_of_a_key(browser: Browser, engine: Engine) -> None:
    """`lifetime` bounds a session from its start, renewals included, and may be narrowed while it lives."""
    limit(engine, lifetime="2h")
    session = await sign_in(browser, lifetime="24h")
    assert session["expires_at"] == EPOCH + 7200
    await jump(3600)
    assert (await browser.post("/api/auth/renew/", token=session["token"])).json()["expires_at"] == EPOCH + 7200
    limit(engine, lifetime="90m")
    await trio.sleep(2.5)
    assert [actor.deadline for actor in engine.runtime.actors("session")] == [EPOCH + 5400]


async def test_from_counts_at_sign_in_and_at_every_use(browser: Browser, engine: Engine) -> None:
    """By the connection's address: a token that was carried elsewhere is refused there, and good where it was got."""
    limit(engine, from_="10.0.0.0/8,!10.1.0.0/16")
    inside, outside, left_out = (
        Browser(browser.app, address=address) for address in ("10.2.0.1", "192.0.2.1", "10.1.2.3")
    )
    for other in (outside, left_out, Browser(browser.app, address="::1")):
        assert await refused(other) == (401, "the key may not be used from this address")
    session = await sign_in(inside)
    uses = [await inspect(one, session["token"]) for one in (inside, outside, left_out, inside)]
    assert uses == [200, 401, 401, 200]
    assert await inspect(Browser(browser.app, address="::ffff:10.2.0.1"), session["token"]) == 200
    limit(engine, from_="192.0.2.0/24")
    assert [await inspect(one, session["token"]) for one in (inside, outside)] == [401, 200]
    limit(engine, from_="")
    assert await inspect(left_out, session["token"]) == 200
    limit(engine, from_="*")
    with pytest.raises(TokenRefused):  # where nobody knows from where: on a Unix socket
        engine.sessions.authenticate(session["token"])


async def test_from_goes_by_a_trusted_proxy_s_word(home: Path) -> None:
    """What a configured proxy tells of its client counts, and what anybody else says does not."""
    async with virtual_engine(home, trusted_proxies=("10.0.0.1",)) as engine:
        limit(engine, from_="192.0.2.0/24")
        proxy, stranger = (Browser(make_app(engine), address=one) for one in ("10.0.0.1", "10.0.0.2"))
        good, bad = {"x-forwarded-for": "192.0.2.9"}, {"x-forwarded-for": "192.0.3.9"}
        assert (await refused(proxy, **good))[0] == 200
        assert (await refused(proxy, **bad))[0] == 401
        assert (await refused(stranger, **good))[0] == 401


@asynccontextmanager
async def master_from(engine: Engine, address: str) -> AsyncIterator[tuple[Browser, str]]:
    """The engine's own key, for an address alone, signed in from there."""
    path = engine.keys.path
    path.write_text(path.read_text().replace('permissions="MASTER"', f'permissions="MASTER",from="{address}"'))
    browser = Browser(make_app(engine), address=address)
    yield browser, (await sign_in(browser, key("own")))["token"]


async def test_a_stream_that_is_held_ends_with_its_key(engine: Engine) -> None:
    """Events held open end within a second once the key expires, or may not be used from there any more, and say
    nothing of what came after."""
    for change in ('expiry-time="20270115080500Z"', 'from="10.9.9.9"'):
        async with master_from(engine, "10.0.0.7") as (browser, token), trio.open_nursery() as nursery:
            reader = Reader(browser, token)
            nursery.start_soon(reader.run)
            await trio.sleep(2)
            path = engine.keys.path
            path.write_text(path.read_text().replace('from="10.0.0.7"', change))
            if "expiry" in change:
                await jump(EPOCH + 301 - engine.clock.wall())
            with trio.fail_after(1):
                await reader.reply.done.wait()
            path.write_text(path.read_text().replace(f",{change}", ""))
            await jump(4 * 86_400)


async def test_a_key_that_expires_within_a_week_says_so(browser: Browser, engine: Engine) -> None:
    """Sign-in, renewal and inspect tell when, from a week before; earlier, and without an end, they say nothing."""
    session = await sign_in(browser)
    assert set(session) == {"token", "permissions", "expires_at"}
    limit(engine, expiry_time="20270122080000Z")
    told = await sign_in(browser)
    assert "key_expires_at" not in told
    await jump(10)
    told = await sign_in(browser)
    assert told["key_expires_at"] == EPOCH + 7 * 86_400 + 1
    for reply in (
        await browser.post("/api/auth/renew/", token=told["token"]),
        await browser.get("/api/auth/inspect/", token=told["token"]),
    ):
        assert reply.json()["key_expires_at"] == EPOCH + 7 * 86_400 + 1


def test_times_of_this_host_are_read_without_summer_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As OpenSSH does: the same text is an hour off what clocks on the wall show in summer."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert expiry_of("20270101") == expiry_of("20261231230000Z")
        assert expiry_of("20270701") == expiry_of("20270630230000Z")
    finally:
        monkeypatch.undo()
        time.tzset()
