"""The console in a browser that is told to keep no site data: everything works in the tab's memory, and it says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import CHROMIUM, FLAGS, KEYS, Host, Visitor

pytestmark = [pytest.mark.browser, pytest.mark.process]

NO_SITE_DATA = {"profile": {"default_content_setting_values": {"cookies": 2}}}
WORDS = "This browser keeps no site data"


@pytest.fixture
def visitor(chromium: Browser, host: Host, tmp_path: Path) -> Iterator[Visitor]:
    """Chromium with "block all cookies", which closes storage, databases, channels and locks to the page."""
    profile = tmp_path / "profile"
    (profile / "Default").mkdir(parents=True)
    (profile / "Default/Preferences").write_text(json.dumps(NO_SITE_DATA))
    context = chromium.browser_type.launch_persistent_context(profile, executable_path=CHROMIUM, args=list(FLAGS))
    try:
        yield Visitor(context, host)
    finally:
        context.close()


def blocked(page: Page) -> bool:
    return bool(page.evaluate("() => { try { sessionStorage; return false; } catch { return true; } }"))


def test_signing_in_works_and_says_what_is_not_kept(visitor: Visitor, host: Host) -> None:
    """The form is there, the session lives in memory with a visible sentence, streams and logout work."""
    page = visitor.open()
    assert blocked(page)
    expect(page.locator("#no-site-data")).to_contain_text(WORDS)
    visitor.sign_in(page=page)
    expect(page.locator("#no-site-data")).to_be_visible()
    expect(page.locator("#sessions-list li")).not_to_have_count(0)
    page.click("#logout")
    expect(page.locator("#signin-notice")).to_have_text("You are logged out.")
    assert not visitor.faults


def test_the_links_code_is_kept(visitor: Visitor, host: Host) -> None:
    """The code of the address is filled in, and signs in once the operator agrees."""
    with host.pairing() as terminal:
        page = visitor.open(f"#pair={terminal.code()}")
        expect(page.locator("#code")).to_have_value(terminal.code())
        page.click("#pair-submit")
        terminal.match_number()
        terminal.type("y\n")
        page.locator("#view-home:visible").wait_for()
    assert not visitor.faults


def test_a_key_that_cant_be_remembered_leaves_no_session(visitor: Visitor, host: Host) -> None:
    """A sentence, and no session behind it; without remembering the same key signs in."""
    page = visitor.open()
    page.set_input_files("#key-file", KEYS / "rsa2048.pkcs8.pem")
    page.check("#remember", force=True)
    page.click("#key-submit")
    expect(page.locator("#key-refusal")).to_contain_text("can't remember the key")
    assert len(visitor.asked("/api/auth/logout/")) == 1
    expect(page.locator("#remember")).not_to_be_checked()
    page.click("#key-submit")
    page.locator("#view-home:visible").wait_for()
    expect(page.locator("#sessions-list li")).to_have_count(1)
    assert not visitor.faults
