"""`hatchway engine pair`: prints a code, and asks the operator about whoever claims it (sections 3.1 and 4.6)."""

from __future__ import annotations

import ipaddress
import json
import math
import os
import select
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO
from urllib.parse import urlsplit

import click

from hatchway.api.cli.groups import json_option
from hatchway.api.cli.sign_in import lifetime_option
from hatchway.api.cli.terminals import operator_terminal
from hatchway.api.client.operator import OperatorLine, operator_line
from hatchway.engine.base.text import counted

AT_THE_HOST = "run it at a terminal, where somebody can answer: by SSH with `ssh -t`, in a container with `-it`"
"""What to do where `engine pair` has no terminal."""

NO_PORT = "the engine has no port; from your own machine: hatchway open USER@HOST"


def read_permissions(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    """The permissions of a flag. Only the names of section 2.3 are accepted."""
    if text is None:
        return None
    from hatchway.engine.base.errors import InvalidRequest
    from hatchway.engine.base.permissions import parse_permissions

    try:
        return parse_permissions(text)
    except InvalidRequest as fault:
        raise click.BadParameter(fault.errors["permissions"]) from None


NAMES = "Comma-separated: SHELL, ARTIFACT, RUNTIME, WORKFLOW, AGENT, each also with :READ."

permissions_option = click.option(
    "--permissions", metavar="LIST", callback=read_permissions, help=f"{NAMES} Default: all five."
)

new_permissions_option = click.option("--permissions", metavar="LIST", callback=read_permissions, help=NAMES)
"""Without a default: what is not given stays as it is."""


@click.command(
    epilog="""\b
Examples:
  hatchway engine pair
  hatchway engine pair --permissions SHELL,RUNTIME:READ --lifetime 30m
  hatchway engine pair --qr"""
)
@permissions_option
@lifetime_option
@click.option("--qr", is_flag=True, help="Print the console's address as a QR code too.")
@json_option
def pair(permissions: tuple[str, ...] | None, lifetime: str | None, qr: bool, as_json: bool) -> None:
    """Let somebody sign in by a code, once you say yes here."""
    from hatchway.engine.base.durations import lifetime as lifetime_of
    from hatchway.engine.settings.settings import home_folder

    with operator_line(home_folder()) as line, operator_screen() as (answers, screen):
        terminal = OperatorTerminal(answers, screen, qr, as_json)
        line.send(op="pair", permissions=permissions, lifetime=lifetime_of(lifetime)[0])
        try:
            approved = terminal.follow(line)
        except KeyboardInterrupt:
            terminal.say("\nwithdrawn")
            approved = False
    if not approved:
        raise SystemExit(1)


@contextmanager
def operator_screen(advice: str = AT_THE_HOST) -> Iterator[tuple[int, TextIO]]:
    """The descriptor that answers are read from, and the stream to ask on: the terminal, wherever input and output go.

    Raises Failed with `advice` where there is no terminal, before a code is issued that nobody could approve.
    """
    with operator_terminal() as answers:
        if answers is None:
            from hatchway.api.cli.failures import Failed

            raise Failed("there is no terminal to approve a code at", (advice,))
        with os.fdopen(os.dup(answers), "w") as screen:
            yield answers, screen


class OperatorTerminal:
    """The operator's terminal: what it shows, and the one answer it gives. Nothing but 0x20 to 0x7E is ever shown."""

    def __init__(self, answers: int, screen: TextIO, qr: bool, as_json: bool) -> None:
        from hatchway.engine.pairings.codes import LAST_EVENTS  # here, as no other command needs it

        self._last_events = LAST_EVENTS
        self._input, self._screen, self._qr, self._as_json = answers, screen, qr, as_json
        self._deadline: float | None = None
        self._asked = self._counting = False

    def follow(self, line: OperatorLine) -> bool:
        """Show what happens to a code, and send the operator's answer. Returns whether it was approved."""
        while True:
            waits: list[Any] = [line, self._input] if self._asked else [line]
            ready, _, _ = select.select(waits, [], [], 1.0)
            self._tick(line)
            if line in ready:
                for event in line.read():
                    self._show(event, line)
                    if event["event"] in self._last_events:
                        return bool(event["event"] == "approved")
            elif self._input in ready:
                self._asked = False
                line.send(answer="y" if self._read_answer() else "n")
            elif not self._asked:
                self._count_down()

    def _tick(self, line: OperatorLine) -> None:
        """Called about once a second, for whoever has more to mind than the code."""

    def say(self, text: str) -> None:
        """Print a line on the terminal."""
        if self._counting:
            print("\r" + " " * 40 + "\r", end="", file=self._screen)
            self._counting = False
        print(text, file=self._screen, flush=True)

    def _show(self, event: dict[str, Any], line: OperatorLine) -> None:
        if self._as_json and event["event"] != "beat":
            from hatchway.api.cli.printing import print_json_text

            print_json_text(json.dumps(event))
        if "expires_in" in event:
            self._deadline = time.monotonic() + event["expires_in"]
        kind = event["event"]
        if kind == "issued":
            self._show_code(event)
            self._count_down()
        elif kind == "wrong_codes":
            self.say(_ascii(f"{counted(event['count'], 'wrong code', 'have')} been tried"))
        elif kind == "claimed":
            self._deadline = None
            self._ask(event, line)
        elif kind in self._last_events:
            self._end(str(event["message"]))

    def _show_code(self, event: dict[str, Any]) -> None:
        from hatchway.api.cli.printing import say

        console = event["console"]
        link = f"{console.rstrip('/')}/#pair={event['code']}" if console else None
        if not self._as_json:
            say(f"Pairing code  {event['code']}")
            say(*what_for(event))
            say(f"Console       {link or NO_PORT}")
            if console and (hint := ssh_hint(console, dict(os.environ))):
                say(f"From your own machine, first: {hint}")
        if self._qr and link:
            self._draw(link)

    def _draw(self, link: str) -> None:
        if not _can_write("\u2580\u2584\u2588", self._screen):
            self.say(f"No QR code: this terminal's encoding, {self._screen.encoding}, has no blocks to draw it with")
            return
        import segno

        segno.make(link, error="l", micro=False).terminal(out=self._screen, compact=True)

    def _ask(self, event: dict[str, Any], line: OperatorLine) -> None:
        self.say(f"Claimed from  {_ascii(self._where(event))}")
        self.say(f'User agent    "{_ascii(event["agent"])}"')
        self.say(f"Number        {_ascii(event['match'])}, which the browser must show too")
        self.say(f"Sign it in only if you are at that browser yourself. {math.ceil(event['expires_in'])} s to answer.")
        self._flush()  # what was typed before the question is no answer
        print("Approve? [y/N] ", end="", file=self._screen, flush=True)
        self._asked = True

    def _where(self, event: dict[str, Any]) -> str:
        """Where a claim came from: the address, and what is known of the way."""
        where = str(event["address"] or "http.sock")
        if event.get("local"):
            where += " (this host or a tunnel)"
        elif event.get("engine_host"):
            where += f", by the engine on {event['engine_host']}"
        return where + (f", forwarded for {event['forwarded']} as that proxy says" if event.get("forwarded") else "")

    def confirm(self, question: str) -> bool:
        """A question that is open as long as the person likes. What was typed before it is no answer."""
        self._flush()
        print(_ascii(question), end="", file=self._screen, flush=True)
        return self._read_answer()

    def _read_answer(self) -> bool:
        """One line of the terminal; end of file, or a line without an end, is a no."""
        try:
            typed = os.read(self._input, 4096)
        except OSError:  # the terminal has hung up
            typed = b""
        if not typed.endswith(b"\n"):
            self.say("")
        return typed.lower() in (b"y\n", b"yes\n")

    def _flush(self) -> None:
        with suppress(termios.error):  # the terminal is gone, with its input
            termios.tcflush(self._input, termios.TCIFLUSH)

    def _end(self, message: str) -> None:
        if self._asked:
            self.say("")
            self._flush()  # an answer that comes too late must not become the shell's next command
        self.say(_ascii(message))

    def _count_down(self) -> None:
        if self._deadline is None:
            return
        left = max(0, math.ceil(self._deadline - time.monotonic()))
        print(f"\rWaiting for a console: {left} s ", end="", file=self._screen, flush=True)
        self._counting = True


def what_for(event: dict[str, Any]) -> tuple[str, str]:
    """What a code is good for, in two lines."""
    longest = f"renewed while used, {_short(event['session_max_age'])} at most"
    return f"Permissions   {', '.join(event['permissions'])}", f"Lifetime      {_short(event['lifetime'])}, {longest}"


def _ascii(text: str) -> str:
    """Printable ASCII, all else spelled out. The engine has done so already; this end doesn't rely on it."""
    return "".join(c if " " <= c <= "~" else c.encode("unicode_escape").decode() for c in text)


def _short(seconds: int) -> str:
    if seconds % 60:
        return f"{seconds}s"
    return f"{seconds // 3600}h" if seconds % 3600 == 0 else f"{seconds // 60}m"


INNER = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16", "127.0.0.0/8")
INNER_6 = ("fc00::/7", "fe80::/10", "::1/128")
"""Networks whose addresses are not reached from outside (RFC 1918, 6598, 3927, 4193, 4291)."""


def ssh_hint(console: str, environ: dict[str, str]) -> str | None:
    """Under SSH, the command that forwards the console's port to the operator's machine.

    An address of an inner network is not named: it is how a jump host or a router reaches this host, and can't be
    reached from outside.
    """
    parts = environ.get("SSH_CONNECTION", "").split()
    if len(parts) != 4:
        return None
    host, port = urlsplit(console).hostname, urlsplit(console).port
    inner = f"[{host}]" if host and ":" in host else host
    forward = f"ssh -L {port}:{inner}:{port}"
    if _is_inner(parts[2]):
        return f"{forward} HOST, with HOST and all else as you came here"
    user = environ.get("USER") or environ.get("LOGNAME")
    target = f"{user}@{parts[2]}" if user else parts[2]
    ssh_port = "" if parts[3] == "22" else f"-p {parts[3]} "
    return f"{forward} {ssh_port}{target}"


def _is_inner(address: str) -> bool:
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return any(ip in ipaddress.ip_network(network) for network in (INNER if ip.version == 4 else INNER_6))


def _can_write(text: str, stream: TextIO) -> bool:
    try:
        text.encode(stream.encoding)
    except UnicodeEncodeError:
        return False
    return True
