"""Who signs in on a page after another person finds nothing of that person there, and no session is nobody's."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, Route, expect

from tests.console.test_console_tabs import token
from tests.support.browser import INSTANCE, KEYS, Host, Visitor

pytestmark = [pytest.mark.browser, pytest.mark.process]

LOGOUT = "/api/auth/logout/"
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


@pytest.mark.parametrize("end", ["in another tab", "by another's session"])
def test_a_question_ends_with_its_session(visitor: Visitor, host: Host, end: str) -> None:
    """It stands neither before the sign-in page nor before another's: its yes would count there."""
    page, other = visitor.sign_in(), visitor.open()
    other.locator("#view-home:visible").wait_for()
    visitor.context.route(f"**{LOGOUT}", lambda route: route.fulfill(status=204))
    page.click("#everywhere")
    expect(page.get_by_role("dialog")).to_be_visible()
    if end == "in another tab":
        other.click("#logout")
        expect(page.locator("#view-signin")).to_be_visible()
    else:
        stored = other.evaluate("sessionStorage['hatchway.session']")
        later = json.loads(stored) | {"session": "another", "identity": "SHA256:another"}
        later["issued_at"] += 1
        other.evaluate("(s) => new BroadcastChannel('hatchway').postMessage({kind: 'session', session: s})", later)
        expect(page.locator("#facts")).to_contain_text("SHA256:another")
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert not [request for request in visitor.requests if request.method == "DELETE"]


def ended(visitor: Visitor) -> list[int]:
    """How the engine answered the logouts."""
    return [reply.status for request in visitor.asked(LOGOUT) if (reply := request.response()) is not None]


def test_a_tab_that_was_overtaken_leaves_no_session(visitor: Visitor, host: Host) -> None:
    """Another tab signs in while the engine's answer is on its way: both have that session, and the second is ended."""
    slow, quick = visitor.open(), visitor.open()
    held: list[Route] = []
    slow.route("**/api/auth/verify/", lambda route: held.append(route))
    slow.set_input_files("#key-file", KEYS / "rsa2048.pkcs8.pem")
    with slow.expect_request("**/api/auth/verify/"):
        slow.click("#key-submit")
    visitor.sign_in(host.home / "private-key.pem", page=quick)
    expect(slow.locator("#view-home")).to_be_visible()
    with slow.expect_response(f"**{LOGOUT}"):
        held[0].continue_()
    assert ended(visitor) == [204]
    assert token(slow) == token(quick)
    expect(slow.locator("#view-home")).to_be_visible()


def test_tabs_that_sign_in_at_one_moment_agree(visitor: Visitor, host: Host) -> None:
    """On one of their sessions; the other is ended."""
    tabs = [visitor.open(), visitor.open()]
    held: list[Route] = []
    for page, key in zip(tabs, (KEYS / "rsa2048.pkcs8.pem", host.home / "private-key.pem"), strict=True):
        page.route("**/inspect/", lambda route: route.continue_() if len(held) == 2 else held.append(route))
        page.set_input_files("#key-file", key)
        with page.expect_request("**/inspect/"):
            page.click("#key-submit")
    with tabs[0].context.expect_event("response", lambda response: response.url.endswith(LOGOUT)):
        for route in held:
            route.continue_()
    for page in tabs:
        expect(page.locator("#view-home")).to_be_visible()
    assert ended(visitor) == [204]
    assert token(tabs[0]) == token(tabs[1])


@pytest.mark.parametrize("failing", ["abort", "page"])
def test_a_sign_in_that_fails_at_its_end_leaves_no_session(visitor: Visitor, failing: str) -> None:
    """The token is good, and its inspection fails: it is logged out, since nobody knows it."""
    page = visitor.open()
    page.route(
        "**/inspect/", lambda route: route.abort() if failing == "abort" else route.fulfill(body="<html>maintenance")
    )
    page.set_input_files("#key-file", KEYS / "rsa2048.pkcs8.pem")
    with page.expect_response(f"**{LOGOUT}"):
        page.click("#key-submit")
    expect(page.locator("#key-refusal")).not_to_be_empty()
    assert ended(visitor) == [204]
    visitor.faults[:] = [fault for fault in visitor.faults if "ERR_FAILED" not in fault]
