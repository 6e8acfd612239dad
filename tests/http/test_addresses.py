"""Which Host and Origin are ours, and whose word on a client's address counts (HTTP manners; D9, D28, B14)."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatchway.api.http.gateway import Addresses
from hatchway.api.http.problems import BadRequest, ForeignOrigin, MisdirectedRequest
from hatchway.api.http.proxies import forwarded_for, forwarded_scheme
from hatchway.api.http.request import Headers
from hatchway.engine.base.errors import Refusal
from tests.support.hostile_requests import refusal_of

OURS = Addresses((("127.0.0.1", 7420),), ("gate.example:8443", "[2001:db8::1]:7420"))


def host_refused(host: str | None, local: str | None = "127.0.0.1") -> type[Refusal] | None:
    """The kind of refusal that a Host gets, or None."""
    refused = refusal_of(lambda: OURS.check_host(host, None, local))
    return type(refused) if refused else None


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:7420",
        "localhost:7420",
        "LocalHost:7420",
        "[::1]:7420",
        "x.localhost:7420",
        "a.b.localhost:7420",
        "gate.example:8443",
        "GATE.example:8443",
        "[2001:db8::1]:7420",
        "[2001:DB8::1]:7420",
    ],
)
def test_ours(host: str) -> None:
    """D9: every loopback name with the bound port, and each configured pair, in any case."""
    assert host_refused(host) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.test",
        "evil.test:7420",
        "127.0.0.1.evil.test:7420",
        "localhost.evil.test:7420",
        "evillocalhost:7420",
        "0.0.0.0:7420",
        "127.0.0.2:7420",
        "127.1:7420",
        "0x7f000001:7420",
        "2130706433:7420",
        "[::]:7420",
        "[0:0:0:0:0:0:0:1]:7420",
        "[::ffff:127.0.0.1]:7420",
        "127.0.0.1",
        "127.0.0.1:80",
        "127.0.0.1:07420",
        "127.0.0.1:17420",
        "localhost:7421",
        "gate.example",
        "gate.example:7420",
        "x.gate.example:8443",
    ],
)
def test_foreign(host: str) -> None:
    """D9, B14: a name that only looks like ours, another port, another spelling of loopback: 421."""
    assert host_refused(host) is MisdirectedRequest


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        " ",
        "[::1",
        "::1",
        "user@localhost:7420",
        "localhost:7420/x",
        "localhost:",
        "localhost:http",
        "localhost.:7420",
        ".localhost:7420",
        "a..localhost:7420",
        "localhost:7420,evil.test",
        "localhost:7420 ",
        "localhost:7420\n",
        "localhost:٧٤٢٠",
        "loc\xe4lhost:7420",
        "localhost:742000",
        "[fe80::1%25eth0]:7420",
    ],
)
def test_no_host_at_all(host: str | None) -> None:
    """D9: what is no single host and port is 400."""
    assert host_refused(host) is BadRequest


def test_a_literal_address_that_the_connection_reached_is_ours() -> None:
    """An engine bound to every address is dialled by any of them, and by no name that could be rebound."""
    everywhere = Addresses((("0.0.0.0", 7420),), ())
    everywhere.check_host("192.0.2.7:7420", None, "192.0.2.7")
    for host, local in (("192.0.2.8:7420", "192.0.2.7"), ("0.0.0.0:7420", "192.0.2.7"), ("192.0.2.7:7420", None)):
        with pytest.raises(MisdirectedRequest):
            everywhere.check_host(host, None, local)


def test_the_refusal_says_what_mends_it() -> None:
    """It names the setting; for a loopback name with another port also the `ssh -L` line."""
    with pytest.raises(MisdirectedRequest, match="setting `addresses`") as raised:
        OURS.check_host("localhost:9000", None, "127.0.0.1")
    assert "ssh -L 7420:127.0.0.1:7420" in raised.value.detail
    with pytest.raises(MisdirectedRequest, match="setting `addresses`") as raised:
        OURS.check_host("evil.test:7420", None, "127.0.0.1")
    assert "ssh" not in raised.value.detail


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "x.localhost"])
@pytest.mark.parametrize("local", ["192.0.2.7", "fe80::1%eth0", "::ffff:192.0.2.7", "0.0.0.0"])
def test_a_loopback_name_on_another_connection(host: str, local: str) -> None:
    """It is ours only where a loopback address was reached; the refusal says so, and how to get there."""
    with pytest.raises(
        MisdirectedRequest, match=r"reached .*, which is no loopback address.*ssh -L 7420:127.0.0.1:7420"
    ):
        OURS.check_host(f"{host}:7420", None, local)
    with pytest.raises(ForeignOrigin):
        OURS.check_origin(f"http://{host}:7420", local)
    for reached in (None, "127.0.0.1", "::1", "127.8.8.8"):
        OURS.check_host(f"{host}:7420", None, reached)


def test_localhost_that_may_be_another_process() -> None:
    """With one loopback address ours and the other there but not ours, the names that may reach it are refused."""
    half = Addresses((("127.0.0.1", 7420),), (), ("127.0.0.1", "::1"))
    assert half.lacking == "::1"
    half.check_host("127.0.0.1:7420", None, "127.0.0.1")
    for host in ("localhost:7420", "x.localhost:7420", "[::1]:7420"):
        with pytest.raises(MisdirectedRequest, match=r"another process may have \[::1\] at that port"):
            half.check_host(host, None, "127.0.0.1")
    assert Addresses((("127.0.0.1", 7420),), (), ("127.0.0.1",)).lacking is None
    assert Addresses((("192.0.2.7", 7420),), (), ("127.0.0.1", "::1")).lacking is None


def test_another_loopback_address_is_its_own_name_alone() -> None:
    """An engine on 127.0.0.2 is dialled by that, and by no name for the usual two."""
    other = Addresses((("127.0.0.2", 7420),), (), ("127.0.0.1", "::1"))
    other.check_host("127.0.0.2:7420", None, "127.0.0.2")
    for host in ("127.0.0.1:7420", "localhost:7420", "[::1]:7420"):
        with pytest.raises(MisdirectedRequest):
            other.check_host(host, None, "127.0.0.2")


@pytest.mark.parametrize(
    ("configured", "scheme", "ours"),
    [
        ("gate.example:443", None, True),
        ("gate.example:80", None, True),
        ("gate.example:7420", None, False),
        ("gate.example:443", "https", True),
        ("gate.example:443", "http", False),
        ("gate.example:80", "http", True),
        ("gate.example:80", "https", False),
    ],
)
def test_a_host_without_a_port(configured: str, scheme: str | None, ours: bool) -> None:
    """It stands for the port of the scheme that people dialled: the one that a proxy of ours tells, else either."""
    addresses = Addresses((("127.0.0.1", 7420),), (configured,))
    for host in ("gate.example", "GATE.example"):
        refused = refusal_of(lambda host=host: addresses.check_host(host, scheme, "127.0.0.1"))  # type: ignore[misc]
        assert (refused is None) is ours


def test_what_to_add_for_a_host_without_a_port() -> None:
    """The refusal names what people may have dialled, not the port that the engine was reached at."""
    with pytest.raises(
        MisdirectedRequest, match=r"add what people dial, x.example:443 \(https\) or x.example:80 \(http\)"
    ):
        OURS.check_host("x.example", None, "127.0.0.1")
    with pytest.raises(MisdirectedRequest, match=r"x.example:443 is not an address of this engine"):
        OURS.check_host("x.example", "https", "127.0.0.1")


@pytest.mark.parametrize(
    "origin",
    ["http://127.0.0.1:7420", "http://localhost:7420", "HTTP://X.LOCALHOST:7420", "https://gate.example:8443"],
)
def test_our_own_pages(origin: str) -> None:
    """A page served at one of our addresses may call us."""
    OURS.check_origin(origin, "127.0.0.1")


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://evil.test",
        "http://evil.test:7420",
        "http://127.0.0.1",
        "http://127.0.0.1:7421",
        "http://127.0.0.1.evil.test:7420",
        "file://",
        "file://127.0.0.1:7420",
        "chrome-extension://127.0.0.1:7420",
        "http://127.0.0.1:7420/",
        "http://user@127.0.0.1:7420",
        "http://127.0.0.1:7420 http://evil.test",
        "http://evil.test#http://127.0.0.1:7420",
        "http://gate.example",
        "127.0.0.1:7420",
    ],
)
def test_foreign_pages(origin: str) -> None:
    """D10, B14: any other page, `null` first of all."""
    with pytest.raises(ForeignOrigin):
        OURS.check_origin(origin, "127.0.0.1")


@given(st.text(st.characters(max_codepoint=255), max_size=60))
def test_no_text_breaks_the_checks(text: str) -> None:
    """Whatever a header holds, it is ours by our own list, or refused by a refusal that echoes no odd byte."""
    for refused in (
        refusal_of(lambda: OURS.check_host(text, None, None)),
        refusal_of(lambda: OURS.check_origin(text, None)),
    ):
        if refused is not None:
            assert refused.detail.isascii()
            assert refused.detail.isprintable()
        else:
            assert text.lower().removeprefix("https://").removeprefix("http://").endswith(("7420", "8443"))


@given(st.from_regex(r"\A[a-z0-9.-]{0,30}\Z"))
def test_only_localhost_itself_is_under_localhost(name: str) -> None:
    """No suffix, prefix or neighbour of a loopback name passes for one."""
    if host_refused(f"{name}:7420", None) is None:
        assert name in ("localhost", "127.0.0.1") or name.endswith(".localhost")


PROXIES = ("10.0.0.0/8", "::1/128")


def told(peer: str, *values: bytes, trusted: tuple[str, ...] = PROXIES) -> str | None:
    """The forwarded address that these headers give."""
    headers: Headers = tuple((b"x-forwarded-for", value) for value in values)
    return forwarded_for(headers, peer, trusted)


def test_nobody_is_believed_by_default() -> None:
    """D28: without a configured proxy no header changes the address, not even from loopback."""
    assert told("127.0.0.1", b"10.9.9.9", trusted=()) is None
    assert told("192.0.2.1", b"10.9.9.9") is None


def test_a_proxy_is_believed_from_the_right() -> None:
    """What the client itself sent stands to the left of what our proxies added."""
    assert told("10.0.0.1", b"203.0.113.9") == "203.0.113.9"
    assert told("10.0.0.1", b"198.51.100.1, 203.0.113.9") == "203.0.113.9"
    assert told("10.0.0.1", b"198.51.100.1, 203.0.113.9, 10.0.0.2") == "203.0.113.9"
    assert told("10.0.0.1", b"198.51.100.1", b"203.0.113.9,10.0.0.2") == "203.0.113.9"
    assert told("::1", b"2001:DB8::5") == "2001:db8::5"


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"unknown",
        b"10.0.0.2",
        b"1.2.3.4:80",
        b"\xff",
        b"203.0.113.9, x",
        b"[::1]",
        b"fe80::1%eth0",
        b"203.0.113.9, ::1%y (approved) ",
    ],
)
def test_no_address_is_told_where_none_is(value: bytes) -> None:
    """A hop that is no address ends the reading: nothing to its left is our proxies' word."""
    assert told("10.0.0.1", value) is None


def test_an_ipv4_address_in_the_form_of_ipv6() -> None:
    """A proxy that listens on both families may spell it so: it is the same client, and the same proxy."""
    assert told("10.0.0.1", b"::ffff:203.0.113.9, ::ffff:10.0.0.2") == "203.0.113.9"
    assert told("::ffff:10.0.0.1", b"203.0.113.9") == "203.0.113.9"


def test_what_a_client_sends_is_not_kept() -> None:
    """Texts of any length come by, and nothing is remembered of what is no address: memory doesn't grow by them."""
    told("10.0.0.1", b"203.0.113.9")
    tracemalloc.start()
    for number in range(500):
        assert told("10.0.0.1", b"%d" % number + b"x" * 15_000) is None
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 500_000


@pytest.mark.parametrize(
    ("peer", "value", "scheme"),
    [
        ("10.0.0.1", b"https", "https"),
        ("10.0.0.1", b"HTTP", "http"),
        ("10.0.0.1", b"http, https", "https"),
        ("10.0.0.1", b"wss", None),
        ("10.0.0.1", b"", None),
        ("192.0.2.1", b"https", None),
    ],
)
def test_the_scheme_that_was_dialled(peer: str, value: bytes, scheme: str | None) -> None:
    """X-Forwarded-Proto counts from a trusted proxy alone, and only what the one next to us says."""
    assert forwarded_scheme(((b"x-forwarded-proto", value),), peer, PROXIES) == scheme


@given(st.lists(st.binary(max_size=40), max_size=4))
def test_no_bytes_break_the_hops(values: list[bytes]) -> None:
    """An address outside our proxies, or none."""
    found = told("10.0.0.1", *values)
    assert found is None or not found.startswith("10.")
