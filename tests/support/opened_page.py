"""`hatchway open` at a terminal, and the console that it opens in Chromium."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.support.browser import Terminal
from tests.support.processes import HATCHWAY
from tests.support.waits import until


@contextmanager
def opened(folder: Path, host: str, config: Path, **environ: str) -> Iterator[tuple[Terminal, Path]]:
    """The command at a terminal, and the file that its browser writes the link to."""
    folder.mkdir(exist_ok=True)
    browser, link = folder / "browser", folder / "link"
    browser.write_text(f'#!/bin/sh\nprintf "%s" "$1" > {link}.part && mv {link}.part {link}\n')
    browser.chmod(0o755)
    link.unlink(missing_ok=True)
    own = {"HATCHWAY_HOME": str(folder / "laptop"), "BROWSER": f"{browser} %s", "TERM": "dumb"}
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    terminal = Terminal(HATCHWAY, ["open", host, "--", "-F", str(config)], kept | own | environ)
    try:
        yield terminal, link
    finally:
        terminal.close()


def sign_in(chromium: Browser, terminal: Terminal, link: Path) -> Page:
    """A browser with a fresh profile at the link: the console's own claim, the person's `y`."""
    until(link.exists, what="the browser to be opened")
    page = chromium.new_context().new_page()
    page.goto(link.read_text())
    page.click("#pair-submit")
    expect(page.locator("#match")).to_have_text(terminal.match_number())
    terminal.type("y\n")
    page.locator("#view-home:visible").wait_for()
    terminal.wait_for("Ctrl-C closes it")
    return page
