"""Behind TLS on port 443 of nginx, Caddy, Apache and lighttpd, set up by the handbook: all that people do there."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.support.browser import FLAGS, PAGES_ONLY, PATIENCE
from tests.support.fakes import ROOT, key
from tests.support.hostile_requests import Raw, parse, request
from tests.support.networks import own_network
from tests.support.processes import HATCHWAY, EngineProcess, running_engine
from tests.support.proxies import KINDS, NAME, running_proxy
from tests.support.real_pairings import PAIR, operator_at

pytestmark = [pytest.mark.process, pytest.mark.network, pytest.mark.tools]

ENGINE_PORT = 7420
LAN = "192.0.2.7"
"""Where the proxy is dialled, and so the address of those who come."""

PROXIES = [pytest.param(kind, marks=getattr(pytest.mark, kind)) for kind in KINDS]


class Behind(NamedTuple):
    """An engine, and the certificate of the proxy that people dial."""

    engine: EngineProcess
    certificate: Path


@contextmanager
def behind(kind: str, folder: Path, addresses: str = f"{NAME}:443", trusted: str = "127.0.0.1,::1") -> Iterator[Behind]:
    """In a network of its own, where 443 is free."""
    settings = {"HATCHWAY_ADDRESSES": addresses, "HATCHWAY_TRUSTED_PROXIES": trusted}
    with (
        own_network(LAN),
        running_engine(folder / "home", ENGINE_PORT, **settings) as engine,
        running_proxy(kind, folder / "proxy") as certificate,
    ):
        yield Behind(engine, certificate)


def ask(at: Behind, data: bytes) -> Raw:
    """One request by TLS; the whole answer."""
    context = ssl.create_default_context(cafile=str(at.certificate))
    with (
        socket.create_connection((LAN, 443), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname=NAME) as peer,
    ):
        peer.sendall(data)
        received = b""
        while chunk := peer.recv(65536):
            received += chunk
    return parse(received)


def page(at: Behind, *headers: str) -> Raw:
    return ask(at, request("GET", "/", *headers, port=443, host=NAME))


def try_code(at: Behind, code: str, *headers: str) -> Raw:
    """A claim as the page sends it."""
    body = f'{{"code":"{code}"}}'.encode()
    origin = (f"Origin: https://{NAME}", "Content-Type: application/json")
    return ask(at, request("POST", PAIR, *origin, *headers, port=443, host=NAME, body=body))


@pytest.mark.browser
@pytest.mark.parametrize("kind", PROXIES)
def test_the_page_and_both_sign_ins(tmp_path: Path, kind: str) -> None:
    """With the one address that people dial in `addresses`, the console loads whole, a key signs in, and so does a
    code, whose number is shown while the operator is asked."""
    flags = [*FLAGS, f"--host-resolver-rules=MAP {NAME} {LAN}"]
    with behind(kind, tmp_path) as at, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PAGES_ONLY, args=flags)
        failed: list[str] = []
        for sign_in in ("key", "code"):
            context = browser.new_context(ignore_https_errors=True)
            context.set_default_timeout(PATIENCE)
            context.on("response", lambda told: failed.append(told.url) if told.status >= 400 else None)
            tab = context.new_page()
            tab.goto(f"https://{NAME}/")
            tab.locator("#view-signin:visible").wait_for()
            if sign_in == "key":
                tab.set_input_files("#key-file", {"name": "one.pem", "mimeType": "text/plain", "buffer": key().pem()})
                tab.click("#key-submit")
                tab.locator("#view-home:visible").wait_for()
            else:
                with operator_at(at.engine) as operator:
                    tab.check("input[value=pair]", force=True)
                    tab.fill("#code", operator.code)
                    tab.click("#pair-submit")
                    claimed = operator.wait("claimed")
                    assert (claimed["local"], claimed["forwarded"]) == (False, LAN)
                    expect(tab.locator("#match")).to_have_text(claimed["match"], timeout=PATIENCE)
                    operator.answer("y")
                    tab.locator("#view-home:visible").wait_for()
            context.close()
        browser.close()
    assert failed == []


@pytest.mark.mount
@pytest.mark.parametrize("kind", PROXIES)
def test_the_command(tmp_path: Path, kind: str) -> None:
    """`login` and `pair` at https://gate.example, from a machine of its own, and a call with the token."""
    (tmp_path / "hosts").write_text(f"127.0.0.1 localhost\n{LAN} {NAME}\n")
    (tmp_path / "one.pem").write_bytes(key().pem())
    (tmp_path / "one.pem").chmod(0o600)
    mounted = ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', str(tmp_path / "hosts")]

    with behind(kind, tmp_path) as at:
        environ = at.engine.environ | {"HATCHWAY_HOME": str(tmp_path / "client"), "SSL_CERT_FILE": str(at.certificate)}
        environ = {name: value for name, value in environ.items() if name not in ("HATCHWAY_ADDRESSES",)}

        def start(*arguments: str) -> subprocess.Popen[str]:
            return subprocess.Popen(
                [*mounted, *HATCHWAY, *arguments],
                env=environ,
                cwd=ROOT,
                text=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )

        def finish(command: subprocess.Popen[str]) -> str:
            out, err = command.communicate(timeout=60)
            assert command.returncode == 0, out + err
            return out + err

        url = ("--url", f"https://{NAME}")
        assert "signed in" in finish(start("login", *url, "--key", str(tmp_path / "one.pem")))
        with operator_at(at.engine) as operator:
            command = start("pair", operator.code, *url)
            match = operator.wait("claimed")["match"]
            operator.answer("y")
            said = finish(command)
        assert f"The number there must be {match}." in said
        assert "hold the answer back" not in said
        assert "pairing" in finish(start("session", "list"))


@pytest.mark.parametrize("kind", PROXIES)
def test_the_one_address_is_enough(tmp_path: Path, kind: str) -> None:
    """Without a trusted proxy too the page and its own requests are answered, and a foreign page's are not."""
    with behind(kind, tmp_path, trusted="") as at:
        assert page(at).status == 200
        assert try_code(at, "00000000").status == 401
        body = b'{"code":"00000000"}'
        foreign = ("Origin: https://evil.example", "Content-Type: application/json")
        assert ask(at, request("POST", PAIR, *foreign, port=443, host=NAME, body=body)).status == 403


@pytest.mark.parametrize("kind", PROXIES)
@pytest.mark.parametrize("trusted", ["", "127.0.0.1"])
def test_what_to_add(tmp_path: Path, kind: str, trusted: str) -> None:
    """The refusal of a name that `addresses` lacks names what people dial; just that where the proxy is believed."""
    with behind(kind, tmp_path, f"{NAME}:8443", trusted) as at:
        refused = page(at)
        assert refused.status == 421
        words = (
            f"{NAME}:443 is not" if trusted else f"{NAME}:443 (https) or {NAME}:80 (http), to the setting `addresses`"
        )
        assert words in refused.json()["detail"]


@pytest.mark.parametrize("kind", PROXIES)
def test_a_client_chooses_no_address(tmp_path: Path, kind: str) -> None:
    """With the handbook's lines, an X-Forwarded-For of the client's own evades no limit: five guesses, then 429."""
    with behind(kind, tmp_path) as at:
        tried = [try_code(at, f"0000{n:04d}", f"X-Forwarded-For: 198.51.100.{n}").status for n in range(7)]
        assert tried == [401] * 5 + [429] * 2


@pytest.mark.parametrize("kind", PROXIES)
def test_who_comes_by_the_proxy_is_not_this_host(tmp_path: Path, kind: str) -> None:
    """`/metrics` wants a token of those that a proxy of this host brings, whatever is trusted."""
    for number, trusted in enumerate(("", "127.0.0.1")):
        (tmp_path / str(number)).mkdir()
        with behind(kind, tmp_path / str(number), trusted=trusted) as at:
            assert ask(at, request("GET", "/metrics", port=443, host=NAME)).status == 401


@pytest.mark.caddy
def test_no_claim_is_cut_off(tmp_path: Path) -> None:
    """Caddy cuts answers that begin before it has seen the request's end: claims whose body comes a moment after their
    head all get a first line, and the stream goes on until the operator has answered."""
    with behind("caddy", tmp_path, trusted="") as at:
        context = ssl.create_default_context(cafile=str(at.certificate))
        for _ in range(60):
            with (
                operator_at(at.engine) as operator,
                socket.create_connection((LAN, 443), timeout=60) as plain,
                context.wrap_socket(plain, server_hostname=NAME) as peer,
            ):
                body = json.dumps({"code": operator.code}).encode()
                whole = request("POST", PAIR, "Content-Type: application/json", port=443, host=NAME, body=body)
                peer.sendall(whole[: -len(body)])
                time.sleep(0.002)
                peer.sendall(body)
                operator.wait("claimed")
                operator.answer("n")
                answer = peer.makefile("rb").read()
                assert b'"accepted":true' in answer
                assert b"invalid_pairing_code" in answer
