"""An engine that is not heard, and answers that are none of its own: the page says so, and goes on once it is back."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, Route, expect

from tests.support.browser import INSTANCE, KEYS, Host, Visitor

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


def dead(page: Page, path: str) -> list[Route]:
    """Requests for `path` reach nobody from now on, and nothing says so. They are kept."""
    held: list[Route] = []
    page.route(path, lambda route: held.append(route))
    return held


def one_held(page: Page, held: list[Route]) -> None:
    """Waits until a request was sent to nobody, and the page has gone on."""
    for _ in range(900):
        if held:
            break
        page.wait_for_timeout(50)
    assert len(held) == 1
    page.wait_for_timeout(100)


def test_a_call_that_nobody_answers_is_given_up(visitor: Visitor) -> None:
    """A device slept, or changed its network: the connection is open, and nothing passes."""
    page = visitor.open()
    page.clock.install()
    visitor.sign_in(page=page)
    page.locator("#sessions-list li").first.wait_for()
    held = dead(page, "**/api/auth/sessions/")
    page.clock.fast_forward(11_000)
    one_held(page, held)
    expect(page.locator("#sessions-problem")).to_be_hidden()
    page.clock.fast_forward(21_000)
    expect(page.locator("#sessions-problem")).to_contain_text("the engine does not answer")
    page.unroute("**/api/auth/sessions/")
    page.clock.fast_forward(11_000)
    expect(page.locator("#sessions-problem")).to_be_hidden()
    assert len(held) == 1


def test_a_sign_in_and_a_logout_that_nobody_answers_are_given_up(visitor: Visitor) -> None:
    """The button may be pressed again, and the page says that the engine was not told."""
    page = visitor.open()
    page.clock.install()
    dead(page, "**/api/auth/challenge/**")
    page.set_input_files("#key-file", KEYS / "rsa2048.pkcs8.pem")
    with page.expect_request("**/api/auth/challenge/**"):
        page.click("#key-submit")
    page.clock.fast_forward(21_000)
    expect(page.locator("#key-refusal")).to_contain_text("the engine does not answer")
    page.unroute("**/api/auth/challenge/**")
    page.click("#key-submit")
    page.locator("#view-home:visible").wait_for()
    dead(page, "**/api/auth/logout/")
    with page.expect_request("**/api/auth/logout/"):
        page.click("#logout")
    page.clock.fast_forward(21_000)
    expect(page.locator("#signin-notice")).to_contain_text("the engine was not told")


def test_a_start_may_take_as_long_as_it_takes(visitor: Visitor) -> None:
    """An image may have to be pulled first."""
    page = visitor.open()
    page.clock.install()
    visitor.sign_in(page=page)
    page.route(f"**{INSTANCE}", lambda route: route.fallback() if route.request.method == "GET" else None)
    page.click("#start-open")
    page.fill("#start-image", "docker://large")
    with page.expect_request(lambda request: request.method == "POST"):
        page.click("#start-form button.main")
    page.clock.fast_forward(600_000)
    page.wait_for_timeout(100)
    expect(page.locator("#start-form button.main")).to_have_text("Starting…")
    expect(page.locator("#start-problem")).to_be_hidden()


def test_a_silent_stream_is_not_called_live(visitor: Visitor, host: Host) -> None:
    """An engine says something each 15 s: after 40 without a byte the connection is given up, and made anew."""
    page = visitor.open()
    page.clock.install()
    visitor.sign_in(host.home / "private-key.pem", page=page)
    expect(page.locator("#live-state")).to_have_text("Live")
    held = dead(page, "**/api/events/")
    page.clock.fast_forward(41_000)
    expect(page.locator("#live-state")).to_have_text("Reconnecting…")
    page.clock.fast_forward(2_000)
    one_held(page, held)
    expect(page.locator("#live-state")).to_have_text("Reconnecting…")
    page.unroute("**/api/events/")
    page.clock.fast_forward(21_000)
    expect(page.locator("#live-state")).to_have_text("Live")
    assert len(held) == 1


def test_a_pairing_on_a_silent_connection_is_given_up(visitor: Visitor, host: Host) -> None:
    """An engine sends a blank line each 5 s: after 12 without a byte nobody waits for the operator any more."""
    page = visitor.open()
    page.clock.install()
    page.check("input[value=pair]", force=True)
    with host.pairing() as terminal:
        page.fill("#code", terminal.code())
        page.click("#pair-submit")
        expect(page.locator("#match")).to_have_text(terminal.match_number())
        page.clock.fast_forward(13_000)
        expect(page.locator("#code-error")).to_contain_text("the connection was lost before the operator answered")
        terminal.wait_for("went away|left|gone")


def test_a_pairing_ends_with_its_window(visitor: Visitor) -> None:
    """Where a proxy holds the whole response back and never lets go of it."""
    page = visitor.open()
    page.clock.install()
    page.check("input[value=pair]", force=True)
    dead(page, "**/api/auth/pair/request/")
    page.fill("#code", "0000-0000")
    with page.expect_request("**/api/auth/pair/request/"):
        page.click("#pair-submit")
    page.clock.fast_forward(29_000)
    expect(page.locator("#code-error")).to_contain_text("a proxy before the engine may hold it back")
    page.clock.fast_forward(7_000)
    expect(page.locator("#code-error")).to_contain_text("the connection was lost before the operator answered")
