"""Over TLS the certificate's fingerprint is told everywhere alike: terminal, status, readiness, console."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import PATIENCE
from tests.support.fakes import key
from tests.support.processes import EngineProcess, tls_engine
from tests.support.terminal import terminal

pytestmark = pytest.mark.process


def fingerprint(pem: str) -> str:
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).digest().hex(":").upper()


def shown(engine: EngineProcess) -> str:
    """The fingerprint of the certificate that a connection gets."""
    certificate = ssl.get_server_certificate(("127.0.0.1", int(engine.url.rpartition(":")[2])))
    return fingerprint(certificate)


def ready(engine: EngineProcess) -> object:
    return httpx.get(f"{engine.url}/readyz", verify=False).json()["certificate"]


def test_status_and_readiness(home: Path) -> None:
    """Both tell what connections get, after a reload that took another certificate too."""
    with tls_engine(home) as engine:
        first = shown(engine)
        assert engine.operator({"op": "status"})[-1]["fingerprint"] == ready(engine) == first
        (home / "tls-cert.pem").unlink()
        engine.command("engine", "reload")
        assert shown(engine) != first
        assert engine.operator({"op": "status"})[-1]["fingerprint"] == ready(engine) == shown(engine)


async def test_the_start_page(home: Path) -> None:
    """The terminal that the engine starts on shows it."""
    async with terminal("engine", "start", "--port", "0", "--tls", "auto", home=home) as screen:
        await screen.wait_for("or hatchway engine stop")
        screen.type(b"\x03")
        assert await screen.wait_end() == 0
    assert f"certificate  SHA-256 {fingerprint((home / 'tls-cert.pem').read_text())}" in screen.text


@pytest.mark.browser
def test_the_console(home: Path, chromium: Browser) -> None:
    """Who is signed in sees it on the page."""
    with tls_engine(home) as engine:
        context = chromium.new_context(ignore_https_errors=True)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.goto(f"{engine.url}/")
        page.set_input_files("#key-file", {"name": "one.pem", "mimeType": "text/plain", "buffer": key().pem()})
        page.click("#key-submit")
        page.locator("#view-home:visible").wait_for()
        expect(page.locator("#certificate")).to_contain_text(f"SHA-256 {shown(engine)}")
        context.close()
