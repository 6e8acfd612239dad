"""Sign-in by pairing code: a real browser, a real engine, and an operator at a real terminal (sections 3.1 and 4.4)."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.support.browser import NOTHING, Host, Visitor

pytestmark = [pytest.mark.browser, pytest.mark.process]

CLAIM = "/api/auth/pair/request/"


def test_an_approved_code_signs_in_and_the_browser_keeps_nothing(visitor: Visitor, host: Host) -> None:
    """Both show one number; permissions and lifetime are the operator's; with the last tab everything is gone (D40)."""
    with host.pairing("--permissions", "SHELL,RUNTIME:READ", "--lifetime", "30m") as terminal:
        page = visitor.pair(terminal)
        terminal.wait_for("approved")
    expect(page.locator("#facts")).to_contain_text("pairing code")
    expect(page.locator("#facts .chips li")).to_have_text(["SHELL", "RUNTIMEread only"])
    expect(page.locator("#left-hint")).to_contain_text("It lasts 30 min")
    expect(page.locator("#instances")).to_be_visible()
    expect(page.locator("#start-open")).to_be_hidden()
    expect(page.locator("#live")).to_be_hidden()
    assert visitor.kept(page) == NOTHING | {"session": ["hatchway.session"]}
    page.close()
    again = visitor.open()
    expect(again.locator("#view-signin")).to_be_visible()
    assert visitor.kept(again) == NOTHING


def test_a_rejected_code_is_told_in_the_engine_s_words(visitor: Visitor, host: Host) -> None:
    """The form is back, empty, with the contract's message."""
    page = visitor.open()
    with host.pairing() as terminal:
        page.check("input[value=pair]", force=True)
        page.fill("#code", terminal.code())
        page.keyboard.press("Enter")
        terminal.match_number()
        expect(page.locator("#wait-clock")).to_have_text(re.compile(r"0:[0-3]\d left to answer"))
        terminal.type("n\n")
        expect(page.locator("#code-error")).to_contain_text("invalid pairing code")
    expect(page.locator("#code")).to_have_value("")
    assert visitor.kept(page) == NOTHING


SLOW_DATABASE = """
const open = IDBFactory.prototype.open;
IDBFactory.prototype.open = function (...given) {
  const request = open.apply(this, given);
  for (const name of ["success", "error"]) {
    const later = (call) => (event) => {
      event.preventDefault();
      setTimeout(() => { call(event); setTimeout(() => { document.documentElement.dataset.looked = ""; }); }, 300);
    };
    Object.defineProperty(request, `on${name}`, { set: (call) => request.addEventListener(name, later(call)) });
  }
  return request;
};
"""
"""The browser's database takes its time; the page says `looked` once it has answered the page."""


def test_what_is_chosen_while_the_page_still_looks_stays_chosen(visitor: Visitor) -> None:
    """That a key is remembered is found out later than the page is there: it changes nothing chosen since."""
    visitor.context.add_init_script(SLOW_DATABASE)
    page = visitor.open()
    page.check("input[value=pair]", force=True)
    page.locator("html[data-looked]").wait_for(state="attached")
    expect(page.locator("input[value=pair]")).to_be_checked()
    expect(page.locator("#pair-form")).to_be_visible()


def test_a_wrong_code_and_one_that_can_be_none_are_told_apart(visitor: Visitor) -> None:
    """What can't be a code is never sent; a wrong one gets the contract's message and stays to be corrected."""
    page = visitor.open()
    page.check("input[value=pair]", force=True)
    for text in ("", "ABC", "ABCD-EFGU", "ABCDEFGH9", "<img src=x>"):
        page.fill("#code", text)
        page.click("#pair-submit")
        expect(page.locator("#code-error")).to_contain_text("has 8 letters and digits")
    assert not visitor.asked(CLAIM)
    page.fill("#code", "0000-0000")
    page.click("#pair-submit")
    expect(page.locator("#code-error")).to_contain_text("invalid pairing code")
    expect(page.locator("#code")).to_have_value("0000-0000")


def test_a_code_in_the_address_is_filled_in_and_nothing_more(visitor: Visitor, host: Host) -> None:
    """Prefilled, never sent by itself; the address is clean at once, and no Back button shows the code (B4, D39)."""
    page = visitor.context.new_page()
    page.goto("about:blank")
    with host.pairing() as terminal:
        code = terminal.code()
        page.goto(f"{host.url}#pair={code}")
        expect(page.locator("#code")).to_have_value(code)
        expect(page.locator("#code-prefilled")).to_be_visible()
        assert page.url == host.url
        assert page.evaluate("history.length") == 2
        page.evaluate("location.hash = '#pair=ZZZZ-ZZZZ'")
        expect(page.locator("#code")).to_have_value("ZZZZ-ZZZZ")
        page.go_back()
        assert page.url == host.url
        page.goto("about:blank")
        page.go_back()
        page.locator("#view-signin:visible").wait_for()
        expect(page.locator("#code")).to_have_value("")
        assert "pair" not in page.url
        page.reload()
        page.locator("#view-signin:visible").wait_for()
        expect(page.locator("#code")).to_have_value("")
        assert not visitor.asked(CLAIM)
        assert code not in " ".join(request.url for request in visitor.requests if "#" not in request.url)
        visitor.pair(terminal, page)  # and it was not used up


def test_a_link_s_code_is_not_swallowed_by_a_session(visitor: Visitor, host: Host) -> None:
    """Who is signed in already is told that the code was not used, whether the link is opened there or in a new tab."""
    page = visitor.sign_in()
    page.evaluate("location.hash = '#pair=ZZZZ-ZZZZ'")
    other = visitor.open("#pair=ZZZZ-ZZZZ")
    for one in (page, other):
        expect(one.locator("#home-notice")).to_contain_text("You are signed in already")
        assert one.url == host.url
    page.click("#logout")
    visitor.sign_in(page=page)
    expect(page.locator("#home-notice")).to_be_hidden()


@pytest.mark.parametrize("detail", ["too many tries: wait 58 s", "too many sign-ins wait"])
def test_how_long_to_wait_is_said_once(visitor: Visitor, detail: str) -> None:
    """By the engine's sentence, or else by the header beside it."""
    page = visitor.open()
    problem = {"code": "too_many_requests", "detail": detail}
    page.route(f"**{CLAIM}", lambda route: route.fulfill(status=429, json=problem, headers={"retry-after": "58"}))
    page.check("input[value=pair]", force=True)
    page.fill("#code", "0000-0000")
    page.click("#pair-submit")
    expect(page.locator("#code-error")).to_contain_text("58 s")
    assert page.locator("#code-error").inner_text().count("58 s") == 1


def test_a_code_is_read_as_people_type_it(visitor: Visitor, host: Host) -> None:
    """Lower case, hyphens and spaces, O for 0 and l for 1; a double click claims once."""
    page = visitor.open()
    page.check("input[value=pair]", force=True)
    with host.pairing() as terminal:
        code = terminal.code()
        typed = f" {code[:4]}\u2013{code[4:]}".lower().replace("0", "o").replace("1", "l")
        page.fill("#code", typed)
        page.dblclick("#pair-submit")
        terminal.match_number()
        assert len(visitor.asked(CLAIM)) == 1
        terminal.type("y\n")
        expect(page.locator("#view-home")).to_be_visible()
    assert len(visitor.asked(CLAIM)) == 1


@pytest.mark.parametrize("leave", ["#wait-cancel", "reload"])
def test_a_browser_that_leaves_ends_its_claim(visitor: Visitor, host: Host, leave: str) -> None:
    """The terminal says so, no session is made, and the page asks for a new code."""
    page = visitor.open()
    page.check("input[value=pair]", force=True)
    with host.pairing() as terminal:
        page.fill("#code", terminal.code())
        page.click("#pair-submit")
        terminal.match_number()
        page.reload() if leave == "reload" else page.click(leave)
        expect(page.locator("#view-signin")).to_be_visible()
        terminal.wait_for("went away|left|gone")
    if leave != "reload":
        expect(page.locator("#code-error")).to_contain_text("That code is used up")
    expect(page.locator("#code")).to_have_value("")


def test_a_code_claimed_twice_is_the_first_browser_s(visitor: Visitor, host: Host) -> None:
    """The second gets the contract's message and the first is not disturbed."""
    first, second = visitor.open(), visitor.open()
    with host.pairing() as terminal:
        for page in (first, second):
            page.check("input[value=pair]", force=True)
            page.fill("#code", terminal.code())
        first.click("#pair-submit")
        terminal.match_number()
        second.click("#pair-submit")
        expect(second.locator("#code-error")).to_contain_text("invalid pairing code")
        expect(first.locator("#view-waiting")).to_be_visible()
        terminal.type("y\n")
        expect(first.locator("#view-home")).to_be_visible()
        expect(second.locator("#view-home")).to_be_visible()  # the tabs of one browser share a session
