"""A real engine process, an operator at a real terminal, headless Chromium: what the console's tests are made of."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect, sync_playwright

from hatchway.engine.keys.keys import read_private_key
from tests.support.command import HATCHWAY, completed
from tests.support.containers import IMAGE
from tests.support.fakes import ROOT, signed
from tests.support.forked import RunningCommand
from tests.support.ports import free_port
from tests.support.processes import begin_engine, wait_answering
from tests.support.terminal import at_terminal

KEYS = ROOT / "tests" / "data" / "own" / "keys"
INSTANCE = "/api/platform/singularity/instance/"
CHROMIUM = "/usr/bin/chromium"
"""The whole browser, with a profile that has settings."""

PAGES_ONLY = shutil.which("chromium-headless-shell") or CHROMIUM
"""The same Chromium without windows and settings, where it is installed: it takes half the CPU time."""

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP engine.lan 127.0.0.1",
)
PATIENCE = 45_000
"""Milliseconds a step in the browser may take on a busy machine."""


class Host:
    """The machine an engine runs on: its folder, its process, its operator's commands."""

    def __init__(self, home: Path) -> None:
        self.home, self.port = home, free_port()
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith(("HATCHWAY_", "SSH_"))}
        self.environ |= {
            "HATCHWAY_HOME": str(home),
            "HATCHWAY_ADDRESSES": f"engine.lan:{self.port}",
            "HATCHWAY_IMAGE_FOLDERS": str(home.parent / "images"),
            "HATCHWAY_ALLOW_ROOT_INSTANCES": "true",
            "TERM": "dumb",
        }
        self._process: RunningCommand | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def command(self, *arguments: str) -> str:
        """What a command prints; a failed one fails the test."""
        done = completed(self.environ, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self) -> None:
        """Starts the engine and waits until it answers."""
        log = self.home.parent / "engine.log"
        self._process = begin_engine(self.environ, log, self.port)
        wait_answering(self._process, self.url, log)

    def stop(self) -> None:
        """Ends the engine, and first what a test left running under it."""
        if self._process is not None and self._process.poll() is None:
            self._end_instances()
            self._process.terminate()
            self._process.wait(20)

    def _end_instances(self) -> None:
        own = read_private_key((self.home / "private-key.pem").read_bytes())
        with httpx.Client(base_url=self.url, timeout=60) as client:
            nonce = client.get("/api/auth/challenge/").json()["nonce"]
            token = client.post("/api/auth/verify/", json=signed(nonce, own)).json()["token"]
            client.headers["Authorization"] = f"Bearer {token}"
            for instance in client.get(INSTANCE).json()["instances"]:
                if instance["ended_at"] is None:
                    client.delete(f"{INSTANCE}{instance['identity']}/")

    @contextmanager
    def pairing(self, *options: str) -> Iterator[Terminal]:
        """`hatchway engine pair` at a terminal of its own."""
        terminal = Terminal(HATCHWAY, ["engine", "pair", *options], self.environ)
        try:
            yield terminal
        finally:
            terminal.close()


class Terminal:
    """A command at a real pseudo-terminal, and the person who reads and types there."""

    def __init__(self, program: Sequence[str], arguments: Sequence[str], environ: Mapping[str, str]) -> None:
        self._process, self._master = at_terminal(program, arguments, environ)
        self.shown = ""

    def wait_for(self, pattern: str, seconds: float = 15) -> re.Match[str]:
        """Reads until the screen has shown `pattern`."""
        until = time.monotonic() + seconds
        while (found := re.search(pattern, self.shown)) is None:
            left = until - time.monotonic()
            ready, _, _ = select.select([self._master], [], [], max(left, 0))
            assert ready, f"the terminal never showed {pattern!r}: {self.shown!r}"
            self.shown += self._read().decode()
        return found

    def _read(self) -> bytes:
        try:
            data = os.read(self._master, 65536)
        except OSError:
            data = b""  # Linux's end of file: the command has gone
        assert data, f"the command ended: {self.shown!r}"
        return data

    def code(self) -> str:
        return self.wait_for(r"Pairing code\s+([0-9A-Z]{8})")[1]

    def match_number(self) -> str:
        """The number beside the question, once somebody has claimed the code."""
        number = self.wait_for(r"Number\s+(\d\d)")[1]
        self.wait_for(r"Approve\? \[y/N\] ")
        return number

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait(10)
        os.close(self._master)


class Visitor:
    """A person with a browser profile; what the page asked for and what went wrong in it is kept."""

    def __init__(self, context: BrowserContext, host: Host) -> None:
        self.context, self.host = context, host
        self.requests: list[Request] = []
        self.faults: list[str] = []
        context.set_default_timeout(PATIENCE)
        context.on("request", lambda request: self.requests.append(request))
        context.on("weberror", lambda error: self.faults.append(str(error.error)))
        context.on("console", self._console)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.faults.append(message.text)

    def open(self, rest: str = "", base: str | None = None) -> Page:
        """A new tab at the console, once it shows something."""
        page = self.context.new_page()
        page.goto((base or self.host.url) + rest)
        page.locator("#view-signin:visible, #view-home:visible").wait_for()
        return page

    def sign_in(self, key: str | Path = "rsa2048.pkcs8.pem", lifetime: str = "1h", page: Page | None = None) -> Page:
        """Signed in with a private key's file."""
        page = page or self.open()
        page.set_input_files("#key-file", KEYS / key)
        page.fill("#lifetime", lifetime)
        page.click("#key-submit")
        page.locator("#view-home:visible").wait_for()
        return page

    def pair(self, terminal: Terminal, page: Page | None = None) -> Page:
        """Signed in with a code that the operator approved."""
        page = page or self.open()
        page.check("input[value=pair]", force=True)
        page.fill("#code", terminal.code())
        page.click("#pair-submit")
        expect(page.locator("#match")).to_have_text(terminal.match_number())
        terminal.type("y\n")
        page.locator("#view-home:visible").wait_for()
        return page

    def asked(self, path: str) -> list[Request]:
        """The requests for a path."""
        return [request for request in self.requests if path in request.url]

    def kept(self, page: Page) -> dict[str, object]:
        """What the profile holds: names in each kind of storage."""
        stored: dict[str, object] = page.evaluate(
            """async () => ({
                 local: Object.keys(localStorage),
                 session: Object.keys(sessionStorage),
                 cookie: document.cookie,
                 databases: (await indexedDB.databases()).map(({name}) => name),
               })"""
        )
        return stored | {"cookies": self.context.cookies()}


NOTHING = {"local": [], "session": [], "cookie": "", "databases": [], "cookies": []}


@contextmanager
def running_host(folder: Path, **environ: str) -> Iterator[Host]:
    """A running engine: `rsa2048` has the five permissions, `rsa3072` may look at instances; its own key has MASTER."""
    host = Host(folder / "hatchway")
    host.environ |= environ
    (folder / "images").mkdir()
    if IMAGE.exists():
        shutil.copy(IMAGE, folder / "images" / "box.sif")
    host.command("key", "register", str(KEYS / "rsa2048.spki.pub"))
    host.command("key", "register", str(KEYS / "rsa3072.spki.pub"), "--permissions", "SHELL,RUNTIME:READ")
    host.start()
    try:
        yield host
    finally:
        host.stop()


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """Debian's Chromium, headless."""
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PAGES_ONLY, args=list(FLAGS))
        yield browser
        browser.close()


@contextmanager
def visiting(chromium: Browser, host: Host, **looks: Any) -> Iterator[Visitor]:
    """Somebody with a fresh browser profile; at the end no script has failed and nothing broke the policy."""
    context = chromium.new_context(**({"viewport": {"width": 1280, "height": 860}} | looks))
    visitor = Visitor(context, host)
    yield visitor
    context.close()
    assert visitor.faults == []
