"""Sessions in virtual time, over HTTP: lifetimes, renewal, every end (sections 3.2 and 4.3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jwt
import pytest
import trio

from hatchway.api.http.app import make_app
from hatchway.engine.access.challenges import ANY, ChallengeFacts
from hatchway.engine.base.clock import SystemClock, TrioClock
from hatchway.engine.base.errors import SignatureRefused, StoreUnavailable
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.engine import Engine
from hatchway.engine.keys.rotation import rotate_token_key
from hatchway.engine.runtime.records import NOBODY, Origin
from hatchway.engine.sessions.key_sign_in import Proof
from hatchway.engine.store import sqlite
from tests.support.fakes import ROOT, Browser, jump, key, sign_in, signed, virtual_engine, watch_of

pytestmark = pytest.mark.virtual_time

INSPECT = "/api/auth/inspect/"


async def valid(browser: Browser, token: str) -> bool:
    reply = await browser.get(INSPECT, token=token)
    assert reply.status in (200, 401)
    assert reply.json()["valid"] is (reply.status == 200)
    return reply.status == 200


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
async def test_what_is_asked_of_an_endpoint_that_takes_nothing_is_refused(browser: Browser, path: str) -> None:
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
    """D17, J6: forward two hours and back again: a session that was used meanwhile is over, however short it was; one
    that was not is over as soon as the timers have looked at the clock."""
    used, unused = await sign_in(browser, lifetime="1m"), await sign_in(browser, lifetime="1m")
    clock.skew = 7200
    assert not await valid(browser, used["token"])
    clock.skew = 0
    assert not await valid(browser, used["token"])
    clock.skew = 7200
    await trio.sleep(3)
    clock.skew = 0
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


async def test_a_store_that_fails_is_a_503_and_burns_nothing(
    browser: Browser, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is answered that is not stored; the same signature works once the store does."""
    monkeypatch.setattr(sqlite, "PATIENCE", 0.1)
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


class Stale:
    """A fleet that does not tell what the other engines did."""

    def check_fresh(self) -> None:
        raise StoreUnavailable("stale")

    async def wait_fresh(self) -> None:
        self.check_fresh()


async def test_who_may_have_missed_a_key_s_end_signs_nobody_in(browser: Browser, engine: Engine) -> None:
    """In a fleet, by key: the signature is not looked at, and the challenge is good once the engine knows again."""
    nonce = (await browser.get("/api/auth/challenge/")).json()["nonce"]
    with patch.object(engine.key_sign_in, "_fleet", Stale()):
        refused = await browser.post("/api/auth/verify/", signed(nonce, key()))
        wrong = await browser.post("/api/auth/verify/", {"nonce": nonce, "signature": "wrong"})
        with pytest.raises(StoreUnavailable):
            await engine.key_sign_in.start_verified(ChallengeFacts(ANY, b"d", 60.0), key().identity, 3600, NOBODY)
    assert (refused.status, wrong.status) == (503, 503)
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
    await engine.sessions.end(signed_in.token, "console_hung_up")
    assert watch_of(engine).told("session").count(("revoke", "ended")) == 1


async def test_answers_without_a_body_tell_no_length(browser: Browser) -> None:
    """RFC 9110 section 8.6: no Content-Length in a 204, and none in a 304 that the 200 does not have."""
    page = await browser.get("/")
    again = await browser.get("/", headers={"if-none-match": page.headers["etag"]})
    session = await sign_in(browser)
    out = await browser.post("/api/auth/logout/", token=session["token"])
    assert [(reply.status, "content-length" in reply.headers) for reply in (again, out)] == [(304, False), (204, False)]


async def test_how_long_a_worker_may_keep_a_response(browser: Browser, engine: Engine) -> None:
    """To the end of the token or of the session, whichever comes first; of one that is over, not at all."""
    first = await sign_in(browser)
    principal = engine.sessions.authenticate(first["token"])
    assert engine.sessions.good_until(principal) == first["expires_at"]
    await jump(600)
    renewed = (await browser.post("/api/auth/renew/", token=first["token"])).json()
    assert engine.sessions.good_until(principal) == first["expires_at"]
    assert engine.sessions.good_until(engine.sessions.authenticate(renewed["token"])) == first["expires_at"] + 600
    assert engine.sessions.good_until(principal._replace(expires_at=1 << 40)) == first["expires_at"] + 600
    await engine.sessions.logout(principal, NOBODY)
    assert engine.sessions.good_until(principal) == 0


async def test_a_sign_in_that_a_worker_has_checked(engine: Engine) -> None:
    """One session a nonce, for an authorized key; a refusal is neither told nor counted, since the request follows."""
    _, nonce = engine.key_sign_in.challenge("h", None)
    challenge = engine.key_sign_in._challenges.read(nonce)
    for _ in range(100):
        with pytest.raises(SignatureRefused) as refused:
            await engine.key_sign_in.start_verified(challenge, "SHA256:nobody", 3600, NOBODY)
        assert refused.value.cause == "unknown_key"
    signed_in = await engine.key_sign_in.start_verified(challenge, key().identity, 3600, NOBODY)
    assert engine.sessions.authenticate(signed_in.token).identity == key().identity
    with pytest.raises(SignatureRefused) as refused:
        await engine.key_sign_in.start_verified(challenge, key().identity, 3600, NOBODY)
    assert refused.value.cause == "used_nonce"
    assert watch_of(engine).told("session") == [("start", "active")]
    with pytest.raises(SignatureRefused):
        await engine.key_sign_in.verify(Proof(nonce, "AAAA", "PS256", 3600), NOBODY)


async def test_an_offline_verifier_finds_the_issuer(browser: Browser, engine: Engine) -> None:
    """`iss` and `aud` of every token are the `issuer` that the key set, readiness and the engine's status tell."""
    claims = jwt.decode((await sign_in(browser))["token"], options={"verify_signature": False})
    told = {
        (await browser.get("/.well-known/jwks.json")).json()["issuer"],
        (await browser.get("/readyz")).json()["issuer"],
        engine.status()["issuer"],
    }
    assert told == {claims["iss"]} == {claims["aud"]}
    assert claims["iss"].startswith("urn:uuid:")
