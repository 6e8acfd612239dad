"""What the signed-in page shows while it happens: sessions, instances with their log, transitions beside the charts."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.support.browser import INSTANCE, Host, Visitor, visiting
from tests.support.containers import new_name

pytestmark = [pytest.mark.browser, pytest.mark.process]

TALK = 'i=0; while :; do i=$((i+1)); echo "line $i"; echo "fault $i" >&2; sleep 0.2; done'


@pytest.mark.apptainer
def test_an_instance_is_started_followed_and_stopped(visitor: Visitor, chromium: Browser, host: Host) -> None:
    """Its state and its log come by themselves, both streams; who may only look sees them and is offered no more."""
    page = visitor.sign_in()
    name = new_name()
    page.click("#start-open")
    page.fill("#start-image", "box.sif")
    page.fill("#start-identity", name)
    page.fill("#start-command", f"/bin/sh\n-c\n{TALK}")
    page.click("#start-form button.main")
    row = page.locator(f"#instances-list [data-key='{name}']")
    expect(row.locator(".tag")).to_have_text("running", timeout=20_000)
    expect(page.locator("#start-form")).to_be_hidden()
    row.get_by_role("button", name="Log").click()
    expect(row.get_by_role("log")).to_contain_text("line 1\n")
    expect(row.get_by_role("log")).to_contain_text("line 5\n")
    row.get_by_role("radio", name="Errors").check(force=True)
    expect(row.get_by_role("log")).to_contain_text("fault 2\n")
    with visiting(chromium, host) as reader:
        look = reader.sign_in("rsa3072.pkcs8.pem")
        seen = look.locator(f"#instances-list [data-key='{name}']")
        expect(seen.get_by_role("button", name="Log")).to_be_visible()
        expect(seen.get_by_role("button", name="Stop")).to_be_hidden()
        expect(look.locator("#start-open")).to_be_hidden()
    row.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(row.locator(".tag")).to_have_text("stopped", timeout=20_000)
    expect(row.locator(".hint")).to_have_text("The log has ended.")


def test_instances_of_several_hosts(visitor: Visitor) -> None:
    """Each says where it runs, once there is more than one host; and of a host that does not answer, so."""
    here = {"identity": "one", "state": "running", "image": "box.sif", "host": "ash", "host_answers": True}
    away = here | {"identity": "two", "host": "elm", "host_answers": False}
    told = [here]
    visitor.context.route(
        "**/api/platform/singularity/instance/", lambda route: route.fulfill(json={"instances": told})
    )
    page = visitor.sign_in()
    row = page.locator("#instances-list [data-key=one]")
    expect(row.locator(".row-facts")).to_have_text("box.sif")
    told.append(away)
    expect(row.locator(".row-facts")).to_have_text("box.sif · host ash")
    expect(page.locator("#instances-list [data-key=two] .row-facts")).to_contain_text("host elm, which does not answer")


def test_a_refused_start_names_each_field(visitor: Visitor) -> None:
    """The engine's reason stands beside the field, which has the focus; nothing that was typed is lost."""
    page = visitor.sign_in()
    page.click("#start-open")
    page.fill("#start-image", "box.sif")
    page.click("#start-more summary")
    page.fill("#start-env", "1A=x")
    page.fill("#start-memory", "much")
    page.click("#start-form button.main")
    expect(page.locator("#start-memory-error")).to_be_visible()
    expect(page.locator("#start-env-error")).to_be_visible()
    expect(page.locator("#start-memory")).to_be_focused()
    expect(page.locator("#start-env")).to_have_value("1A=x")
    for field in ("partition", "account", "time_limit"):
        expect(page.locator(f"#start-{field}")).to_be_hidden()


def test_a_queued_start_is_told_as_such(visitor: Visitor) -> None:
    """What the engine answers 202 for has not started: the form closes, and the page says that it is queued."""
    page = visitor.sign_in()
    status, entity = {"kind": "status", "payload": {"code": 0, "message": "job 7: queued"}}, {"kind": "entity"}
    items = [status, {**entity, "payload": "web"}, {**entity, "payload": {"instance": "web", "pid": 0}}]

    def answer(route: Route) -> None:
        if route.request.method == "POST":
            route.fulfill(status=202, json=items)
        else:
            route.fallback()

    page.route(f"**{INSTANCE}", answer)
    page.click("#start-open")
    page.fill("#start-image", "box.sif")
    page.click("#start-form button.main")
    expect(page.locator("#announce")).to_have_text("Instance web is queued.")
    expect(page.locator("#start-form")).to_be_hidden()


NOTE_LIT = """() => {
  window.lit = [];
  const note = (changes) => {
    for (const {target} of changes) if (target.classList.contains("lit")) window.lit.push(target.dataset.state);
  };
  new MutationObserver(note).observe(document.getElementById("charts"), {attributeFilter: ["class"], subtree: true});
}"""
"""Which states have been lit: each is for a moment only, which a busy machine may look past."""


def test_the_charts_are_lit_by_what_happens(visitor: Visitor, chromium: Browser, host: Host) -> None:
    """With MASTER: three charts, the states that are occupied lit, each transition told as it comes."""
    page = visitor.sign_in(host.home / "private-key.pem")
    expect(page.locator("#charts figure")).to_have_count(3)
    expect(page.locator("#live-state")).to_have_text("Live")
    pairing = page.locator("[data-chart=pairing]")
    session = page.locator("[data-chart=session]")
    expect(session.locator("svg [data-state=active]")).to_have_class(re.compile("held"))
    expect(session.locator(".now")).to_contain_text("active")
    page.evaluate(NOTE_LIT)
    with host.pairing() as terminal, visiting(chromium, host) as guest:
        terminal.code()
        expect(pairing.locator("svg [data-state=issued]")).to_have_class(re.compile("held"))
        expect(pairing.locator(".now")).to_have_text("1 issued")
        guest.pair(terminal)
        page.wait_for_function("() => window.lit.includes('approved')")
        expect(pairing.locator(".now")).to_have_text("none now")
        told = page.locator("#events li")
        expect(told.filter(has_text="pairing claim")).to_contain_text("issued → claimed")
        expect(told.filter(has_text="session start").first).to_contain_text("none → active")
        page.click("#stream-pause")
        count = told.count()
        guest.context.pages[-1].click("#logout")
        page.wait_for_function("() => window.lit.includes('ended')")
        assert told.count() == count
        page.click("#stream-pause")
        expect(told.filter(has_text="session logout")).to_have_count(1)


def test_the_charts_on_a_phone(visitor: Visitor, host: Host) -> None:
    """Each state stands with its rows under one another and is lit as in the picture; nothing is scrolled sideways."""
    page = visitor.open()
    page.set_viewport_size({"width": 320, "height": 800})
    visitor.sign_in(host.home / "private-key.pem", page=page)
    expect(page.locator("[data-chart=session] .states [data-state=active]")).to_have_class("held")
    expect(page.locator("[data-chart=session] .states [data-state=active] .count")).not_to_be_empty()
    with host.pairing() as terminal:
        terminal.code()
        issued = page.locator("[data-chart=pairing] .states [data-state=issued]")
        expect(issued).to_have_class("held")
        expect(issued).to_contain_text("claim [within_claim_window] → claimed")
        expect(issued).to_contain_text("claim_elapsed after 30 s → expired")
    wide = "nodes => nodes.filter(node => node.scrollWidth > node.clientWidth + 1).map(node => node.outerHTML)"
    assert page.locator("#charts figure, #charts ol, #charts ul, #charts li").evaluate_all(wide) == []
    expect(page.locator("#charts svg").first).to_be_hidden()


def test_a_code_that_was_out_before(visitor: Visitor, host: Host) -> None:
    """The page is opened while an operator waits at a terminal: the chart shows it."""
    with host.pairing() as terminal:
        terminal.code()
        page = visitor.sign_in(host.home / "private-key.pem")
        expect(page.locator("[data-chart=pairing] .now")).to_have_text("1 issued")
    expect(page.locator("[data-chart=pairing] .now")).to_have_text("none now")


def test_the_stream_is_resumed_where_it_stopped(visitor: Visitor, chromium: Browser, host: Host) -> None:
    """A hidden tab hangs up, for a browser has few connections; seen again it gets what it missed, once."""
    page = visitor.sign_in(host.home / "private-key.pem")
    expect(page.locator("#live-state")).to_have_text("Live")
    with visiting(chromium, host) as guest:
        guest.sign_in()
        told = page.locator("#events li").filter(has_text="session start")
        expect(told).to_have_count(1)
        hide(visitor, hidden=True)
        guest.context.pages[0].click("#logout")
        expect(guest.context.pages[0].locator("#view-signin")).to_be_visible()
        page.wait_for_timeout(300)
        expect(page.locator("#events li").filter(has_text="session logout")).to_have_count(0)
        hide(visitor, hidden=False)
        expect(page.locator("#events li").filter(has_text="session logout")).to_have_count(1)
    expect(told).to_have_count(1)
    resumed = [request for request in visitor.requests if request.url.endswith("/api/events/")][-1]
    assert int(resumed.all_headers()["last-event-id"]) > 0


def test_a_stream_that_has_told_nothing_is_resumed_where_it_was_opened(visitor: Visitor, host: Host) -> None:
    """It begins with the number of what happened last, and no more: what happens while the page is hidden follows."""
    page = visitor.open()
    opened: list[str | None] = []

    def answer(route: Route) -> None:
        opened.append(route.request.all_headers().get("last-event-id"))
        route.fulfill(body="retry: 2000\n\nid: 41\n\n:\n\n", content_type="text/event-stream")

    page.route("**/api/events/", answer)
    visitor.sign_in(host.home / "private-key.pem", page=page)
    while len(opened) < 2:
        with page.expect_request("**/api/events/"):
            pass
    assert opened[:2] == [None, "41"]
    expect(page.locator("#events li")).to_have_count(0)


def hide(visitor: Visitor, *, hidden: bool) -> None:
    """Headless Chromium hides no tab: the page is told that it did."""
    visitor.context.pages[0].evaluate(
        """(hidden) => {
             Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
             document.dispatchEvent(new Event("visibilitychange"));
           }""",
        hidden,
    )


def test_what_a_session_may_not_see_is_not_asked_for(visitor: Visitor, host: Host) -> None:
    """Without RUNTIME and MASTER the page shows and asks for neither instances nor transitions."""
    with host.pairing("--permissions", "SHELL") as terminal:
        page = visitor.pair(terminal)
    page.locator("#sessions-list li").first.wait_for()
    expect(page.locator("#instances")).to_be_hidden()
    expect(page.locator("#live")).to_be_hidden()
    expect(page.locator("#keys")).to_be_hidden()
    asked = {request.url.removeprefix(host.url) for request in visitor.requests if "/api/" in request.url}
    assert asked == {"api/auth/pair/request/", "api/auth/inspect/", "api/auth/sessions/"}


def test_keys_are_listed_for_master(visitor: Visitor, host: Host) -> None:
    """Each with what it may do, when it was used, and when it expires; sessions have their browser's name. From a week
    before its end the page of a key's own session tells of that."""
    key = next(row for row in json.loads(host.command("key", "list", "--json")) if row["comment"] == "rsa2048.spki")
    host.command("key", "edit", key["identity"], "--expires", "3d", "--instances", "4")
    try:
        page = visitor.sign_in()
        expect(page.locator("#facts")).to_contain_text("Expires at")
        page.click("#logout")
        visitor.sign_in(host.home / "private-key.pem", page=page)
        row = page.locator(f"#keys-list [data-key='{key['identity']}']")
        expect(row).to_contain_text("4 instances at most")
        expect(row).to_contain_text("last used")
        expect(row.locator(".tag")).to_contain_text("expires")
        expect(page.locator("#sessions-list")).to_contain_text("Chrome on Linux")
    finally:
        host.command("key", "edit", key["identity"], "--expires", "none", "--instances", "none")


def test_open_views_in_many_tabs_leave_room_for_a_logout(visitor: Visitor, host: Host) -> None:
    """A browser keeps six connections to one host: only four are held, the next views wait, and requests go on."""
    visitor.sign_in(host.home / "private-key.pem")
    for _ in range(5):
        visitor.open()
    live, waiting = split(visitor)
    assert len(waiting) == 2
    live[-1].close()  # whichever place it had
    live, waiting = split(visitor)
    assert len(waiting) == 1
    waiting[0].click("#logout")
    for page in live + waiting:
        expect(page.locator("#view-signin")).to_be_visible()
    assert [reply.status for r in visitor.asked("/api/auth/logout/") if (reply := r.response()) is not None] == [204]


def split(visitor: Visitor) -> tuple[list[Page], list[Page]]:
    """The tabs whose stream is open, once four are, and those that wait."""
    pages = visitor.context.pages
    states: list[str] = []
    for _ in range(300):
        states = [page.locator("#live-state").inner_text() for page in pages]
        if states.count("Live") == 4 and "" not in states:
            break
        pages[-1].wait_for_timeout(100)
    assert sorted(set(states)) == ["Connecting…", "Live"], states
    ones = {state: [page for page, its in zip(pages, states, strict=True) if its == state] for state in set(states)}
    assert len(ones["Live"]) == 4
    return ones["Live"], ones["Connecting…"]
