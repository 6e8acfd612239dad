"""The past in the console, for MASTER: a moment is picked, and the charts show how things stood."""

from __future__ import annotations

import re
import time

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from hatchway.engine.keys.keys import read_private_key
from tests.console.test_console_access import AXE, findings, fits
from tests.support.browser import KEYS, Host, Visitor, visiting
from tests.support.fakes import signed
from tests.support.node_packages import node_package

pytestmark = [pytest.mark.browser, pytest.mark.process]

ACTIVE = "#charts [data-chart=session] svg [data-state=active] .count"


def used(host: Host, count: int) -> list[str]:
    """So many sign-ins and logouts, one refusal; the names of the sessions."""
    private = read_private_key((KEYS / "rsa2048.pkcs8.pem").read_bytes())
    names = []
    with httpx.Client(base_url=f"http://127.0.0.1:{host.port}") as client:
        for _ in range(count):
            nonce = client.get("/api/auth/challenge/").json()["nonce"]
            token = client.post("/api/auth/verify/", json=signed(nonce, private)).json()["token"]
            bearer = {"authorization": f"Bearer {token}"}
            names.append(client.get("/api/auth/inspect/", headers=bearer).json()["session"])
            client.post("/api/auth/logout/", headers=bearer, json={})
        client.post("/api/auth/verify/", json={"nonce": "x", "signature": "AAAA"})
    return names


@pytest.fixture
def past(visitor: Visitor, host: Host) -> Page:
    """The time line, open, of an engine that had something to do; seen by its own key."""
    used(host, 3)
    page = visitor.open()
    visitor.sign_in(host.home / "private-key.pem", page=page)
    page.locator("#charts figure").nth(2).wait_for()
    page.click("#past-open")
    expect(page.locator("#past-plot svg")).to_be_visible()
    expect(page.locator("#past-now")).not_to_be_empty()
    return page


def test_a_burst_is_seen_and_picked(past: Page) -> None:
    """The plot says in words what it shows; the bar that is pointed at leads to its moment, and on from there record by
    record, forwards and back."""
    words = past.locator("#past-plot svg").get_attribute("aria-label") or ""
    assert re.search(r"[3-9]\d* sign-ins, [1-9]\d* refusals, at most \d+ live sessions", words), words
    bar = past.locator("#past-plot .sign-ins").first
    box = bar.bounding_box()
    assert box is not None
    past.mouse.click(box["x"] + 1, box["y"] + box["height"] / 2)
    expect(past.locator("#past-events li")).to_have_count(0)
    past.click("#past-step")
    expect(past.locator("#past-events li")).to_have_count(1)
    before = past.locator("#past-now").inner_text()
    for count in (2, 3, 4):
        past.click("#past-step")
        expect(past.locator("#past-events li")).to_have_count(count)
    past.click("#past-back")
    expect(past.locator("#past-events li")).to_have_count(3)
    for count in (2, 1):
        past.click("#past-back")
        expect(past.locator("#past-events li")).to_have_count(count)
    expect(past.locator("#past-now")).to_have_text(before)


def test_one_is_followed_and_played(visitor: Visitor, host: Host) -> None:
    """One session alone, from its start to its end; then back to now, where the charts show the present again."""
    name = used(host, 1)[0]
    page = visitor.open()
    visitor.sign_in(host.home / "private-key.pem", page=page)
    page.locator("#charts figure").nth(2).wait_for()
    expect(page.locator(ACTIVE)).not_to_be_empty()
    page.click("#past-open")
    expect(page.locator("#past-now")).not_to_be_empty()
    page.fill("#past-text", name)
    page.keyboard.press("Tab")
    expect(page.locator(ACTIVE)).to_be_empty()
    page.click("#past-step")
    expect(page.locator(ACTIVE)).to_have_text("1")
    page.select_option("#past-speed", "600")
    page.click("#past-play")
    expect(page.locator("#past-events li")).to_have_count(2)
    expect(page.locator(ACTIVE)).to_be_empty()
    expect(page.locator("#past-play")).to_have_text("Play")
    expect(page.locator("#past-now")).to_contain_text("nothing more has happened")
    page.fill("#past-text", "nobody")
    page.keyboard.press("Tab")
    expect(page.locator("#past-now")).to_have_text("No records of nobody.")
    page.click("#past-open")
    expect(page.locator("#past")).to_be_hidden()
    expect(page.locator(ACTIVE)).not_to_be_empty()


def test_records_are_searched(past: Page) -> None:
    """By identity, by address, and by kind; the charts then show what was found, and nothing else counts."""
    past.select_option("#past-kind", "refusal")
    expect(past.locator("#past-now")).not_to_contain_text("No refusals")
    past.click("#past-step")
    expect(past.locator("#past-events li")).to_have_count(1)
    expect(past.locator("#past-events li.refusal")).to_have_count(1)
    past.select_option("#past-by", "address")
    past.fill("#past-text", "192.0.2.77")
    past.press("#past-text", "Enter")
    expect(past.locator("#past-now")).to_have_text("No refusals of 192.0.2.77.")
    past.select_option("#past-kind", "")
    past.fill("#past-text", "127.0.0.1")
    past.press("#past-text", "Enter")
    expect(past.locator("#past-now")).not_to_contain_text("No records")
    past.click("#past-step")
    expect(past.locator("#past-events li")).to_have_count(1)
    past.select_option("#past-by", "identity")
    past.fill("#past-text", "SHA256:nobody+/0")
    past.press("#past-text", "Enter")
    expect(past.locator("#past-now")).to_have_text("No records of SHA256:nobody+/0.")


def test_a_step_waits_for_what_was_asked_before_it(past: Page) -> None:
    """Where the engine's answers take long, each step is taken all the same, and where the search led."""
    past.evaluate("""() => {
      const asked = window.fetch;
      window.fetch = async (...how) => {
        await new Promise((done) => setTimeout(done, 300));
        return asked(...how);
      };
    }""")
    past.select_option("#past-kind", "refusal")
    past.click("#past-step")
    expect(past.locator("#past-events li.refusal")).to_have_count(1)
    past.select_option("#past-kind", "")
    for _ in range(3):
        past.click("#past-step")
    expect(past.locator("#past-events li")).to_have_count(3)


@pytest.mark.node
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_axe_finds_nothing_in_the_past(past: Page, scheme: str, width: int) -> None:
    """In both schemes, wide and on a phone; nothing sticks out at the side."""
    axe = (node_package(AXE) / "node_modules" / "axe-core" / "axe.min.js").read_text()
    past.set_viewport_size({"width": width, "height": 860})
    past.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
    past.click("#past-step")
    assert findings(past, axe) == []
    assert fits(past)


def test_nobody_else_is_offered_it(chromium: Browser, host: Host) -> None:
    """It is MASTER's, as the charts are."""
    with visiting(chromium, host) as other:
        page = other.sign_in()
        page.locator("#sessions-list li").first.wait_for()
        expect(page.locator("#past-open")).to_be_hidden()
        time.sleep(0.2)
        expect(page.locator("#past")).to_be_hidden()
