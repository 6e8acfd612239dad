"""What `hatchway open` shows of its way, and the question that it asks about the browser it has opened."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, TextIO

from hatchway.api.cli.pairing import OperatorTerminal, what_for

if TYPE_CHECKING:
    from hatchway.api.client.operator import OperatorLine
    from hatchway.api.open.pulse import Pulse
    from hatchway.api.open.tunnel import Tunnel

BROWSER = "import sys, webbrowser; sys.exit(not webbrowser.open(sys.stdin.read()))"
"""A program that reads the link from its input: it holds the pairing code, which must not be in a command line."""

BROWSER_FAILS_WITHIN = 0.3
"""Seconds that a browser has to say that it can't be opened, before it is said that it was."""


class Steps:
    """One line for each step on standard error, with its time; or JSON on standard output."""

    def __init__(self, as_json: bool) -> None:
        self._as_json, self._began = as_json, time.monotonic()
        self._unsaid: SimpleQueue[Callable[[], None]] = SimpleQueue()
        Thread(target=self._say_what_waits, daemon=True).start()

    def step(self, words: str, **facts: Any) -> None:
        """Show what has been done since the step before."""
        took, self._began = time.monotonic() - self._began, time.monotonic()
        self.say(f"{words:<56} {took:4.1f} s", **facts, seconds=round(took, 3))

    def say(self, words: str, **facts: Any) -> None:
        """Show a line that is no step."""
        from hatchway.api.cli.printing import note, print_json_text

        if self._as_json:
            import json

            print_json_text(json.dumps(facts))
            sys.stdout.flush()
        for line in words.splitlines():
            note(line)

    def told(self, what: str, seconds: float) -> None:
        """For `Tunnel.hold`; returns at once. A terminal that stands still (Ctrl-S) must not keep it from dialling."""
        if what == "back":
            words, facts = f"connected again, after {seconds:.0f} s", {"event": "back", "seconds": round(seconds, 3)}
        else:
            words = f"the connection was lost; dialling again in {seconds:.0f} s"
            facts = {"event": "lost", "seconds": seconds}
        self._unsaid.put(partial(self.say, words, **facts))

    def _say_what_waits(self) -> None:
        while True:
            self._unsaid.get()()


class OpenTerminal(OperatorTerminal):
    """Asks as `engine pair` does, about a code that a browser of this machine is to claim."""

    def __init__(self, answers: int, screen: TextIO, tunnel: Tunnel, as_json: bool, *, browser: bool) -> None:
        super().__init__(answers, screen, qr=not browser, as_json=as_json)
        self._tunnel, self._opens = tunnel, browser
        self._browser: subprocess.Popen[bytes] | None = None
        self._pulse: Pulse | None = None

    def follow_over_ssh(self) -> bool:
        """As `follow`. Raises SshFault where the connection is lost meanwhile."""
        from hatchway.api.open.pulse import Pulse
        from hatchway.engine.base.errors import EngineUnavailable

        self._pulse = Pulse(self._tunnel.attached.line)
        try:
            return self.follow(self._tunnel.attached.line)
        except (EngineUnavailable, OSError):
            raise self._tunnel.attached.lost() from None

    def _tick(self, line: OperatorLine) -> None:
        if self._pulse is not None and not self._pulse.beat():
            self.say("")
            raise self._tunnel.attached.lost()
        self._check_browser()

    def _check_browser(self, seconds: float = 0.0) -> None:
        """Raises Failed where the browser could not be opened; waits for that as long as this."""
        if self._browser is None:
            return
        with suppress(subprocess.TimeoutExpired):
            if self._browser.wait(seconds):
                from hatchway.api.cli.failures import Failed

                self.say("")
                typed = sys.argv[1:]
                place = typed.index("open") + 1
                again = shlex.join(["hatchway", *typed[:place], "--no-browser", *typed[place:]])
                raise Failed("no browser can be opened here", (f"open the link in one yourself: {again}",))
            self._browser = None

    def _show(self, event: dict[str, Any], line: OperatorLine) -> None:
        if self._pulse is not None:
            self._pulse.heard()
        super()._show(event, line)

    def _show_code(self, event: dict[str, Any]) -> None:
        from hatchway.api.cli.printing import note

        link = f"{self._tunnel.url}/#pair={event['code']}"
        if self._opens:
            self._browser = _browse(link)
            self._check_browser(BROWSER_FAILS_WITHIN)
            note(f"opened the console with code {event['code']}")
        else:
            note(f"Console       {link}")
            self._draw(link)
        for line in what_for(event):
            note(line)

    def _where(self, event: dict[str, Any]) -> str:
        """Where the claim comes from, in words. Only this user reaches a Unix socket; a port any user of the host
        does."""
        if event.get("by_socket") and event.get("dialled") == self._tunnel.near.address:
            return "127.0.0.1 (this tunnel)"
        return super()._where(event)


def _browse(link: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(  # noqa: S603 - an argument vector of our own making, no shell
        [sys.executable, "-I", "-c", BROWSER],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(link.encode())
    process.stdin.close()
    return process
