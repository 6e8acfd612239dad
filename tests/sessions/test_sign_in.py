"""Sign-in by key in virtual time, over HTTP: challenges, signatures, one answer for all that is wrong."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
import trio

from hatchway.api.client.flows import Ask, Flows, Reply, Work
from hatchway.api.client.signers import read_signers
from hatchway.engine.access import signers
from hatchway.engine.access.challenges import Challenges
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.engine import Engine
from hatchway.engine.keys.keys import verify
from hatchway.engine.runtime.records import Record
from tests.support.fakes import Browser, SetClock, key, sign_in, signed

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
    elsewhere = Browser(browser.app, address="192.0.2.7")
    assert (await elsewhere.post("/api/auth/verify/", bad)).status == 401
    await trio.sleep(61)
    assert (await browser.post("/api/auth/verify/", bad)).status == 401


class Checks:
    """Counts the signature checks of the engine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = 0
        monkeypatch.setattr(signers, "verify", self._check)

    def _check(self, *signed: Any) -> None:
        self.made += 1
        verify(*signed)


async def nonce_for(browser: Browser, identity: str | None = None) -> str:
    query = "" if identity is None else "?identity=" + identity.replace("+", "%2B")
    nonce: str = (await browser.get(f"/api/auth/challenge/{query}")).json()["nonce"]
    return nonce


async def test_past_the_limit_nothing_is_checked(
    browser: Browser, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit comes first: a 429 costs no signature check, whether a key is named or any of them may answer.

    And a correct signature is never refused for it: it comes with a fresh challenge, named or not.
    """
    one = key().identity
    named, open_ = await nonce_for(browser, one), await nonce_for(browser)
    bad = [signed(named, key("stranger")), signed(open_, key("stranger"))]
    bad += [bad[1] | {"identity": one}, {"nonce": "no nonce", "signature": "AAAA"}]
    statuses = [(await browser.post("/api/auth/verify/", bad[turn % 4])).status for turn in range(60)]
    assert statuses == [401] * 60
    checks = Checks(monkeypatch)
    statuses = [(await browser.post("/api/auth/verify/", bad[turn % 4])).status for turn in range(400)]
    assert (statuses, checks.made) == ([429] * 400, 0)
    for nonce, more in (
        (await nonce_for(browser), {}),
        (await nonce_for(browser), {"identity": one}),
        (await nonce_for(browser, one), {}),
        (await nonce_for(browser, one), {"identity": one}),
    ):
        assert (await browser.post("/api/auth/verify/", signed(nonce, key()) | more)).status == 200
    fresh = await nonce_for(browser)
    checks.made = 0
    for turn in range(40):
        wrong = signed(fresh, key(("stranger", "two", "three", "four", "five")[turn % 5]))
        assert (await browser.post("/api/auth/verify/", wrong)).status == 429
    assert checks.made <= 3 * len(engine.keys.entries()), "three different answers to a fresh challenge are looked at"
    elsewhere = Browser(browser.app, address="192.0.2.7")
    assert (await elsewhere.post("/api/auth/verify/", wrong)).status == 401, "another's wrong answers burn nothing"
    assert (await elsewhere.post("/api/auth/verify/", signed(fresh, key()))).status == 200


async def test_a_correct_signature_may_follow_a_wrong_one(browser: Browser) -> None:
    """Past the limit too, on the same challenge: a wrong try does not burn it."""
    nonce = await nonce_for(browser)
    wrong = signed(nonce, key("stranger"))
    statuses = [(await browser.post("/api/auth/verify/", wrong)).status for _ in range(70)]
    assert statuses == [401] * 60 + [429] * 10
    assert (await browser.post("/api/auth/verify/", signed(nonce, key()))).status == 200


async def test_a_named_key_alone_is_tried(browser: Browser, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """`identity` in a verify: one check however many keys there are; it must be the challenge's, where that has one."""
    for name in ("two", "three", "four"):
        engine.keys.register(key(name).public, FIVE)
    checks = Checks(monkeypatch)
    one, two = key().identity, key("two").identity
    bodies = [
        signed(await nonce_for(browser), key("two")) | {"identity": one},
        signed(await nonce_for(browser, one), key()) | {"identity": two},
        signed(await nonce_for(browser, one), key("two")) | {"identity": two},
        signed(await nonce_for(browser), key("stranger")) | {"identity": "SHA256:nobody"},
    ]
    replies = [await browser.post("/api/auth/verify/", body) for body in bodies]
    assert {reply.status for reply in replies} == {401}
    assert len({reply.body for reply in replies}) == 1
    assert checks.made <= len(bodies)  # of four keys each
    body = signed(await nonce_for(browser), key("two"))
    for odd in ("", "a b", "x" * 129, 7, ["SHA256:x"]):
        assert (await browser.post("/api/auth/verify/", body | {"identity": odd})).status == 422
    for more in ({"identity": two}, {"identity": None}):
        body = signed(await nonce_for(browser), key("two"))
        assert (await browser.post("/api/auth/verify/", body | more)).status == 200


def test_our_client_names_its_key() -> None:
    """The Python client and the command, which drives it, say whose signature it is."""
    flows = Flows("http://127.0.0.1:7420", lambda: read_signers(key()), None, None, lambda stored: None)
    flow = flows.sign_in()
    step = next(flow)
    while isinstance(step, Work):  # the keys are read, and the first is taken
        step = flow.send(step.do())
    nonce = Challenges(SetClock()).issue("127.0.0.1:7420", key().identity)
    told = {"identity": key().identity, "nonce": nonce, "lifetime": "1m0s"}
    signing = flow.send(Reply(200, {"content-type": "application/json"}, json.dumps(told).encode()))
    assert isinstance(signing, Work)
    asked = flow.send(signing.do())
    assert isinstance(asked, Ask)
    assert asked.body is not None
    assert asked.body["identity"] == key().identity


async def test_a_flood_of_failures_makes_few_records(browser: Browser, engine: Engine, nursery: trio.Nursery) -> None:
    """Past its limit an address has one record a second, which says how many there were; none is lost count of."""
    records: list[Record] = []
    engine.records.sinks.append(records.append)
    bad = signed(await nonce_for(browser), key("stranger"))
    for _ in range(20):
        for _ in range(50):
            await browser.post("/api/auth/verify/", bad)
        await trio.sleep(0.5)
    await trio.sleep(2)
    refusals = [record for record in records if record.kind == "refusal"]
    own = [record for record in refusals if record.count is msgspec.UNSET]
    sums = [record for record in refusals if record.count is not msgspec.UNSET]
    assert (len(own), {record.cause for record in own}) == (60, {"wrong_signature"})
    assert 8 <= len(sums) <= 11
    assert {(record.cause, record.address, record.identity) for record in sums} == {
        ("too_many_requests", "127.0.0.1", None)
    }
    assert sum(record.count or 0 for record in sums) == 1000 - 60
    assert 'hatchway_refusals_total{cause="too_many_requests",chart="session"} 940.0' in engine.metrics.text().decode()
