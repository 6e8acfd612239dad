"""Debian's Firefox, headless, driven by puppeteer over WebDriver BiDi (`tests/console/firefox.mjs`)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.browser import KEYS
from tests.support.fakes import ROOT
from tests.support.node_packages import node_package

PUPPETEER = "puppeteer-core@24.43.1"


class Firefox:
    """A person with a profile of Firefox's."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the driver ended"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["value"]

    def ask(self, action: str, *arguments: Any) -> Any:
        """One action of the driver's; one that fails, or takes 45 s, fails the test."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([action, *arguments]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def open(self, url: str) -> Tab:
        """A new tab at the console, once it shows something."""
        return Tab(self, self.ask("open", url))

    def faults(self) -> list[str]:
        """Errors of scripts, and what broke the content policy."""
        found: list[str] = self.ask("faults")
        return found


class Tab:
    """A tab; each method waits until its element is to be seen."""

    def __init__(self, firefox: Firefox, number: int) -> None:
        self._firefox, self._number = firefox, number

    def _ask(self, action: str, *arguments: Any) -> Any:
        return self._firefox.ask(action, self._number, *arguments)

    def see(self, selector: str) -> None:
        self._ask("see", selector)

    def says(self, selector: str, words: str) -> None:
        """Waits until the element's text holds the words."""
        self._ask("says", selector, words)

    def text(self, selector: str) -> str:
        return str(self._ask("text", selector))

    def click(self, selector: str) -> None:
        self._ask("click", selector)

    def fill(self, selector: str, text: str) -> None:
        self._ask("fill", selector, text)

    def choose(self, selector: str) -> None:
        """A radio button or a box to check."""
        self._ask("choose", selector)

    def evaluate(self, text: str) -> Any:
        """What an expression of JavaScript is worth in the page."""
        return self._ask("evaluate", text)

    def choose_key(self, key: str | Path = "rsa2048.pkcs8.pem") -> None:
        self._ask("file", "#key-file", str(KEYS / key))

    def sign_in(self, key: str | Path = "rsa2048.pkcs8.pem") -> None:
        """Signed in with a private key's file."""
        self.choose_key(key)
        self.click("#key-submit")
        self.see("#view-home")


@contextmanager
def running_firefox(profile: Path, **preferences: Any) -> Iterator[Firefox]:
    """A Firefox of its own, with settings as about:config has them, each point of a name written as two underscores."""
    modules = node_package(PUPPETEER)
    named = {name.replace("__", "."): value for name, value in preferences.items()}
    command = ["node", str(ROOT / "tests/console/firefox.mjs"), str(modules), str(profile), json.dumps(named)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Firefox(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()  # the driver then closes the browser, and ends
            try:
                process.wait(20)
            finally:
                process.kill()
