"""Pairing in virtual time, by HTTP and terminal (sections 3.1, 4.4): every outcome the contract names."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from hatchway.api.http.app import make_app
from hatchway.engine.base.errors import PairingExpired, StoreUnavailable, TooManyRequests
from hatchway.engine.engine import Engine
from hatchway.engine.pairings.claims import escaped_agent
from hatchway.engine.pairings.codes import ALPHABET, normalise
from hatchway.engine.store.memory import MemoryStore
from hatchway.engine.store.protocol import Change
from tests.support.fakes import Browser, Reply, jump, virtual_engine, watch_of
from tests.support.virtual_pairings import EXPIRED, INVALID, OPERATOR, PAIR, Host, claim, is_problem

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def host(engine: Engine) -> Host:
    return Host(engine)


async def test_approved(nursery: trio.Nursery, browser: Browser, host: Host, engine: Engine) -> None:
    """Accepted at once, the same match number on both sides, and the session in the last line only."""
    issued = await host.print_code(("SHELL", "RUNTIME"), 7200)
    reply = await claim(nursery, browser, issued.code)
    event, shown = host.told[-1]
    assert (reply.status, reply.headers["content-type"]) == (200, "application/x-ndjson")
    assert reply.headers["cache-control"] == "no-store, no-transform"
    assert reply.headers["x-accel-buffering"] == "no"
    assert re.fullmatch("[0-9]{2}", shown["match"])
    assert reply.lines() == [{"accepted": True, "match": shown["match"], "expires_in": 30}]
    assert (event, shown["address"], shown["forwarded"]) == ("claimed", "127.0.0.1", None)
    await trio.sleep(12)
    await host.answer(issued, True)
    await reply.done.wait()
    session = reply.lines()[-1]
    assert session["permissions"] == ["SHELL", "RUNTIME"]
    assert session["expires_at"] == int(engine.clock.wall()) + 7200
    assert sum(piece == b"\n" for _, piece in reply.pieces) == 2, "a blank line each five seconds"
    inspected = (await browser.get("/api/auth/inspect/", token=session["token"])).json()
    assert (inspected["method"], inspected["identity"]) == ("pairing", f"pairing:{issued.id}")
    assert host.last == "approved"
    assert watch_of(engine).told("pairing") == [("issue", "issued"), ("claim", "claimed"), ("approve", "approved")]


async def test_rejected(nursery: trio.Nursery, browser: Browser, host: Host) -> None:
    """The last line is the problem with status 401, and the code is used up."""
    issued = await host.print_code()
    reply = await claim(nursery, browser, issued.code)
    await host.answer(issued, False)
    await reply.done.wait()
    assert is_problem(reply.lines()[-1], INVALID)
    assert host.last == "rejected"
    again = await browser.post(PAIR, {"code": issued.code})
    assert (again.status, again.json()["code"]) == (401, "invalid_pairing_code")


@pytest.mark.parametrize(("after", "status"), [(29.9, 200), (30.0, 401), (30.1, 401)])
async def test_the_claim_window(nursery: trio.Nursery, browser: Browser, host: Host, after: float, status: int) -> None:
    """D25: a claim before thirty seconds is taken, at or after them the code has expired."""
    issued = await host.print_code()
    await trio.sleep(after)
    reply = await claim(nursery, browser, issued.code)
    assert reply.status == status
    assert host.last == ("claimed" if status == 200 else "expired")
    await browser_leaves(reply)


async def browser_leaves(reply: Reply) -> None:
    reply.hang_up.set()
    await reply.done.wait()


@pytest.mark.parametrize(("after", "signed_in"), [(29.9, True), (30.0, False), (30.1, False)])
async def test_the_decision_window(
    nursery: trio.Nursery, browser: Browser, host: Host, after: float, signed_in: bool
) -> None:
    """D25: a y before thirty seconds signs in; a late one is `pairing expired on approval`, for both sides."""
    issued = await host.print_code()
    await trio.sleep(20)
    reply = await claim(nursery, browser, issued.code)
    await trio.sleep(after)
    if signed_in:
        await host.answer(issued, True)
    else:
        with pytest.raises(PairingExpired, match="pairing expired on approval"):
            await host.answer(issued, True)
    await reply.done.wait()
    assert ("token" in reply.lines()[-1]) is signed_in
    if not signed_in:
        assert is_problem(reply.lines()[-1], EXPIRED)
        assert host.last == "expired"


async def test_behind_a_proxy_the_first_line_keeps_back(nursery: trio.Nursery, browser: Browser, host: Host) -> None:
    """A proxy that is answered before it has seen the request's end may cut the answer off: where one says that it
    stands in between nothing is begun for 50 ms, and the first line is there within a second; a console that goes away
    meanwhile ends its claim, as ever."""
    proxied = {"x-forwarded-for": "192.0.2.7"}
    for goes in (False, True):
        reply = await claim(nursery, browser, (await host.print_code()).code, headers=proxied)
        await trio.sleep(0.045)
        assert (reply.status, reply.body, host.last) == (0, b"", "claimed")
        if not goes:
            await trio.sleep(0.9)
            assert reply.lines()[0]["accepted"] is True
        await browser_leaves(reply)
        assert host.last == "left"


async def test_unclaimed_codes_expire(host: Host, browser: Browser) -> None:
    """Thirty seconds with no claim: the terminal is told, the code is unknown to nobody but useless."""
    issued = await host.print_code()
    await trio.sleep(30.5)
    assert host.told == [("expired", {"message": "pairing expired"})]
    assert (await browser.post(PAIR, {"code": issued.code})).status == 401


async def test_two_claims(nursery: trio.Nursery, browser: Browser, host: Host) -> None:
    """The first claimant is not disturbed by the second, who gets the one 401; one prompt only."""
    issued = await host.print_code()
    first = await claim(nursery, browser, issued.code)
    second = await Browser(browser.app, address="192.0.2.9").post(PAIR, {"code": issued.code})
    assert (second.status, second.json()["detail"]) == (401, "invalid pairing code")
    assert [event for event, _ in host.told] == ["claimed"]
    await host.answer(issued, True)
    await first.done.wait()
    assert "token" in first.lines()[-1]


async def test_fifty_claims_at_once(nursery: trio.Nursery, browser: Browser, host: Host) -> None:
    """D25: one is accepted, forty-nine are refused, there is one prompt."""
    issued = await host.print_code()
    replies = [Reply() for _ in range(50)]
    for number, reply in enumerate(replies):
        claimant = Browser(browser.app, address=f"192.0.2.{number}")
        nursery.start_soon(partial(claimant.talk, reply, "POST", PAIR, {"code": issued.code}))
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(reply.status for reply in replies) == [200] + [401] * 49
    assert [event for event, _ in host.told] == ["claimed"]


async def test_the_console_hangs_up(nursery: trio.Nursery, browser: Browser, host: Host, engine: Engine) -> None:
    """B7: the terminal is told, the code is consumed, a later y makes no session."""
    issued = await host.print_code()
    reply = await claim(nursery, browser, issued.code)
    left_at = trio.current_time()
    await browser_leaves(reply)
    assert trio.current_time() == left_at, "nobody is waited for"
    assert host.last == "left"
    with pytest.raises(PairingExpired):
        await host.answer(issued, True)
    assert watch_of(engine).told("session") == []


async def test_withdrawn(nursery: trio.Nursery, browser: Browser, host: Host, engine: Engine) -> None:
    """Ctrl-C at the host, before or after the claim: the code no longer works, and who waits is told."""
    unclaimed, claimed = await host.print_code(), await host.print_code()
    reply = await claim(nursery, browser, claimed.code)
    for issued in (unclaimed, claimed):
        await engine.pairings.withdraw(issued.id, OPERATOR)
        await engine.pairings.withdraw(issued.id, OPERATOR)
    await reply.done.wait()
    assert is_problem(reply.lines()[-1], INVALID)
    assert (await browser.post(PAIR, {"code": unclaimed.code})).status == 401
    assert len(engine.pairings) == 0


@pytest.mark.parametrize("accept", ["application/json", "application/json;q=0.9, text/html"])
async def test_unstreamed(nursery: trio.Nursery, browser: Browser, host: Host, accept: str) -> None:
    """Who accepts JSON alone waits, and gets the outcome with its own status."""
    for approved, status in ((True, 200), (False, 401)):
        issued = await host.print_code()
        reply = await claim(nursery, browser, issued.code, headers={"accept": accept})
        assert reply.pieces == []
        await host.answer(issued, approved)
        await reply.done.wait()
        assert reply.status == status
        assert ("token" in reply.json()) is approved
    issued = await host.print_code()
    reply = await claim(nursery, browser, issued.code, headers={"accept": accept})
    await browser_leaves(reply)
    assert host.last == "left"


@pytest.mark.parametrize("accept", ["application/json-seq", "application/json+x, text/html", "application/json, */*"])
async def test_streamed_unless_json_alone_is_named(
    nursery: trio.Nursery, browser: Browser, host: Host, accept: str
) -> None:
    """A type whose name only begins like JSON's is another type; `*/*` beside it takes the stream."""
    issued = await host.print_code()
    reply = await claim(nursery, browser, issued.code, headers={"accept": accept})
    assert reply.pieces
    await host.answer(issued, False)
    await reply.done.wait()


async def test_four_codes_at_once(host: Host) -> None:
    """One for each terminal, four at most; the fifth is told what to do."""
    issued = [await host.print_code() for _ in range(4)]
    with pytest.raises(TooManyRequests, match="withdraw one first"):
        await host.print_code()
    await host.engine.pairings.withdraw(issued[0].id, OPERATOR)
    await host.print_code()


async def test_five_wrong_codes_a_minute(nursery: trio.Nursery, browser: Browser, host: Host) -> None:
    """D23: then 429 with the seconds to wait, the right code from there too; elsewhere it still works."""
    issued = await host.print_code()
    statuses = [(await browser.post(PAIR, {"code": f"WRNG000{n}"})).status for n in range(6)]
    assert statuses == [401] * 5 + [429]
    locked_out = await browser.post(PAIR, {"code": issued.code})
    assert (locked_out.status, locked_out.json()["code"]) == (429, "too_many_requests")
    assert 0 < int(locked_out.headers["retry-after"]) <= 60
    reply = await claim(nursery, Browser(browser.app, address="192.0.2.1"), issued.code)
    assert reply.status == 200
    await browser_leaves(reply)


async def test_fifty_wrong_codes_withdraw_those_that_are_out(browser: Browser, host: Host) -> None:
    """From however many addresses: the terminal says why, and says it in a few lines."""
    issued = await host.print_code()
    for number in range(50):
        guesser = Browser(browser.app, address=f"2001:db8:0:{number:x}::1")
        assert (await guesser.post(PAIR, {"code": "WRONG123"})).status == 401
    assert [details["count"] for event, details in host.told if event == "wrong_codes"] == [1, 25, 50]
    assert host.last == "withdrawn"
    assert "too many wrong codes" in host.told[-1][1]["message"]
    assert len(host.told) == 4
    assert (await Browser(browser.app, address="192.0.2.1").post(PAIR, {"code": issued.code})).status == 401


async def test_used_codes_are_no_guesses(browser: Browser, host: Host) -> None:
    """A stale tab that tries its old code again and again locks nobody out."""
    issued = await host.print_code()
    await host.engine.pairings.withdraw(issued.id, OPERATOR)
    statuses = {(await browser.post(PAIR, {"code": issued.code})).status for _ in range(20)}
    assert statuses == {401}


@pytest.mark.parametrize("later", [1, 60])
async def test_a_used_code_is_remembered_for_ten_minutes(browser: Browser, host: Host, later: int) -> None:
    """After that it is a guess like any other: it counts for its address, and for the codes that are out."""
    issued = await host.print_code()
    await host.engine.pairings.withdraw(issued.id, OPERATOR)
    await jump(599)
    assert {(await browser.post(PAIR, {"code": issued.code})).status for _ in range(10)} == {401}
    await jump(later)
    await host.print_code()
    assert [(await browser.post(PAIR, {"code": issued.code})).status for _ in range(6)] == [401] * 5 + [429]
    assert host.told[-1] == ("wrong_codes", {"count": 1})


async def test_the_number_to_compare_is_another_each_time(nursery: trio.Nursery, browser: Browser, host: Host) -> None:
    """Who approves by habit is not helped by a number that is always the same."""
    for _ in range(20):
        issued = await host.print_code()
        await claim(nursery, browser, issued.code)
        await host.answer(issued, False)
    assert len({details["match"] for event, details in host.told if event == "claimed"}) > 5


async def test_a_right_code_is_no_try(nursery: trio.Nursery, browser: Browser, host: Host) -> None:
    """Whoever signs in often from one address is as free to mistype as anybody."""
    for _ in range(6):
        issued = await host.print_code()
        reply = await claim(nursery, browser, issued.code)
        await host.answer(issued, False)
        await reply.done.wait()
    assert [(await browser.post(PAIR, {"code": "WRONG123"})).status for _ in range(6)] == [401] * 5 + [429]


async def test_a_code_is_out_for_guesses_from_its_printing_on(browser: Browser, host: Host) -> None:
    """Each code is withdrawn at its own fiftieth, whatever came before it was printed."""
    older = await host.print_code()
    for number in range(70):
        if number == 20:
            await host.print_code()
        guesser = Browser(browser.app, address=f"2001:db8:0:{number:x}::1")
        await guesser.post(PAIR, {"code": "WRONG123"})
        assert len(host.engine.pairings) == (1 if number < 20 else 2 if number < 49 else 1 if number < 69 else 0)
    assert (await Browser(browser.app, address="192.0.2.1").post(PAIR, {"code": older.code})).status == 401


async def test_a_code_that_could_not_be_stored_is_not_out(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can claim it, and it takes none of the four places."""
    with monkeypatch.context() as patch:
        patch.setattr(MemoryStore, "commit", unavailable)
        for _ in range(5):
            with pytest.raises(StoreUnavailable):
                await host.print_code()
    assert len(host.engine.pairings) == 0
    for _ in range(4):
        await host.print_code()


async def test_an_approval_whose_session_is_not_stored(
    nursery: trio.Nursery, browser: Browser, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sides are told that there is none, and the code is used up."""
    issued = await host.print_code()
    reply = await claim(nursery, browser, issued.code)
    monkeypatch.setattr(host.engine.store, "commit", unavailable)
    await host.answer(issued, True)
    await reply.done.wait()
    assert is_problem(reply.lines()[-1], {"status": 503, "code": "store_unavailable"})
    assert host.told[-1] == ("failed", {"message": "approved, but no session was made: the disk is full"})
    assert len(host.engine.pairings) == 0


@pytest.mark.parametrize("slowness", [3.0, 10.0])
async def test_a_console_that_leaves_while_its_session_is_stored(
    nursery: trio.Nursery, browser: Browser, host: Host, monkeypatch: pytest.MonkeyPatch, slowness: float
) -> None:
    """The `y` came first, and yet nobody is there to take the token: the session ends, soon stored or late."""
    issued = await host.print_code()
    reply = await claim(nursery, browser, issued.code)
    commit = host.engine.store.commit

    async def slow(change: Change) -> None:
        await trio.sleep(slowness)
        await commit(change)

    monkeypatch.setattr(host.engine.store, "commit", slow)
    nursery.start_soon(host.answer, issued, True)
    await trio.testing.wait_all_tasks_blocked()
    await browser_leaves(reply)
    await trio.sleep(60)
    assert watch_of(host.engine).told("session") == [("start", "active"), ("revoke", "ended")]
    assert host.last == ("approved" if slowness == 3.0 else "failed")


async def unavailable(*_: Any) -> None:
    raise StoreUnavailable("the disk is full")


async def test_one_ipv6_network_is_one_source(browser: Browser) -> None:
    """A /64 has one household's worth of tries, not 2^64."""
    statuses = [
        (await Browser(browser.app, address=f"2001:db8::{n:x}").post(PAIR, {"code": "WRONG123"})).status
        for n in range(6)
    ]
    assert statuses[-1] == 429


async def test_one_answer_for_every_refused_code(browser: Browser, host: Host) -> None:
    """Unknown, used and expired codes answer byte for byte the same."""
    used, expired = await host.print_code(), await host.print_code()
    await host.engine.pairings.withdraw(used.id, OPERATOR)
    await trio.sleep(31)
    bodies = {(await browser.post(PAIR, {"code": code})).body for code in (used.code, expired.code, "UNKN0WN1")}
    assert len(bodies) == 1


@pytest.mark.parametrize("code", [None, [], {}, True, 12345678])
async def test_a_code_is_text(browser: Browser, host: Host, code: Any) -> None:
    """D24: anything else is a wrong request, no try, and harms no code that is out."""
    await host.print_code()
    reply = await browser.post(PAIR, {"code": code})
    assert (reply.status, reply.json()["errors"].keys()) == (422, {"code"})
    assert host.told == []


@pytest.mark.parametrize(
    "typed",
    ["{}", " {}\n", "{l}", "{a}-{b}", "{a} {b}", "{a}\u2013{b}", "{wide}", "{a}\u00a0{b}"],
    ids=["plain", "spaces", "lower", "hyphen", "space", "en dash", "full width", "no-break space"],
)
async def test_codes_as_people_type_them(nursery: trio.Nursery, browser: Browser, host: Host, typed: str) -> None:
    """B3: any case, with spaces and hyphens, in full width: the same code."""
    issued = await host.print_code()
    code = issued.code
    wide = "".join(chr(ord(sign) + 0xFEE0) for sign in code)
    text = typed.replace("{}", code).format(l=code.lower(), a=code[:4], b=code[4:], wide=wide)
    reply = await claim(nursery, browser, text)
    assert reply.status == 200
    await browser_leaves(reply)


@given(st.text(ALPHABET, min_size=8, max_size=8), st.randoms())
def test_look_alikes_are_folded(code: str, random: Any) -> None:
    """O for 0, I and L for 1, in any case and with anything between: normalised to what was printed."""
    alike = {"0": "0Oo", "1": "1IiLl"}
    typed = "".join(
        random.choice(alike.get(sign, sign + sign.lower())) + random.choice(["", " ", "-"]) for sign in code
    )
    assert normalise(typed) == code


@given(st.binary(max_size=300))
def test_agents_are_harmless(agent: bytes) -> None:
    """D27: only 0x20-0x7E reaches a terminal, at most 200 characters, and quotes can't be closed."""
    shown = escaped_agent(agent)
    assert len(shown) <= 200
    assert all(" " <= sign <= "~" for sign in shown)
    assert '"' not in shown
    assert shown.replace("\\x", "").count("\\") == 0


async def test_a_stopping_engine_tells_who_waits(
    nursery: trio.Nursery, browser: Browser, host: Host, engine: Engine
) -> None:
    """A held claim ends with a last item when the engine is stopped."""
    issued = await host.print_code()
    reply = await claim(nursery, browser, issued.code)
    engine.stopping.set()
    await reply.done.wait()
    assert is_problem(reply.lines()[-1], INVALID)


async def test_a_forwarded_address_counts_from_a_configured_proxy_only(home: Path) -> None:
    """D28: anybody may send the header, only a trusted peer is believed; the prompt shows both."""
    for trusted, forwarded in (((), None), (("127.0.0.1/32",), "198.51.100.7")):
        async with virtual_engine(home, trusted_proxies=trusted) as engine, trio.open_nursery() as nursery:
            host, browser = Host(engine), Browser(make_app(engine))
            issued = await host.print_code()
            headers = {
                "x-forwarded-for": "10.9.9.9, 198.51.100.7",
                "forwarded": "for=10.9.9.9",
                "x-real-ip": "10.9.9.9",
            }
            reply = await claim(nursery, browser, issued.code, headers=headers)
            assert (host.told[-1][1]["address"], host.told[-1][1]["forwarded"]) == ("127.0.0.1", forwarded)
            await browser_leaves(reply)
