"""The console's files as they are served: what binds the page, and that it needs nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hatchway.api.http.app import make_app
from hatchway.api.http.endpoints.console import POLICY, console_files
from tests.support.fakes import Browser, virtual_engine

NAMES = sorted(console_files())
SCRIPTS = {name: file.body.decode() for name, file in console_files().items() if name.endswith(".js")}
PAGE = console_files()["index.html"].body.decode()
BINDING = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


async def test_every_file_is_bound(home: Path) -> None:
    """Policy, no sniffing, no referrer, no framing, own origin only: on the page and on each file of it."""
    async with virtual_engine(home) as engine:
        browser = Browser(make_app(engine))
        for path in ("/", *(f"/console/{name}" for name in NAMES)):
            reply = await browser.get(path)
            assert reply.status == 200, path
            assert BINDING.items() <= reply.headers.items(), path
            assert not any(name == "set-cookie" or name.startswith("access-control-") for name in reply.headers), path


async def test_a_file_that_was_not_changed_is_not_sent_again(home: Path) -> None:
    """The ETag brings 304 without a body; another one brings the file."""
    async with virtual_engine(home) as engine:
        browser = Browser(make_app(engine))
        tag = (await browser.get("/console/main.js")).headers["etag"]
        same = await browser.get("/console/main.js", headers={"if-none-match": f'"other", {tag}'})
        other = await browser.get("/console/main.js", headers={"if-none-match": '"other"'})
    assert (same.status, same.body, same.headers["etag"]) == (304, b"", tag)
    assert (other.status, other.body) == (200, SCRIPTS["main.js"].encode())


async def test_nothing_else_is_served(home: Path) -> None:
    """Only the console's own files, by exact name."""
    async with virtual_engine(home) as engine:
        browser = Browser(make_app(engine))
        for name in (
            "nothing.js",
            "..",
            "%2e%2e%2fhttp%2fconsole.py",
            "__init__.py",
            "main.js.map",
            "../http/console.py",
        ):
            reply = await browser.get(f"/console/{name}")
            assert (reply.status, reply.headers["content-type"]) == (404, "application/problem+json"), name


def test_the_policy_is_as_decided() -> None:
    """Rule B1's words, and none that loosen it."""
    for directive in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"):
        assert directive in POLICY
    assert "require-trusted-types-for 'script'" in POLICY
    assert "unsafe" not in POLICY
    assert "*" not in POLICY


def test_the_page_needs_nothing_from_elsewhere() -> None:
    """Every address in the page is a file of ours, nothing is inline, and every import is there."""
    named = re.findall(r'(?:src|href)="([^"]*)"', PAGE)
    assert named
    assert all(name.startswith("/console/") and name.removeprefix("/console/") in NAMES for name in named)
    assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son[a-z]+=", PAGE)
    for name, text in SCRIPTS.items():
        for imported in re.findall(r'from "([^"]+)"', text):
            assert imported.removeprefix("./") in SCRIPTS, f"{name} imports {imported}"


def test_below_a_path_the_page_says_what_is_wrong() -> None:
    """Where a proxy serves the page under a path, its files aren't found: only what our style sheet hides is shown."""
    assert re.search(r'<p class="misplaced">[^<]*can\'t be served under a path', PAGE)
    assert ".misplaced { display: none }" in console_files()["base.css"].body.decode()


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_no_script_parses_text_as_markup_or_keeps_anything(name: str) -> None:
    """Text is set as text, nothing is evaluated, and only the vault opens a database."""
    text = SCRIPTS[name]
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\bimport\(", text
    )
    assert not re.search(
        r"localStorage|document\.cookie|cookieStore|https?://(?!www\.w3\.org/2000/svg|127\.0\.0\.1)", text
    )
    assert ("indexedDB" in text) == (name == "vault.js")


def test_every_element_a_script_looks_up_is_in_the_page() -> None:
    """An `id` is not mistyped, and none stands twice."""
    ids = re.findall(r'\bid="([^"]+)"', PAGE)
    assert len(ids) == len(set(ids))
    for name, text in SCRIPTS.items():
        for wanted in re.findall(r'byId\("([^"]+)"\)', text):
            assert wanted in ids or f'id: "{wanted}"' in "".join(SCRIPTS.values()), f"{name} looks for #{wanted}"
