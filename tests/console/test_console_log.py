"""An instance's log in the console, over connections that end otherwise than the log does."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.support.browser import INSTANCE, Visitor

pytestmark = [pytest.mark.browser, pytest.mark.process]

LOGS = """
const real = window.fetch;
window.logs = [];
window.fetch = (path, options) => {
  if (!path.includes("/log/")) return real(path, options);
  const log = {open: true};
  const body = new ReadableStream({start: (stream) => { log.stream = stream; }, cancel: () => { log.open = false; }});
  const text = new TextEncoder();
  log.write = (words) => log.stream.enqueue(text.encode(words));
  options.signal.addEventListener("abort", () => {
    if (log.open) log.stream.error(new DOMException("aborted", "AbortError"));
    log.open = false;
  });
  window.logs.push(log);
  return Promise.resolve(new Response(body, {headers: {"Content-Type": "text/plain; charset=utf-8"}}));
};
"""
"""The engine's logs, written by the test: each answer that the page asked for, in order."""


def opened(visitor: Visitor) -> tuple[Page, Locator]:
    """A page with the log of an instance open, and the instance's row."""
    visitor.context.add_init_script(LOGS)
    one = {"identity": "one", "state": "running", "image": "box.sif", "host": "ash", "host_answers": True}
    visitor.context.route(f"**{INSTANCE}", lambda route: route.fulfill(json={"instances": [one]}))
    page = visitor.open()
    page.clock.install()
    visitor.sign_in(page=page)
    row = page.locator("#instances-list [data-key=one]")
    row.get_by_role("button", name="Log").click()
    expect(row.locator(".hint")).to_have_text("Following.")
    return page, row


def asked(page: Page, count: int) -> None:
    """So many times the log was asked for."""
    page.wait_for_function("(count) => window.logs.length === count", arg=count)


def test_a_log_whose_engine_hung_up_is_followed_again(visitor: Visitor) -> None:
    """That is no end of the instance, and is not called so; the log stands there once, and ends where it ends."""
    page, row = opened(visitor)
    page.evaluate("window.logs[0].write('line 1\\n')")
    expect(row.get_by_role("log")).to_have_text("line 1\n")
    page.evaluate("window.logs[0].stream.error(new TypeError('network error'))")
    expect(row.locator(".hint")).to_contain_text("The engine hung up. The instance may run on")
    expect(row.get_by_role("log")).to_have_text("line 1\n")
    page.clock.fast_forward(1_500)
    asked(page, 2)
    expect(row.locator(".hint")).to_have_text("Following.")
    page.evaluate("window.logs[1].write('line 1\\nline 2\\n')")
    expect(row.get_by_role("log")).to_have_text("line 1\nline 2\n")
    page.evaluate("window.logs[1].stream.close()")
    expect(row.locator(".hint")).to_have_text("The log has ended.")
    page.clock.fast_forward(30_000)
    asked(page, 2)


def test_a_hidden_page_keeps_no_log_s_connection(visitor: Visitor) -> None:
    """A browser has few of them. Seen again, the page follows again."""
    page, row = opened(visitor)
    for hidden in (True, False):
        page.evaluate(
            """(hidden) => {
                 Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
                 document.dispatchEvent(new Event("visibilitychange"));
               }""",
            hidden,
        )
        page.wait_for_function("() => !window.logs[0].open")
    asked(page, 2)
    expect(row.locator(".hint")).to_have_text("Following.")
    row.get_by_role("button", name="Log").click()
    page.wait_for_function("() => !window.logs[1].open")


def test_a_log_is_followed_anew_after_the_engine_was_silent(visitor: Visitor) -> None:
    """Its connection may be dead, and a log that is not written says nothing: the list tells of the return."""
    page, _ = opened(visitor)
    page.route(f"**{INSTANCE}", lambda route: route.abort())
    page.clock.fast_forward(5_000)
    expect(page.locator("#instances-problem")).to_contain_text("the engine does not answer")
    page.unroute(f"**{INSTANCE}")
    page.clock.fast_forward(5_000)
    asked(page, 2)
    page.wait_for_function("() => !window.logs[0].open && window.logs[1].open")
    visitor.faults[:] = [fault for fault in visitor.faults if "ERR_FAILED" not in fault]
