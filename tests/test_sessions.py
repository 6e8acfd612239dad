"""Sessions in virtual time, through the doors: sign-in, lifetimes, renewal, every end (sections 3.2, 4.1-4.3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from api.http.app import make_app
from engine.clock import SystemClock, TrioClock
from engine.engine import Engine
from engine.records import Origin
from engine.trust.permissions import FIVE
from engine.trust.rotation import rotate_token_key
from tests.fakes import ROOT, Browser, jump, key, sign_in, signed, virtual_engine, watch_of

pytestmark = pytest.mark.virtual_time

INSPECT = "/api/auth/inspect/"


async def valid(browser: Browser, token: str) -> bool:
    reply = await browser.get(INSPECT, token=token)
    assert reply.status in (200, 401)
    assert reply.json()["valid"] is (reply.status == 200)
    return reply.status == 200


async def test_a_key_signs_in(browser: Browser, engine: Engine) -> None:
    """Challenge, signature, session, inspect: the shapes of sections 2.1, 2.2 and 4.3."""
    challenge = (await browser.get("/api/auth/challenge/")).json()
    assert challenge["lifetime"] == "1m0s"
    assert challenge["identity"] == engine.own_key.identity
    session = (await browser.post("/api/auth/verify/", signed(challenge["nonce"], key()))).json()
    assert session["permissions"] == list(FIVE)
    assert session["expires_at"] == int(engine.clock.wall()) + 3600
    reply = await browser.get(INSPECT, token=session["token"])
    assert reply.json() == {
        "valid": True,
        "identity": key().identity,
        "permissions": list(FIVE),
        "expires_at": session["expires_at"],
        "method": "key",
        "session": reply.json()["session"],
    }
    assert reply.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("algorithm", ["RS256", "PS256"])
async def test_both_algorithms(browser: Browser, algorithm: Any) -> None:
    """Each verifies under its own name, never under the other's."""
    nonce = (await browser.get("/api/auth/challenge/")).json()["nonce"]
    body = signed(nonce, key(), algorithm)
    other = "PS256" if algorithm == "RS256" else "RS256"
    assert (await browser.post("/api/auth/verify/", body | {"algorithm": other})).status == 401
    assert (await browser.post("/api/auth/verify/", body)).status == 200


async def test_a_nonce_works_once_and_a_wrong_signature_does_not_burn_it(browser: Browser) -> None:
    """D1: of fifty copies one signs in, and a stranger's bad try before them costs nobody the challenge."""
    nonce = (await browser.get("/api/auth/challenge/")).json()["nonce"]
    assert (await browser.post("/api/auth/verify/", signed(nonce, key("stranger")))).status == 401
    statuses: list[int] = []

    async def attempt() -> None:
        statuses.append((await browser.post("/api/auth/verify/", signed(nonce, key()))).status)

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(attempt)
    assert sorted(statuses) == [200] + [401] * 49


@pytest.mark.parametrize(("age", "status"), [(59.0, 200), (60.5, 401)])
async def test_a_nonce_ages(browser: Browser, age: float, status: int) -> None:
    """D2: a challenge is good for its minute and no longer."""
    nonce = (await browser.get("/api/auth/challenge/")).json()["nonce"]
    await trio.sleep(age)
    assert (await browser.post("/api/auth/verify/", signed(nonce, key()))).status == status


async def test_a_challenge_belongs_to_its_identity(browser: Browser, engine: Engine) -> None:
    """D3: key B can't answer A's challenge, and A still can; an `any` challenge takes either."""
    engine.keys.register(key("two").public, FIVE)
    path = "/api/auth/challenge/?identity=" + key().identity.replace("+", "%2B")
    nonce = (await browser.get(path)).json()["nonce"]
    assert (await browser.post("/api/auth/verify/", signed(nonce, key("two")))).status == 401
    assert (await browser.post("/api/auth/verify/", signed(nonce, key()))).status == 200
    assert (await sign_in(browser, key("two")))["permissions"] == list(FIVE)


async def test_a_bare_plus_in_the_identity(browser: Browser) -> None:
    """A fingerprint pasted unescaped, its `+` read as a space by half the world, names the same key."""
    for spelled in ("SHA256:a+b/c", "SHA256:a b/c", "SHA256%3Aa%2Bb%2Fc", "SHA256:a%20b/c"):
        assert (await browser.get(f"/api/auth/challenge/?identity={spelled}")).json()["identity"] == "SHA256:a+b/c"


@pytest.mark.parametrize("identity", ["", "a%00b", "%FF", "<b>", "x" * 129, "a&identity=b", "..%2F%C3%A9"])
async def test_odd_identities_are_refused(browser: Browser, identity: str) -> None:
    """What can't be an identity is told so, and never reflected."""
    reply = await browser.get(f"/api/auth/challenge/?identity={identity}")
    assert (reply.status, reply.json()["code"]) == (422, "invalid_request")


async def test_one_answer_for_every_bad_signature(browser: Browser, engine: Engine) -> None:
    """D4, D5, D6: unknown key, wrong key, used, old, foreign or mutilated: byte for byte the same 401."""
    nonce = (await browser.get("/api/auth/challenge/")).json()["nonce"]
    good = signed(nonce, key())
    assert (await browser.post("/api/auth/verify/", good)).status == 200
    fresh = (await browser.get("/api/auth/challenge/")).json()["nonce"]
    unknown = (await browser.get("/api/auth/challenge/?identity=SHA256:nobody")).json()["nonce"]
    body = signed(fresh, key())
    signature = body["signature"]
    bad = [
        good,
        signed(unknown, key()),
        signed(fresh, key("stranger")),
        signed(fresh + "x", key()),
        signed(fresh.replace("v1", "v2"), key()),
        *(signed(_bent(fresh, part), key()) for part in range(1, 6)),
        *(
            body | {"signature": spelled}
            for spelled in (
                "",
                "!",
                signature + "=",
                signature[:-4],
                f" {signature}",
                signature[:40] + "\n" + signature[40:],
            )
        ),
        body | {"nonce": "\u00e9"},
        body | {"nonce": ""},
    ]
    replies = [await browser.post("/api/auth/verify/", each) for each in bad]
    assert {reply.status for reply in replies} == {401}
    assert len({reply.body for reply in replies}) == 1
    assert (await browser.post("/api/auth/verify/", body)).status == 200


def _bent(nonce: str, part: int) -> str:
    parts = nonce.split(".")
    parts[part] = ("A" if parts[part][0] != "A" else "B") + parts[part][1:]
    return ".".join(parts)


async def test_failed_verifies_are_limited_and_good_ones_never(browser: Browser, engine: Engine) -> None:
    """Sixty a minute from one address, then 429 with the seconds to wait; a correct signature still signs in."""
    nonce = (await browser.get("/api/auth/challenge/")).json()["nonce"]
    bad = signed(nonce, key("stranger"))
    statuses = [(await browser.post("/api/auth/verify/", bad)).status for _ in range(61)]
    assert statuses == [401] * 60 + [429]
    reply = await browser.post("/api/auth/verify/", bad)
    assert 0 < int(reply.headers["retry-after"]) <= 60
    await sign_in(browser)
    elsewhere = Browser(browser.front, address="192.0.2.7")
    assert (await elsewhere.post("/api/auth/verify/", bad)).status == 401
    await trio.sleep(61)
    assert (await browser.post("/api/auth/verify/", bad)).status == 401


DURATIONS = json.loads((ROOT / "tests/data/own/durations.json").read_text())["cases"]


@pytest.mark.parametrize(("asked", "allowed"), DURATIONS, ids=repr)
async def test_lifetimes(browser: Browser, engine: Engine, asked: Any, allowed: list[Any]) -> None:
    """D21: kept within a minute and a day, one hour out of range, 422 for what is no duration."""
    nonce = (await browser.get("/api/auth/challenge/")).json()["nonce"]
    reply = await browser.post("/api/auth/verify/", signed(nonce, key()) | {"lifetime": asked})
    if reply.status == 200:
        assert reply.json()["expires_at"] - int(engine.clock.wall()) in allowed
    else:
        assert (reply.status, reply.json()["code"]) == (422, "invalid_request")
        assert "lifetime" in reply.json()["errors"]
        assert "deny" in allowed
        assert (await browser.post("/api/auth/verify/", signed(nonce, key()))).status == 200, "the nonce was burned"


async def test_a_session_expires_on_its_second(browser: Browser, engine: Engine) -> None:
    """The last second is good, the next is not, and the record says expired."""
    session = await sign_in(browser, lifetime="1m")
    await trio.sleep(session["expires_at"] - engine.clock.wall() - 0.001)
    assert await valid(browser, session["token"])
    await trio.sleep(0.001)
    assert not await valid(browser, session["token"])
    assert watch_of(engine).told("session")[-1] == ("lifetime_elapsed", "expired")


async def test_renewal_keeps_a_session_to_its_age(browser: Browser, engine: Engine) -> None:
    """D20: renewed while used, with its own lifetime, but no token outlives the sign-in by more than seven days."""
    session = await sign_in(browser, lifetime="24h")
    started = engine.clock.wall()
    for _ in range(20):
        await jump(12 * 3600)
        reply = await browser.post("/api/auth/renew/", token=session["token"])
        if reply.status == 401:
            break
        session = reply.json()
        assert session["expires_at"] <= started + 7 * 24 * 3600
    assert 6.9 * 24 * 3600 < engine.clock.wall() - started <= 7.5 * 24 * 3600


async def test_tabs_that_renew_at_once_all_succeed(browser: Browser) -> None:
    """B12: the token before stays good until its own end; every renewal is of the one session."""
    session = await sign_in(browser)
    await trio.sleep(1800)
    tokens = [session["token"]]
    for _ in range(3):
        tokens.append((await browser.post("/api/auth/renew/", token=session["token"])).json()["token"])
    assert all([await valid(browser, token) for token in tokens])
    await trio.sleep(1801)
    assert [await valid(browser, token) for token in tokens] == [False, True, True, True]


async def test_logout_ends_every_token(browser: Browser) -> None:
    """J3: after the answer all tokens of the session are dead; logging out again is refused."""
    session = await sign_in(browser)
    newer = (await browser.post("/api/auth/renew/", token=session["token"])).json()
    reply = await browser.post("/api/auth/logout/", token=session["token"])
    assert (reply.status, reply.body) == (204, b"")
    assert not await valid(browser, session["token"])
    assert not await valid(browser, newer["token"])
    assert (await browser.post("/api/auth/logout/", token=newer["token"])).status == 401
    assert (await browser.post("/api/auth/renew/", token=newer["token"])).status == 401


@pytest.mark.parametrize("path", ["/api/auth/renew/", "/api/auth/logout/"])
async def test_what_is_asked_of_a_door_that_takes_nothing_is_refused(browser: Browser, path: str) -> None:
    """A lifetime sent with a renewal is not passed over in silence; no body and an empty object are alike."""
    session = await sign_in(browser)

    async def status(body: bytes, **headers: str) -> int:
        return (await browser.post(path, body=body, token=session["token"], headers=headers)).status

    assert await status(b'{"lifetime":"2h"}') == 422
    assert await status(b"{") == 400
    assert await status(b"{}", **{"content-type": "text/plain"}) == 415
    assert await valid(browser, session["token"])
    assert await status(b"{}") in (200, 204)


async def test_sessions_are_listed_and_revoked(browser: Browser, engine: Engine) -> None:
    """One's own are seen and ended; a stranger's are not there; MASTER sees all."""
    engine.keys.register(key("two").public, ("SHELL",))
    engine.keys.register(key("three").public, ("MASTER",), own=True)
    one, also_one, two = await sign_in(browser), await sign_in(browser), await sign_in(browser, key("two"))
    three = await sign_in(browser, key("three"))
    rows = (await browser.get("/api/auth/sessions/", token=one["token"])).json()["sessions"]
    assert len(rows) == 2
    assert sum(row["current"] for row in rows) == 1
    assert len((await browser.get("/api/auth/sessions/", token=three["token"])).json()["sessions"]) == 4
    other = next(row["session"] for row in rows if not row["current"])
    theft = await browser.ask("DELETE", f"/api/auth/sessions/{other}/", token=two["token"])
    assert (theft.status, theft.json()["code"]) == (404, "not_found")
    assert (await browser.ask("DELETE", f"/api/auth/sessions/{other}", token=one["token"])).status == 204
    assert not await valid(browser, also_one["token"])
    assert await valid(browser, one["token"])


async def test_an_unregistered_key_ends_its_sessions_for_good(browser: Browser, engine: Engine) -> None:
    """D15, J4: refused at the next use; the key registered again revives nothing, nor does an old nonce."""
    session = await sign_in(browser)
    nonce = (await browser.get("/api/auth/challenge/")).json()["nonce"]
    engine.keys.unregister(key().identity)
    assert not await valid(browser, session["token"])
    assert (await browser.post("/api/auth/verify/", signed(nonce, key()))).status == 401
    engine.keys.register(key().public, FIVE)
    assert not await valid(browser, session["token"])
    assert (await sign_in(browser))["permissions"] == list(FIVE)


async def test_a_hand_edit_ends_unused_sessions_within_two_seconds(browser: Browser, engine: Engine) -> None:
    """A session nobody uses ends too, so that a key put back later finds it gone."""
    session = await sign_in(browser)
    engine.keys.unregister(key().identity)
    await trio.sleep(2)
    engine.keys.register(key().public, FIVE)
    assert not await valid(browser, session["token"])


async def test_narrowed_at_once_and_never_widened(browser: Browser, engine: Engine) -> None:
    """D15: effective permissions are the session's, cut to what its key holds now."""
    engine.keys.register(key().public, ("SHELL", "AGENT"))
    session = await sign_in(browser)
    engine.keys.register(key().public, ("AGENT", "RUNTIME"))
    assert (await browser.get(INSPECT, token=session["token"])).json()["permissions"] == ["AGENT"]
    renewed = (await browser.post("/api/auth/renew/", token=session["token"])).json()
    assert renewed["permissions"] == ["AGENT"]


async def test_a_clock_set_back_revives_nothing(browser: Browser, engine: Engine, clock: TrioClock) -> None:
    """D17, J6: forward two hours, used or not, back again: the session is over."""
    used, unused = await sign_in(browser, lifetime="1m"), await sign_in(browser, lifetime="1m")
    clock.skew = 7200
    assert not await valid(browser, used["token"])
    await trio.sleep(3)
    clock.skew = 0
    assert not await valid(browser, used["token"])
    assert not await valid(browser, unused["token"])
    clock.skew = -7200
    assert not await valid(browser, used["token"])


async def test_sessions_and_ends_outlive_a_restart(home: Path) -> None:
    """D16: after a restart a live token lives, an ended one is dead, and a key gone meanwhile has ended its own."""
    clock = TrioClock()
    async with virtual_engine(home, clock) as engine:
        engine.keys.register(key("two").public, FIVE)
        browser = Browser(make_app(engine))
        live, ended, orphan = await sign_in(browser), await sign_in(browser), await sign_in(browser, key("two"))
        await browser.post("/api/auth/logout/", token=ended["token"])
        engine.keys.unregister(key("two").identity)
        expiring = await sign_in(browser, lifetime="1m")
    await trio.sleep(120)
    async with virtual_engine(home, clock) as engine:
        browser = Browser(make_app(engine))
        engine.keys.register(key("two").public, FIVE)
        tokens = [session["token"] for session in (live, ended, orphan, expiring)]
        assert [await valid(browser, token) for token in tokens] == [True, False, False, False]


async def test_a_deleted_token_key_kills_every_token(home: Path) -> None:
    """D16: the operator's last resort works."""
    async with virtual_engine(home) as engine:
        session = await sign_in(Browser(make_app(engine)))
    (home / "token-key.pem").unlink()
    async with virtual_engine(home) as engine:
        assert not await valid(Browser(make_app(engine)), session["token"])


async def test_a_rotated_token_key_still_verifies(browser: Browser, engine: Engine) -> None:
    """Both keys are published while tokens of the old one live; new tokens are signed by the new one."""
    session = await sign_in(browser)
    before = (await browser.get("/.well-known/jwks.json")).json()["keys"]
    rotate_token_key(engine.home, SystemClock())
    engine.reload()
    after = (await browser.get("/.well-known/jwks.json")).json()["keys"]
    assert [row["kid"] for row in after][1:] == [row["kid"] for row in before]
    assert await valid(browser, session["token"])
    assert await valid(browser, (await sign_in(browser))["token"])


async def test_every_step_and_refusal_is_a_record(browser: Browser, engine: Engine) -> None:
    """Every start, failure and end is one record, with who and from where, and no secret in any."""
    session = await sign_in(browser)
    nonce = (await browser.get("/api/auth/challenge/")).json()["nonce"]
    body = signed(nonce, key("stranger"))
    await browser.post("/api/auth/verify/", body)
    await browser.post("/api/auth/logout/", token=session["token"])
    records = watch_of(engine).records
    told = [(r.kind, r.event, r.target, r.cause, r.identity, r.address) for r in records]
    assert told == [
        ("transition", "start", "active", None, key().identity, "127.0.0.1"),
        ("refusal", "start", None, "wrong_signature", None, "127.0.0.1"),
        ("transition", "logout", "ended", None, key().identity, "127.0.0.1"),
    ]
    text = repr(records)
    assert all(secret not in text for secret in (session["token"], nonce, body["signature"]))


async def test_a_store_that_fails_is_a_503_and_burns_nothing(browser: Browser, engine: Engine) -> None:
    """Nothing is answered that is not stored; the same signature works once the store does."""
    nonce = (await browser.get("/api/auth/challenge/")).json()["nonce"]
    session = await sign_in(browser)
    execute = engine.store._connection.execute  # type: ignore[attr-defined]
    execute("PRAGMA query_only = ON")
    for reply in (
        await browser.post("/api/auth/verify/", signed(nonce, key())),
        await browser.post("/api/auth/logout/", token=session["token"]),
    ):
        assert (reply.status, reply.json()["code"]) == (503, "store_unavailable")
        assert int(reply.headers["retry-after"]) > 0
    execute("PRAGMA query_only = OFF")
    assert await valid(browser, session["token"])
    assert (await browser.post("/api/auth/verify/", signed(nonce, key()))).status == 200


async def test_a_second_engine_on_one_folder_is_refused(engine: Engine, home: Path) -> None:
    """One engine a directory; the refusal says how to stop the other."""
    with pytest.raises(Exception, match="hatchway engine stop"):
        async with virtual_engine(home):
            raise AssertionError("it started")


async def test_the_session_of_a_lost_answer_ends(engine: Engine) -> None:
    """A token that could not be delivered is no live session."""
    signed_in = await engine.sessions.start("key", key().identity, FIVE, 60, proof="signature", origin=Origin())
    await engine.sessions.end(signed_in.token, "console_hung_up")
    assert watch_of(engine).told("session")[-1] == ("revoke", "ended")


async def test_answers_without_a_body_tell_no_length(browser: Browser) -> None:
    """RFC 9110 section 8.6: no Content-Length in a 204, and none in a 304 that the 200 does not have."""
    page = await browser.get("/")
    again = await browser.get("/", headers={"if-none-match": page.headers["etag"]})
    session = await sign_in(browser)
    out = await browser.post("/api/auth/logout/", token=session["token"])
    assert [(reply.status, "content-length" in reply.headers) for reply in (again, out)] == [(304, False), (204, False)]
