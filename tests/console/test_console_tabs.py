"""One session in all tabs of a browser: shared, renewed by one for all, ended in all; and what only time brings."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.support.browser import NOTHING, Host, Terminal, Visitor, visiting
from tests.support.timing import kept
from tests.support.waits import until

pytestmark = [pytest.mark.browser, pytest.mark.process]


@dataclass
class Aging:
    """What was begun half a minute before it is looked at, so that the tests wait side by side."""

    begun: float
    tabs: list[Page]
    owner: Visitor
    waiting: Page
    unclaimed: Terminal
    unclaimed_code: str
    claimed: Terminal

    def wait_until(self, age: float) -> None:
        """Sleeps until `age` seconds after the beginning, with the browser's own events served."""
        self.waiting.wait_for_timeout(max(0.0, self.begun + age - time.monotonic()) * 1000)

    def begin_session(self) -> None:
        """A session of a minute, in two tabs."""
        for page in self.owner.context.pages:
            page.close()
        self.owner.requests.clear()
        self.tabs = [self.owner.sign_in("rsa3072.pkcs8.pem", lifetime="1m"), self.owner.open()]
        self.tabs[1].locator("#view-home:visible").wait_for()
        self.begun = time.monotonic()


@pytest.fixture(scope="module")
def aging(chromium: Browser, host: Host) -> Iterator[Aging]:
    """Two tabs in a session of a minute, a code that nobody claims, and one that nobody answers."""
    with ExitStack() as stack:
        owner = stack.enter_context(visiting(chromium, host))
        stranger = stack.enter_context(visiting(chromium, host))
        unclaimed, claimed = (stack.enter_context(host.pairing()) for _ in range(2))
        waiting = stranger.open()
        waiting.check("input[value=pair]", force=True)
        waiting.fill("#code", claimed.code())
        waiting.click("#pair-submit")
        claimed.match_number()
        begun = Aging(0.0, [], owner, waiting, unclaimed, unclaimed.code(), claimed)
        begun.begin_session()
        yield begun


def token(page: Page) -> str:
    stored: str = json.loads(page.evaluate("sessionStorage['hatchway.session']"))["token"]
    return stored


def test_a_session_survives_refresh_navigation_and_new_tabs(aging: Aging, visitor: Visitor) -> None:
    """The same session each time, without a second sign-in."""
    page = visitor.sign_in()
    page.reload()
    expect(page.locator("#view-home")).to_be_visible()
    page.goto("about:blank")
    page.go_back()
    expect(page.locator("#view-home")).to_be_visible()
    other = visitor.open()
    expect(other.locator("#view-home")).to_be_visible()
    assert token(other) == token(page)
    assert len(visitor.asked("/api/auth/verify/")) == 1


AT_SIGN_IN = """() => {
  const view = document.getElementById("view-signin");
  new MutationObserver(() => { window.at = Date.now(); }).observe(view, {attributeFilter: ["hidden"]});
}"""
"""Notes when the page goes back to its sign-in."""


def test_logging_out_in_one_tab_ends_the_others_within_a_second(visitor: Visitor) -> None:
    """The engine has ended the session too, and nothing is kept (D40)."""
    one, other, spent = visitor.open(), visitor.open(), ""

    def ended_in_the_other() -> float:
        nonlocal spent
        visitor.sign_in(page=one)
        other.locator("#view-home:visible").wait_for()
        spent = token(other)
        one.evaluate("addEventListener('click', () => { window.at = Date.now(); }, {capture: true, once: true})")
        other.evaluate(AT_SIGN_IN)
        one.click("#logout")
        other.locator("#view-signin:visible").wait_for()
        ended: float = other.evaluate("window.at") - one.evaluate("window.at")
        return ended / 1000

    kept(1, ended_in_the_other)
    expect(other.locator("#signin-notice")).to_have_text("You were logged out in another tab.")
    expect(one.locator("#signin-notice")).to_have_text("You are logged out.")
    status = one.evaluate(
        "(token) => fetch('/api/auth/inspect/', {headers: {Authorization: `Bearer ${token}`}}).then((r) => r.status)",
        spent,
    )
    assert status == 401
    assert visitor.kept(one) == visitor.kept(other) == NOTHING
    one.reload()
    expect(one.locator("#view-signin")).to_be_visible()


def test_a_logout_is_called_done_once_the_engine_has_done_it(visitor: Visitor) -> None:
    """Not before: until then the session answers."""
    page = visitor.sign_in()
    engine = Engine(visitor)
    engine.hold = True
    page.click("#logout")
    expect(page.locator("#signin-notice")).to_have_text("Logging out…")
    engine.one_held(page)()
    expect(page.locator("#signin-notice")).to_have_text("You are logged out.")


def test_a_logout_that_nobody_answers_says_so(visitor: Visitor) -> None:
    """By either button: the browser has forgotten the session, the engine has not."""
    for button in ("#logout", "#everywhere"):
        page = visitor.sign_in()
        page.route("**/logout/", lambda route: route.abort())
        page.click(button)
        if button == "#everywhere":
            page.get_by_role("dialog").get_by_role("button", name="Log out everywhere").click()
        expect(page.locator("#signin-notice")).to_contain_text("the engine was not told")
        assert visitor.kept(page) == NOTHING
    visitor.faults[:] = [fault for fault in visitor.faults if "ERR_FAILED" not in fault]


def test_a_page_closed_at_once_is_logged_out_all_the_same(visitor: Visitor, host: Host) -> None:
    """The request outlives the page that sent it."""
    page = visitor.sign_in()
    spent = token(page)
    page.evaluate("document.getElementById('logout').click()")
    page.close()
    headers = {"Authorization": f"Bearer {spent}"}
    until(lambda: httpx.get(f"{host.url}api/auth/inspect/", headers=headers).status_code == 401, what="logged out")


def test_signing_in_takes_the_waiting_tabs_along(visitor: Visitor) -> None:
    """A tab that shows the sign-in page is signed in with the other."""
    waiting = visitor.open()
    visitor.sign_in()
    expect(waiting.locator("#view-home")).to_be_visible()


def test_all_tabs_closed_and_opened_again_is_signed_out(visitor: Visitor) -> None:
    """sessionStorage goes with the last tab."""
    pages = [visitor.sign_in(), visitor.open()]
    for page in pages:
        page.close()
    page = visitor.open()
    expect(page.locator("#view-signin")).to_be_visible()
    assert visitor.kept(page) == NOTHING


def test_a_revoked_session_is_out_at_its_next_step(visitor: Visitor, chromium: Browser, host: Host) -> None:
    """Another browser of the same key revokes it from the list; the page says that the engine ended it."""
    page = visitor.sign_in()
    mine = json.loads(page.evaluate("sessionStorage['hatchway.session']"))["session"]
    with visiting(chromium, host) as other:
        away = other.sign_in()
        row = away.locator(f"#sessions-list [data-key='{mine}']")
        row.get_by_role("button", name="Revoke").click()
        away.get_by_role("dialog").get_by_role("button", name="Revoke").click()
        expect(row).to_have_count(0)
    look(page)
    expect(page.locator("#signin-notice")).to_contain_text("Your session was ended at the engine")


def test_log_out_everywhere_ends_every_session_of_the_key(visitor: Visitor, chromium: Browser, host: Host) -> None:
    """This one and the others, not those of other keys."""
    with visiting(chromium, host) as elsewhere, visiting(chromium, host) as stranger:
        away = elsewhere.sign_in()
        other_key = stranger.sign_in("rsa3072.pkcs8.pem")
        page = visitor.sign_in()
        page.click("#everywhere")
        page.get_by_role("dialog").get_by_role("button", name="Log out everywhere").click()
        expect(page.locator("#signin-notice")).to_have_text("You are logged out.")
        for somewhere in (away, other_key):
            somewhere.reload()
        expect(away.locator("#view-signin")).to_be_visible()
        expect(other_key.locator("#view-home")).to_be_visible()


def test_two_tabs_that_renew_at_once_renew_once(aging: Aging) -> None:
    """Past half its lifetime a session is renewed by use; one tab does it, and both have the new token (B12)."""
    if time.monotonic() > aging.begun + 45:  # on a busy machine the minute may be over
        aging.begin_session()
    one, other = aging.tabs
    before = token(one)
    one.keyboard.press("Shift")
    one.wait_for_timeout(200)
    if time.monotonic() < aging.begun + 25:
        assert not aging.owner.asked("/api/auth/renew/")  # not before half
    aging.wait_until(31)
    for page in aging.tabs:  # one key press in each within a few milliseconds
        page.evaluate("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Shift'}))")
    for page in aging.tabs:
        page.wait_for_function("(old) => JSON.parse(sessionStorage['hatchway.session']).token !== old", arg=before)
        expect(page.locator("#left-clock")).to_have_text(re.compile(r"0:5\d|1:00"))
    assert token(one) == token(other)
    one.wait_for_timeout(400)
    assert len(aging.owner.asked("/api/auth/renew/")) == 1
    assert not [r for r in aging.owner.requests if (answer := r.response()) is not None and answer.status == 401]


def test_a_code_that_nobody_claims_is_refused_after_its_time(aging: Aging, visitor: Visitor) -> None:
    """Half a minute later it is an invalid one like any other."""
    aging.wait_until(31)
    aging.unclaimed.wait_for("expired")
    page = visitor.open(f"#pair={aging.unclaimed_code}")
    page.click("#pair-submit")
    expect(page.locator("#code-error")).to_contain_text("invalid pairing code")


def test_an_operator_who_does_not_answer_is_told_of(aging: Aging) -> None:
    """The contract's message for the end of the decision window, in the browser and at the terminal."""
    expect(aging.waiting.locator("#code-error")).to_contain_text("pairing expired on approval", timeout=35_000)
    aging.claimed.wait_for("pairing expired on approval")


def test_the_time_left_is_the_engine_s(visitor: Visitor, host: Host) -> None:
    """A browser whose clock is three hours ahead, and then jumps, counts down right and is not signed out by it.

    A new tab of it has not heard of the engine's clock yet, and is signed in with the first.
    """
    page, other = (visitor.context.new_page() for _ in range(2))
    for one in (page, other):
        one.clock.install(time=time.time() + 3 * 3600)
    page.goto(host.url)
    page.locator("#view-signin:visible").wait_for()
    visitor.sign_in(lifetime="10m", page=page)
    other.goto(host.url)
    other.locator("#view-home:visible").wait_for()
    expect(other.locator("#left-clock")).to_have_text(re.compile(r"9:[45]\d|10:00"))
    other.close()
    expect(page.locator("#left-clock")).to_have_text(re.compile(r"9:5\d|10:00"))
    page.clock.fast_forward(8 * 60 * 1000)
    expect(page.locator("#left-clock")).to_have_text(re.compile(r"9:[45]\d"))


class Engine:
    """The engine as the page sees it: its clock moved `ahead` by so many seconds, renewals and logouts held back."""

    def __init__(self, visitor: Visitor) -> None:
        self.ahead = 0
        self.held: list[Callable[[], None]] = []
        self.hold = False
        visitor.context.route("**/api/**", self._answer)

    def _answer(self, route: Route) -> None:
        answer = route.fetch()
        date = parsedate_to_datetime(answer.headers["date"]) + timedelta(seconds=self.ahead)
        headers = answer.headers | {"date": format_datetime(date, usegmt=True)}
        if self.hold and route.request.url.endswith(("/renew/", "/logout/")):
            self.held.append(lambda: route.fulfill(response=answer, headers=headers))
        else:
            route.fulfill(response=answer, headers=headers)

    def one_held(self, page: Page) -> Callable[[], None]:
        """Lets go of the answer held back, once there is one."""
        for _ in range(160):
            if self.held:
                break
            page.wait_for_timeout(50)
        (release,) = self.held
        return release


def look(page: Page) -> None:
    """The page comes back into view."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_a_session_ends_in_the_page_when_the_engine_s_clock_says_so(visitor: Visitor) -> None:
    """A last minute is announced; at the end the token is gone, whatever the device's clock says."""
    page = visitor.sign_in(lifetime="10m")
    engine = Engine(visitor)
    engine.ahead = 9 * 60 + 30
    look(page)
    expect(page.locator("#announce")).to_contain_text("less than a minute")
    expect(page.locator("#left-clock")).to_have_text(re.compile(r"0:[123]\d"))
    engine.ahead = 10 * 60 + 1
    look(page)
    expect(page.locator("#signin-notice")).to_have_text("Your session has expired.")
    assert visitor.kept(page) == NOTHING


def test_a_logout_wins_over_a_renewal_under_way(visitor: Visitor) -> None:
    """The new token arrives after the logout of another tab: it is dropped, and the engine knows it no more (B12)."""
    page, other = visitor.sign_in(lifetime="10m"), visitor.open()
    engine = Engine(visitor)
    engine.ahead, engine.hold = 6 * 60, True
    look(page)
    release = engine.one_held(page)
    other.click("#logout")
    expect(page.locator("#view-signin")).to_be_visible()
    release()
    page.wait_for_timeout(500)
    expect(page.locator("#view-signin")).to_be_visible()
    assert visitor.kept(page) == visitor.kept(other) == NOTHING
