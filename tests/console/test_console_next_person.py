"""Who signs in on a page after another person finds nothing of that person there."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, Route, expect

from tests.support.browser import INSTANCE, Host, Visitor

pytestmark = [pytest.mark.browser, pytest.mark.process]

SECRET = "PASSWORD=hunter2"
END = """async () => {
  const {token} = JSON.parse(sessionStorage["hatchway.session"]);
  const headers = {Authorization: `Bearer ${token}`, "Content-Type": "application/json"};
  await fetch("/api/auth/logout/", {method: "POST", headers, body: "{}"});
}"""
"""Ends the session at the engine, behind the page's back."""


def type_secret(page: Page) -> None:
    page.click("#start-open")
    page.fill("#start-image", "box.sif")
    page.click("#start-more summary")
    page.fill("#start-env", SECRET)


def test_a_logout_empties_the_form_that_starts_an_instance(visitor: Visitor, host: Host) -> None:
    """The environment's secrets above all: they are not the next one's to read."""
    page = visitor.sign_in()
    type_secret(page)
    page.click("#logout")
    visitor.sign_in(host.home / "private-key.pem", page=page)
    page.click("#start-open")
    expect(page.locator("#start-image")).to_have_value("")
    expect(page.locator("#start-env")).to_have_value("")


def test_another_identity_finds_an_empty_form_and_the_same_one_its_own(visitor: Visitor, host: Host) -> None:
    """A session that ended by itself takes nothing from the person whose it was."""
    page = visitor.sign_in()
    type_secret(page)
    for key, kept in (("rsa2048.pkcs8.pem", SECRET), (host.home / "private-key.pem", "")):
        page.evaluate(END)
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        expect(page.locator("#signin-notice")).to_contain_text("ended at the engine")
        visitor.sign_in(key, page=page)
        expect(page.locator("#start-env")).to_have_value(kept)


def test_an_answer_that_comes_late_is_not_shown_to_the_next(visitor: Visitor, host: Host) -> None:
    """A list that was asked for by a session that is over."""
    page = visitor.open()
    held: list[Route] = []
    page.route(f"**{INSTANCE}", lambda route: route.continue_() if held else held.append(route))
    visitor.sign_in(host.home / "private-key.pem", page=page)
    expect(page.locator("#sessions-list li").first).to_be_visible()
    page.click("#logout")
    visitor.sign_in(page=page)
    expect(page.locator("#instances-empty")).to_be_visible()
    (late,) = held
    with page.expect_event("requestfinished", lambda request: request == late.request):
        late.fulfill(json={"instances": [{"identity": "another-s", "state": "running", "host_answers": True}]})
    page.evaluate("new Promise((done) => setTimeout(done, 50))")
    assert page.locator("#instances-list [data-key=another-s]").count() == 0
    assert page.locator("#instances-problem").is_hidden()
