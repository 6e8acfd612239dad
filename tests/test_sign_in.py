"""Sign-in by key in virtual time, through the doors: challenges, signatures, one answer for all that is wrong."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from engine.engine import Engine
from engine.trust.permissions import FIVE
from tests.fakes import Browser, key, sign_in, signed

pytestmark = pytest.mark.virtual_time


INSPECT = "/api/auth/inspect/"


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
