"""The console for everybody: no finding of axe-core, the keyboard alone, a narrow screen (WCAG 2.2)."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import KEYS, Host, Visitor, visiting
from tests.support.node_packages import node_package

pytestmark = [pytest.mark.browser, pytest.mark.process]

AXE = "axe-core@4.14.1"


@pytest.fixture(scope="module")
def axe() -> str:
    """axe-core's script."""
    return (node_package(AXE) / "node_modules" / "axe-core" / "axe.min.js").read_text()


def findings(page: Page, axe: str) -> list[str]:
    """What axe-core finds in the page as it is now."""
    page.evaluate(axe)
    found: list[dict[str, Any]] = page.evaluate("axe.run().then(({violations}) => violations)")
    return [f"{one['id']}: {node['html']} {node['failureSummary']}" for one in found for node in one["nodes"]]


def fits(page: Page) -> bool:
    """Nothing sticks out at the side."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


@pytest.mark.node
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_axe_finds_nothing(chromium: Browser, host: Host, axe: str, scheme: str, width: int) -> None:
    """Each view, with its errors and questions open, in both schemes, wide and narrow; nothing sticks out."""
    with visiting(chromium, host) as visitor:
        page = visitor.open()
        page.set_viewport_size({"width": width, "height": 860})
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
        page.set_input_files("#key-file", KEYS / "ec.pem")
        expect(page.locator("#key-error")).to_be_visible()
        shown = {"sign-in": findings(page, axe)}
        page.set_input_files("#key-file", KEYS / "rsa2048.enc-pkcs8.pem")
        expect(page.locator("#passphrase")).to_be_focused()
        shown["passphrase"] = findings(page, axe)
        page.check("input[value=pair]", force=True)
        page.click("#pair-submit")
        shown["pairing"] = findings(page, axe)
        with host.pairing() as terminal:
            page.fill("#code", terminal.code())
            page.click("#pair-submit")
            terminal.match_number()
            shown["waiting"] = findings(page, axe)
            page.click("#wait-cancel")
        page.check("input[value=key]", force=True)
        visitor.sign_in(host.home / "private-key.pem", page=page)
        page.locator("#charts figure").nth(2).wait_for()
        page.locator("#sessions-list li").first.wait_for()
        page.click("#start-open")
        page.click("#start-form button.main")
        expect(page.locator("#start-image-error")).to_be_visible()
        if width > 600:  # a list of states stands in the picture's and the table's place
            page.locator("#charts summary").first.click()
        shown["home"] = findings(page, axe)
        assert fits(page)
        page.click("#everywhere")
        expect(page.get_by_role("dialog")).to_be_visible()
        shown["dialog"] = findings(page, axe)
    assert {view: found for view, found in shown.items() if found} == {}


def test_the_keyboard_is_enough(visitor: Visitor) -> None:
    """Arrows switch the method, Tab goes through the form in its order, Enter signs in, Escape leaves a question."""
    page = visitor.open()
    expect(page.locator("#signin-title")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#pair-form")).to_be_visible()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#key-form")).to_be_visible()
    page.set_input_files("#key-file", KEYS / "rsa2048.pkcs8.pem")
    expect(page.locator("#key-submit")).to_be_focused()
    for wanted in ("remember", "lifetime", "key-change"):
        page.keyboard.press("Shift+Tab")
        expect(page.locator(f"#{wanted}")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#home-title")).to_be_focused()
    page.locator("#everywhere").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#confirm-no")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#everywhere")).to_be_focused()
    expect(page.locator("#view-home")).to_be_visible()


def test_a_file_that_was_chosen_by_mistake_is_put_back(visitor: Visitor) -> None:
    """One with a passphrase too, which is asked for before the key can be shown; also while it is being unlocked."""
    page = visitor.open()
    page.set_input_files("#key-file", KEYS / "rsa2048.enc-pkcs8.pem")
    expect(page.locator("#passphrase")).to_be_focused()
    page.locator("#key-other").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#key-file")).to_be_focused()
    expect(page.locator("#key-locked")).to_be_hidden()
    page.set_input_files("#key-file", KEYS / "rsa2048.enc-pkcs8.pem")
    page.fill("#passphrase", "x")
    page.evaluate("['key-unlock', 'key-other'].forEach((id) => document.getElementById(id).click())")
    page.click("#key-submit")
    expect(page.locator("#key-error")).to_have_text("Choose a private key first.")
    page.set_input_files("#key-file", KEYS / "rsa2048.pkcs8.pem")
    expect(page.locator("#key-name")).to_have_text("rsa2048.pkcs8.pem")


AMISS = """() => {
  const amiss = [];
  const seen = (node) => node.checkVisibility() && !node.closest(".sr");
  for (const node of document.querySelectorAll("[aria-describedby], [aria-labelledby], [aria-controls]"))
    for (const kind of ["aria-describedby", "aria-labelledby", "aria-controls"])
      for (const id of (node.getAttribute(kind) ?? "").split(" ").filter(Boolean))
        if (!document.getElementById(id)) amiss.push(`${node.id}: ${kind} ${id}, which is not there`);
  for (const node of document.querySelectorAll("button, select, summary, input, [tabindex='0']")) {
    const {width, height} = node.getBoundingClientRect();
    const small = width < 24 || height < 24;
    if (seen(node) && small && !node.closest("label"))
      amiss.push(`${node.id || node.textContent}: ${width} x ${height}`);
  }
  for (const node of document.querySelectorAll("figure"))
    if (!document.getElementById(node.getAttribute("aria-labelledby"))) amiss.push("a figure without a name");
  const names = [...document.querySelectorAll("button, summary")].filter(seen)
    .map((node) => node.getAttribute("aria-label") ?? node.textContent);
  amiss.push(...names.filter((name, place) => names.indexOf(name) !== place).map((name) => `${name}: twice`));
  return amiss;
}"""
"""References to nothing, targets and tab stops below 24 pixels, figures without a name, names given twice."""


def test_all_is_named_and_large_enough(visitor: Visitor, chromium: Browser, host: Host) -> None:
    """Each control has a name of its own, each reference something that it points at, and nobody stops at nothing."""
    page = visitor.open()
    page.set_input_files("#key-file", KEYS / "rsa2048.enc-pkcs8.pem")
    expect(page.locator("#passphrase")).to_be_focused()
    assert page.evaluate(AMISS) == []
    page.click("#key-other")
    page.set_input_files("#key-file", KEYS / "rsa2048.pkcs8.pem")
    expect(page.locator("#key-submit")).to_be_focused()
    assert page.evaluate(AMISS) == []
    with visiting(chromium, host) as one, visiting(chromium, host) as other:
        one.sign_in()
        page.wait_for_timeout(1000)  # two sign-ins of one second are told apart by nothing but their names
        other.sign_in()
        page.click("#key-change")
        visitor.sign_in(host.home / "private-key.pem", page=page)
        page.locator("#charts figure").nth(2).wait_for()
        page.locator("#sessions-list button").nth(1).wait_for()
        page.click("#start-open")
        page.click("#start-more summary")
        assert page.evaluate(AMISS) == []
        page.click("#past-open")
        expect(page.locator("#past-now")).not_to_be_empty()
        assert page.evaluate(AMISS) == []


def test_what_is_wrong_is_marked_as_such(visitor: Visitor) -> None:
    """A code and a passphrase that were refused, until they are typed anew."""
    page = visitor.open()
    page.set_input_files("#key-file", KEYS / "rsa2048.enc-pkcs8.pem")
    page.fill("#passphrase", "wrong")
    page.keyboard.press("Enter")
    expect(page.locator("#passphrase")).to_have_attribute("aria-invalid", "true")
    page.fill("#passphrase", "other")
    expect(page.locator("#passphrase")).to_have_attribute("aria-invalid", "false")
    page.check("input[value=pair]", force=True)
    page.click("#pair-submit")
    expect(page.locator("#code")).to_have_attribute("aria-invalid", "true")
    page.fill("#code", "A")
    expect(page.locator("#code")).to_have_attribute("aria-invalid", "false")


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_s_width_is_enough(visitor: Visitor, width: int) -> None:
    """No sideways scrolling, and what is pressed is at least 24 pixels high and wide."""
    page = visitor.open()
    page.set_viewport_size({"width": width, "height": 700})
    assert fits(page)
    visitor.sign_in(page=page)
    page.locator("#sessions-list li").first.wait_for()
    assert fits(page)
    small = page.evaluate(
        """[...document.querySelectorAll("button, input, summary")].filter((one) => one.offsetParent).map((one) => {
             const {width, height} = one.getBoundingClientRect();
             return width < 24 || height < 24 ? one.id || one.textContent : null;
           }).filter(Boolean)"""
    )
    assert small == []
