"""What the client does when the server is no engine, a wrong one, or gone: D12, and no fault but its own."""

from __future__ import annotations

import json
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import certifi
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatchway.api.client import (
    AsyncClient,
    ChallengeRefused,
    Client,
    ClientFault,
    KeyMissing,
    NotAnEngine,
    Refused,
    Unreachable,
)
from hatchway.api.client.flows import Ask
from hatchway.api.client.wire import (
    CertificateRefused,
    LineReader,
    check_nonce,
    dialled,
    problem,
    read_json,
    started,
    token_facts,
)
from tests.support.certificate_authority import Authority
from tests.support.fakes import key
from tests.support.false_engine import answer, b64, false_engine, nonce, stored
from tests.support.ports import free_port


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (nonce("127.0.0.1:7420"), "is for 127.0.0.1:7420, and .* was dialled"),
        (nonce("engine.example:443"), r"proxy_set_header Host \$http_host;"),
        ("eyJhbGciOiJIUzI1NiJ9.e30", "does not begin with"),
        (" " * 64 + "TLS 1.3, server CertificateVerify", "does not begin with"),
        ("SSHSIG\0\0\0\1", "does not begin with"),
        ("", "does not begin with"),
        ("hatchway-auth-v1.", "another form"),
        ("hatchway-auth-v2." + nonce("HOST")[17:], "does not begin with"),
        (nonce("HOST") + ".AA", "another form"),
        (nonce("HOST") + "\n", "another form"),
        (nonce("HOST") + "\u00e9", "another form"),
        (nonce("HOST") + "A" * 1024, "another form"),
        (nonce("HOST").replace(b64("any"), b64("SHA256:other")), "another key"),
        (nonce("HOST").replace(b64("any"), b64("any") + "="), "another key"),
        (nonce("\u00c4"), "another host"),
    ],
)
def test_d12_a_strange_challenge_is_not_signed(made: str, why: str) -> None:
    """D12: a challenge of another engine or of none is refused in words, and nothing is sent after it."""

    def reply(request: bytes) -> bytes:
        host = request.lower().split(b"host: ")[1].split(b"\r\n")[0].decode()
        text = made.replace(b64("HOST"), b64(host))
        return answer(200, json.dumps({"identity": "x", "nonce": text, "lifetime": "1m0s"}).encode())

    refused = pytest.raises(ChallengeRefused, match=f"^refused to sign: .*{why}")
    with false_engine(reply) as (url, requests), Client(url, key=key()) as client, refused:
        client.sign_in()
    assert len(requests) == 1
    assert requests[0].startswith(b"GET /api/auth/challenge/?identity=SHA256%3A")


def test_our_own_form_is_signed() -> None:
    """The form that the engine's challenges have passes, in either identity; so the refusals above are for cause."""
    for identity in ("any", key().identity):
        check_nonce(nonce("127.0.0.1:1", identity), "127.0.0.1:1", key().identity)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://Engine.Example", "engine.example:80"),
        ("https://engine.example", "engine.example:443"),
        ("http://[::1]:7420", "[::1]:7420"),
        ("https://127.0.0.1:8443", "127.0.0.1:8443"),
    ],
)
def test_the_host_is_told_with_its_port(url: str, host: str) -> None:
    """What is dialled has one spelling, so that challenge and Host header can be compared."""
    assert dialled(url) == host


def test_a_redirect_is_not_followed() -> None:
    """A token or a signature goes to the address that was given, whatever that answers."""
    for status in (301, 302, 307, 308):
        with false_engine(lambda _, s=status: answer(s, b"", "Location: http://127.0.0.1:9/")) as (url, requests):  # type: ignore[misc]
            with Client(url, stored=stored(url)) as client, pytest.raises(NotAnEngine, match="redirect"):
                client.inspect()
            assert len(requests) == 1


def test_the_environment_is_not_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No proxy and no `.netrc` of the environment gets between the client and its engine."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("HOME", str(tmp_path))
    served = false_engine(lambda _: answer(200, b"{}"))
    with served as (url, requests), Client(url) as client, pytest.raises(NotAnEngine):
        client.pair("7K3MQ9XD", lambda accepted: None)
    assert b"authorization" not in requests[0].lower()


def test_a_token_is_sent_only_where_it_came_from() -> None:
    """A token of another address is as none: without a key the call fails before anything is sent."""
    with false_engine(lambda _: answer(200, b"{}")) as (url, requests):
        with Client(url, stored=stored("http://127.0.0.1:1")) as client, pytest.raises(KeyMissing):
            client.inspect()
        assert requests == []


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (answer(200, b"not json"), "is not JSON"),
        (answer(200, b"[" * 100_000), "is not JSON"),
        (answer(200, b"\xff\xfe"), "is not JSON"),
        (answer(200, b'{"valid": "yes"}'), "another form"),
        (answer(404, b"<html>"), "HTTP 404 without a problem"),
        (answer(500, b'{"detail": 5}'), "HTTP 500 without a problem"),
        (answer(200, b"x", "Content-Encoding: gzip"), "is not JSON"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "the connection ended"),
        (b"", "the connection ended before the whole answer of .*; an engine with TLS is dialled by https://$"),
        (answer(200, b"x" * 10).replace(b"Length: 10", b"Length: 99"), "the connection ended"),
    ],
)
def test_other_answers_are_told_in_words(reply: bytes, words: str) -> None:
    """Whatever a server sends, the client raises its own fault with a sentence."""
    told = pytest.raises(ClientFault, match=words)
    with false_engine(lambda _: reply) as (url, _), Client(url, stored=stored(url)) as client, told:
        client.inspect()


def test_an_endless_answer_is_cut() -> None:
    """An answer past 16 MiB is no engine's."""
    endless = false_engine(lambda _: answer(200, b"[" * (17 * 1024 * 1024)))
    cut = pytest.raises(NotAnEngine, match="larger")
    with endless as (url, _), Client(url, stored=stored(url)) as client, cut:
        client.inspect()


def test_a_detail_reaches_the_terminal_printable() -> None:
    """The detail is the engine's own, but for what a terminal could act upon."""
    body = json.dumps({"status": 401, "code": "x", "detail": "wei\u00df \x1b[2J\u202e"}).encode()
    fault = problem(401, {}, body, 0)
    assert fault.detail == "wei\u00df \\x1b[2J\\u202e"


def test_asyncio_drives_the_same_client() -> None:
    """Through anyio the client runs on asyncio too; a false answer is told there as anywhere."""

    async def use(url: str) -> None:
        async with AsyncClient(url, key=key()) as client:
            with pytest.raises(NotAnEngine):
                await client.sign_in()

    with false_engine(lambda request: answer(200, b"[]")) as (url, requests):
        anyio.run(use, url, backend="asyncio")
    assert len(requests) == 1


async def test_a_stream_may_be_left_half_way() -> None:
    """Whoever has read enough just goes; nothing is left open and trio has nothing to warn of."""
    with false_engine(lambda _: answer(200, b"x" * 8_000_000)) as (url, _):
        async with AsyncClient(url, stored=stored(url)) as client, client.instance_log("one") as pieces:
            async for piece in pieces:
                assert piece
                break
        with Client(url, stored=stored(url)) as plain:
            assert next(iter(plain.instance_log("one")))


# Trying again


def test_what_never_arrived_is_sent_again() -> None:
    """A refused connection is tried three times, whatever the request; then it is told with the address."""
    port = free_port()
    told = pytest.raises(Unreachable, match=f"no engine answers at http://127.0.0.1:{port}")
    with Client(f"http://127.0.0.1:{port}", key=key()) as client, told as fault:
        client.sign_in()
    assert not fault.value.sent


def test_a_lost_answer_is_asked_for_again_only_where_that_is_safe() -> None:
    """A GET is sent again, a start of an instance and a claim are not: they may have happened."""
    with false_engine(lambda _: b"") as (url, requests), Client(url, stored=stored(url)) as client:
        with pytest.raises(Unreachable):
            client.inspect()
        assert len(requests) == 3
        requests.clear()
        with pytest.raises(Unreachable):
            client.start_instance(image="a.sif")
        with pytest.raises(Unreachable):
            client.pair("7K3MQ9XD", lambda accepted: None)
        assert len(requests) == 2


def test_a_503_is_waited_out_as_told() -> None:
    """`Retry-After` of a few seconds is waited out for what is safe; a long one, or a 429, is the caller's."""
    replies = [
        answer(503, b'{"detail": "busy", "code": "store_unavailable"}', "Retry-After: 0"),
        answer(200, b'{"sessions": []}'),
    ]
    with false_engine(lambda _: replies.pop(0)) as (url, requests), Client(url, stored=stored(url)) as client:
        assert client.sessions() == []
    assert len(requests) == 2
    for status, wait in ((503, 60), (429, 1)):
        reply = answer(status, b'{"detail": "later", "code": "too_many_requests"}', f"Retry-After: {wait}")
        with false_engine(lambda _, r=reply: r) as (url, requests), Client(url, stored=stored(url)) as client:  # type: ignore[misc]
            with pytest.raises(Refused, match="later") as refused:
                client.inspect()
            assert (len(requests), refused.value.retry_after) == (1, wait)


# What is read


@pytest.mark.parametrize(
    ("date", "hint"),
    [
        ("Thu, 01 Jan 1970 00:16:40 GMT", None),
        ("Thu, 01 Jan 1970 00:16:10 GMT", None),
        ("Thu, 01 Jan 1970 00:16:09 GMT", "this machine's clock is 31 s ahead"),
        ("Thu, 01 Jan 1970 00:17:11 GMT", "this machine's clock is 31 s behind"),
        ("Thu, 01 Jan 1970", None),
        ("tomorrow", None),
        ("", None),
    ],
)
def test_a_wrong_clock_is_named_past_30_seconds(date: str, hint: str | None) -> None:
    """Section 5, rule 2: a wrong clock can make a right key fail, so a 401 says how wrong it is."""
    for status in (401, 403):
        fault = problem(status, {"date": date}, b'{"detail": "no", "code": "invalid_token"}', 1000.0)
        assert isinstance(fault, Refused)
        assert fault.skew_hint == (hint if status == 401 else None)


def test_a_stream_that_took_long_is_no_wrong_clock() -> None:
    """Its `Date` is of its beginning, half a minute before the refusal that ends it."""
    lines = b'{"accepted": true, "match": "42", "expires_in": 30}\n{"detail": "no", "code": "expired", "status": 401}\n'
    reply = answer(200, lines, "Content-Type: application/x-ndjson", "Date: Thu, 01 Jan 1970 00:16:09 GMT")
    with false_engine(lambda _: reply) as (url, _), Client(url) as client, pytest.raises(Refused) as refused:
        client.pair("7K3MQ9XD", lambda accepted: None)
    assert (refused.value.status, refused.value.skew_hint) == (401, None)


def test_the_items_of_a_start() -> None:
    """Section 2.7: a status item, an entity string, an entity object, in this order."""
    entity = {"img": "a", "instance": "b", "ip": "", "log_err_path": "e", "log_out_path": "o", "pid": 7}
    items = [
        {"kind": "status", "payload": {"code": 0, "message": "m"}},
        {"kind": "entity", "payload": "b"},
        {"kind": "entity", "payload": entity},
    ]
    read = started(items)
    assert (read.identity, read.pid, read.message) == ("b", 7, "m")
    worse: list[Any] = [items[:2], items[::-1], [*items[:2], {"payload": {**entity, "pid": "7"}}], {}, [1, 2, 3]]
    for wrong in worse:
        with pytest.raises(NotAnEngine):
            started(wrong)


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_lines_are_cut_the_same_however_they_arrive(pieces: list[bytes]) -> None:
    """NDJSON: the pieces of a stream give the lines of the whole, blank ones dropped."""
    reader = LineReader()
    lines = [line for piece in pieces for line in reader.feed(piece)]
    whole = b"".join(pieces).split(b"\n")[:-1]
    assert lines == [line for line in whole if line.strip()]


def test_a_line_without_end_is_cut() -> None:
    """A false engine can't fill our memory with one line."""
    reader = LineReader()
    for _ in range(4):
        assert list(reader.feed(b"x" * 65536)) == []
    with pytest.raises(NotAnEngine, match="line"):
        list(reader.feed(b"x"))


@given(st.binary())
def test_any_bytes_are_json_or_refused(data: bytes) -> None:
    """No answer makes the reader raise anything but its own fault."""
    with suppress(NotAnEngine):
        read_json(data)


@given(st.text())
def test_any_token_and_nonce_is_read_without_a_crash(text: str) -> None:
    """Tokens are looked into for bookkeeping only, nonces are signed or refused."""
    token_facts(text)
    token_facts(f"a.{b64(text)}.c")
    with pytest.raises(ChallengeRefused):
        check_nonce(text, "h:1", "any")
    with pytest.raises(ChallengeRefused):
        check_nonce(f"hatchway-auth-v1.{text}", "h:1", "any")


async def test_a_request_is_sent_as_it_is_written() -> None:
    """Below the address's own path, with what can't travel as it is in `%xx`, its body in JSON, and no more headers
    than it needs; the sync and the async client send the same. Cookies are not kept."""

    def reply(request: bytes) -> bytes:
        return answer(200, b"{}", "Set-Cookie: one=two")

    with false_engine(reply) as (url, requests):
        below, token = f"{url}/pre", stored(f"{url}/pre")
        with Client(f"{below}/", stored=token) as client:
            client.get("/a b/\u00fc%2f?x=1", y="b c+\u00e9")
            client.run(client.flows.json(Ask("POST", "/p", body={"a": ["\u00fc", None]})))
        async with AsyncClient(f"{below}/", stored=token) as other:
            await other.get("/a b/\u00fc%2f?x=1", y="b c+\u00e9")
            await other.run(other.flows.json(Ask("POST", "/p", body={"a": ["\u00fc", None]})))
    assert requests[:2] == requests[2:]
    read, wrote = requests[:2]
    assert read.startswith(b"GET /pre/a%20b/%C3%BC%2f?x=1&y=b+c%2B%C3%A9 HTTP/1.1\r\n")
    head, _, body = wrote.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /pre/p HTTP/1.1\r\n")
    assert body == '{"a":["\u00fc",null]}'.encode()
    named = {line.split(b":")[0].lower() for line in head.split(b"\r\n")[1:]}
    assert named == {
        *(b"host", b"accept", b"accept-encoding", b"connection", b"user-agent", b"authorization"),
        *(b"content-length", b"content-type"),
    }


def test_the_authorities_that_mozilla_trusts_vouch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where no other trust is given: a certificate that none of them has signed is refused, and nothing is sent."""
    authority = Authority(tmp_path)
    trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trust.load_cert_chain(*authority.issue("engine"))
    with false_engine(lambda _: answer(200, b"{}"), trust) as (url, requests):
        with Client(url, stored=stored(url)) as client, pytest.raises(CertificateRefused, match="is refused: "):
            client.get("/x")
        assert requests == []
        monkeypatch.setattr(certifi, "where", lambda: str(authority.path))
        with Client(url, stored=stored(url)) as client:
            assert client.get("/x") == {}
