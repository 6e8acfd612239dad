"""An engine that is not heard, and answers that are none of its own: the page says so, and goes on once it is back."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import Visitor

pytestmark = [pytest.mark.browser, pytest.mark.process]

NO_JSON = {"page": "<html>maintenance", "cut short": '{"sessions": ['}


def reload(page: Page) -> None:
    page.reload()
    page.locator("#view-signin:visible, #view-home:visible").wait_for()


@pytest.mark.parametrize("body", NO_JSON.values(), ids=NO_JSON)
def test_an_answer_that_is_no_json_stops_no_list(visitor: Visitor, body: str) -> None:
    """It is told above the list, which is asked for again in its usual time."""
    page = visitor.open()
    page.clock.install()
    visitor.sign_in(page=page)
    page.route("**/api/auth/sessions/", lambda route: route.fulfill(status=200, body=body, content_type="text/html"))
    page.clock.fast_forward(11_000)
    expect(page.locator("#sessions-problem")).to_contain_text("is none of the engine's, or was cut short")
    page.unroute("**/api/auth/sessions/")
    page.clock.fast_forward(11_000)
    expect(page.locator("#sessions-problem")).to_be_hidden()


def test_a_list_goes_on_after_a_fault_of_the_page_s_own(visitor: Visitor) -> None:
    """JSON of a shape that nobody expected: the fault is reported, and the list is asked for again."""
    page = visitor.open()
    page.clock.install()
    visitor.sign_in(page=page)
    page.locator("#sessions-list li").first.wait_for()
    page.route("**/api/auth/sessions/", lambda route: route.fulfill(json={}))
    with page.expect_event("pageerror"):
        page.clock.fast_forward(11_000)
    page.unroute("**/api/auth/sessions/")
    with page.expect_response("**/api/auth/sessions/"):
        page.clock.fast_forward(11_000)
    visitor.faults.clear()


def test_a_reload_that_meets_a_proxy_s_page_keeps_the_session(visitor: Visitor) -> None:
    """It says nothing about the session: this is taken up as it was."""
    page = visitor.sign_in()
    page.route("**/inspect/", lambda route: route.fulfill(body="<html>maintenance", content_type="text/html"))
    reload(page)
    expect(page.locator("#view-home")).to_be_visible()


def test_a_session_that_can_t_be_taken_up_again_asks_for_a_new_sign_in(visitor: Visitor) -> None:
    """The page never stays at its search; what it could not read is forgotten."""
    page = visitor.sign_in()
    page.evaluate("sessionStorage['hatchway.session'] = '{'")
    reload(page)
    expect(page.locator("#signin-notice")).to_have_text("The session of this tab could not be taken up again.")
    visitor.faults.clear()
    reload(page)
    expect(page.locator("#signin-notice")).to_be_hidden()
    visitor.sign_in(page=page)
