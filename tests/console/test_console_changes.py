"""What is changed at the engine while a page is open for the session: its end, its permissions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.support.browser import Host, Visitor

pytestmark = [pytest.mark.browser, pytest.mark.process]

KEY = "rsa2048.spki"


def shorten(page: Page, path: str, **facts: Any) -> None:
    """Answers for `path` have these facts from now on; in a list, the row of this session."""

    def answer(route: Route) -> None:
        told = route.fetch().json()
        for one in told.get("sessions", [told]):
            if one.get("current", True):
                one.update(facts)
        route.fulfill(json=told)

    page.route(path, answer)


def engine_s_now(page: Page) -> int:
    """Seconds since the epoch."""
    now: int = page.evaluate("import('/console/clock.js').then(({now}) => Math.floor(now()))")
    return now


def test_an_end_that_came_nearer_is_counted_down_to(visitor: Visitor) -> None:
    """The key's end was shortened: clock, "Ends at" and the last minute's warning follow, in the other tab too, and a
    reload does not bring the old end back."""
    page, other = visitor.sign_in(lifetime="2h"), visitor.open()
    expect(page.locator("#left-clock")).to_have_text(re.compile(r"1:59:\d\d|2:00:00"))
    ends = engine_s_now(page) + 600
    for one in (page, other):
        shorten(one, "**/api/auth/inspect/", expires_at=ends, key_expires_at=ends)
        one.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        expect(one.locator("#left-clock")).to_have_text(re.compile(r"9:[45]\d|10:00"))
        expect(one.locator("#facts")).to_contain_text("Expires at")
        expect(one.locator("#announce")).to_be_empty()
    page.reload()
    expect(page.locator("#left-clock")).to_have_text(re.compile(r"9:[345]\d|10:00"))
    ends = engine_s_now(page) + 50
    shorten(page, "**/api/auth/inspect/", expires_at=ends)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.locator("#announce")).to_contain_text("less than a minute")
    for one in (page, other):
        one.unroute_all(behavior="wait")


def test_a_page_on_screen_hears_of_a_nearer_end_by_the_list(visitor: Visitor) -> None:
    """Nobody has to look away and back: the list of sessions has each one's end."""
    page = visitor.open()
    page.clock.install()
    visitor.sign_in(lifetime="2h", page=page)
    page.locator("#sessions-list li").first.wait_for()
    ends = engine_s_now(page) + 600
    shorten(page, "**/api/auth/inspect/", expires_at=ends)
    shorten(page, "**/api/auth/sessions/", expires_at=ends)
    page.clock.fast_forward(11_000)
    expect(page.locator("#left-clock")).to_have_text(re.compile(r"9:[345]\d|10:00"))
    page.unroute_all(behavior="wait")


@pytest.fixture
def grant(host: Host) -> Iterator[Callable[[str], object]]:
    """Changes the permissions of `rsa2048`; at the end it has all five again."""

    def edit(permissions: str) -> object:
        return host.command("key", "edit", KEY, "--permissions", permissions)

    yield edit
    edit("SHELL,ARTIFACT,RUNTIME,WORKFLOW,AGENT")


def test_narrowed_permissions_are_noticed_on_screen(visitor: Visitor, grant: Callable[[str], object]) -> None:
    """The engine's first refusal shows them: what may not be seen any more goes, which is said, and the focus is not
    lost with it."""
    page = visitor.open()
    page.clock.install()
    visitor.sign_in(page=page)
    expect(page.locator("#instances-empty")).to_be_visible()
    page.click("#start-open")
    expect(page.locator("#start-image")).to_be_focused()
    grant("SHELL")
    page.clock.fast_forward(5_000)
    expect(page.locator("#instances")).to_be_hidden()
    expect(page.locator("#facts .chips li")).to_have_text(["SHELL"])
    expect(page.locator("#announce")).to_have_text("Your permissions were changed. You have now: SHELL.")
    expect(page.locator("#home-title")).to_be_focused()


def test_what_permissions_leave_as_it_was_is_left_alone(visitor: Visitor, grant: Callable[[str], object]) -> None:
    """A form that is being filled in stays open, and keeps the focus; who may only look is offered no start."""
    page = visitor.sign_in()
    page.click("#start-open")
    page.fill("#start-image", "box.sif")
    for permissions, shown in (("SHELL,RUNTIME", True), ("SHELL,RUNTIME:READ", False)):
        grant(permissions)
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        expect(page.locator("#announce")).to_contain_text(permissions.replace(",", ", "))
        expect(page.locator("#start-form")).to_be_visible(visible=shown)
        expect(page.locator("#start-open")).to_be_visible(visible=shown)
        expect(page.locator("#start-image" if shown else "#home-title")).to_be_focused()
    expect(page.locator("#instances")).to_be_visible()
