"""`hatchway login`, `logout` and `pair`: get a session, keep its token, end it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from hatchway.api.cli.groups import json_option, url_option

if TYPE_CHECKING:
    from hatchway.api.client.flows import Flows
    from hatchway.api.client.wire import SignedIn


def read_lifetime(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    """A flag's lifetime, checked; one out of range is the default of 1 hour, and said so (section 4.2)."""
    if text is None:
        return None
    from hatchway.engine.base.durations import InvalidDuration
    from hatchway.engine.base.durations import lifetime as lifetime_of

    try:
        _, fell_back = lifetime_of(text)
    except InvalidDuration as fault:
        raise click.BadParameter(fault.detail) from None
    if fell_back:
        from hatchway.api.cli.printing import note

        note(f"{text} is not between 1 minute and 24 hours: 1h is used")
    return text


lifetime_option = click.option(
    "--lifetime", metavar="DURATION", callback=read_lifetime, help="How long the session lasts: 1m to 24h. Default 1h."
)


accept_option = click.option(
    "--accept-certificate", is_flag=True, help="Pin the self-signed certificate that the engine shows now."
)


@click.command(
    epilog="""\b
Examples:
  hatchway login                                        the engine of this host, by its own key
  hatchway login --url https://engine.example --key rsa.pem --lifetime 8h
  hatchway login --url https://engine.example --agent   by a key that the SSH agent holds"""
)
@url_option()
@click.option(
    "--key", type=click.Path(dir_okay=False), help="Private key, PKCS#1 or PKCS#8 PEM; agent: is the SSH agent's."
)
@click.option(
    "--agent",
    is_flag=False,
    flag_value="",
    metavar="[FINGERPRINT | COMMENT]",
    help="A key that the SSH agent holds. Default: the first that the engine authorizes.",
)
@click.option("--label", metavar="TEXT", help="What `session list` and the console tell the session by.")
@lifetime_option
@accept_option
@json_option
def login(
    key: str | None,
    agent: str | None,
    label: str | None,
    lifetime: str | None,
    accept_certificate: bool,
    as_json: bool,
) -> None:
    """Sign in with a private key, and store the token.

    The key is that of --key, or of the setting key (on an engine's own host the engine's, where it is not set), or an
    RSA key of the SSH agent at SSH_AUTH_SOCK. An agent signs by itself: no private key is read. --key and the setting
    take agent: and agent:NAME too.
    """
    from hatchway.api.cli.host import Here

    if key is not None and agent is not None:
        raise click.UsageError("give --key or --agent, not both")
    here = Here(key=key, agent=agent)
    with here.client(lifetime=lifetime, label=label, fresh=True, accept_certificate=accept_certificate) as client:
        signed_in = client.sign_in()
    _tell(here.url, signed_in, as_json, client.flows)


@click.command(epilog="\b\nExample:\n  hatchway logout")
@url_option("where you are signed in")
def logout() -> None:
    """End the session of the stored token, and forget the token."""
    from hatchway.api.cli.failures import Failed, ways_out
    from hatchway.api.cli.host import Here
    from hatchway.api.cli.printing import note, say
    from hatchway.api.client.wire import ClientFault, Unreachable

    here = Here()
    asked = here.flag_url and here.flag_url.rstrip("/")
    if here.stored is None:
        note("not signed in")
        return
    if asked not in (None, here.stored.url):
        raise ClientFault(f"not signed in to {asked}: the token that is stored is of {here.stored.url}")
    try:
        with here.client(url=here.stored.url) as client:
            client.logout()
    except Unreachable as fault:
        forget = "or forget the token all the same: hatchway config unset connection-token"
        raise Failed(fault.detail, (*ways_out(fault), forget)) from None
    say(f"signed out of {here.stored.url}")
    if here.stored.url == here.local_url and here.own_key.exists():
        note("on this host the next command signs in with the engine's own key")


@click.command(
    epilog="""\b
Examples:
  hatchway engine pair                          on the engine's host: prints the code
  hatchway pair --url https://engine.example    here: asks for the code, or for the link that was printed with it

CODE on the command line shows it to everybody on this host, in the list of processes."""
)
@click.argument("code", required=False)
@url_option("the link's, else the setting url, else where you are signed in, else this host's engine")
@accept_option
@json_option
def pair(code: str | None, accept_certificate: bool, as_json: bool) -> None:
    """Sign in by a pairing CODE, and store the token.

    The code is asked for, or read from standard input. The link that was printed with it does as well, and says
    where the engine is.
    """
    from hatchway.api.cli.host import Here
    from hatchway.api.cli.printing import note
    from hatchway.api.client.wire import Accepted

    def asked(accepted: Accepted) -> None:
        heard()
        note(f"Waiting for the operator. The number there must be {accepted.match}.")

    code, linked = read_code(_given_code(code))
    here = Here(linked)
    with (
        here.client(fresh=True, by_key=False, accept_certificate=accept_certificate) as client,
        silence_told(here.url) as heard,
    ):
        signed_in = client.pair(code, asked)
    _tell(here.url, signed_in, as_json, client.flows)


def _given_code(argument: str | None) -> str:
    if argument is not None and argument != "-":
        from hatchway.api.cli.printing import note

        note("everybody on this host can see that code in the list of processes: leave it out, and it is asked for")
        return argument
    if sys.stdin.isatty():
        return str(click.prompt("Pairing code", err=True))
    typed = sys.stdin.readline(LONGEST_LINK).strip()
    if not typed:
        raise click.UsageError("give the pairing code on standard input")
    return typed


LONGEST_LINK = 4096
"""Characters that are read of a code or link."""


def read_code(given: str) -> tuple[str, str | None]:
    """The code, and the engine's address where the link was given that is printed with it."""
    from hatchway.engine.pairings.codes import LENGTH, is_code  # here, as no other command needs it

    code, url = _taken_apart(given)
    if not is_code(code):
        raise click.UsageError(f"a pairing code has {LENGTH} letters and digits, such as 7K3MQ9XD: nothing was sent")
    return code, url


def _taken_apart(given: str) -> tuple[str, str | None]:
    if "://" not in given:
        return given, None
    try:
        parts = urlsplit(given.strip())
    except ValueError:
        parts = urlsplit("")
    named, _, code = parts.fragment.partition("=")
    if parts.scheme not in ("http", "https") or not parts.netloc or named != "pair" or not code:
        raise click.UsageError("that link has no code in it: it ends in #pair=CODE")
    return code, f"{parts.scheme}://{parts.netloc}"


FIRST_LINE_WITHIN = 5.0
"""Seconds after which a pairing that has said nothing is told as held back: an engine takes one at most."""


@contextmanager
def silence_told(url: str) -> Iterator[Callable[[], None]]:
    """Says on standard error what it may be where nothing comes for a while; what it gives is called once it has."""
    from hatchway.api.cli.printing import note

    words = (
        f"no line from {url} for {FIRST_LINE_WITHIN:.0f} s: a proxy before the engine may hold the answer back to its"
        " end. The number to compare can't be shown then; its operator turns that off (nginx: proxy_buffering off;"
        " lighttpd: server.stream-response-body = 1). Waiting for the operator's answer."
    )
    timer = threading.Timer(FIRST_LINE_WITHIN, lambda: note(words))
    timer.daemon = True
    timer.start()
    try:
        yield timer.cancel
    finally:
        timer.cancel()


def _tell(url: str, signed_in: SignedIn, as_json: bool, flows: Flows) -> None:
    from hatchway.api.cli.printing import print_facts, print_json

    signer, now = flows.signer, flows.engine_time()
    facts = {"url": url, "permissions": list(signed_in.permissions), "expires_at": signed_in.expires_at}
    by = {} if signer is None else {"key": signer.identity, "key_from": signer.words}
    if as_json:
        print_json(facts | by)
        _tell_key_expiry(signed_in.key_expires_at, now)
        return
    click.echo(click.style("signed in", fg="green"))
    print_facts(
        {
            "engine": url,
            **({} if signer is None else {"key": f"{signer.identity} ({signer.words})"}),
            "permissions": ", ".join(signed_in.permissions),
            "expires": _expires(signed_in.expires_at, now),
        }
    )
    _tell_key_expiry(signed_in.key_expires_at, now)


def _expires(at: int, now: float) -> str:
    from hatchway.api.cli.printing import span

    return f"in {span(at - now)}, renewed while used"


def _tell_key_expiry(at: int | None, now: float) -> None:
    """Say that the key is soon over, on standard error."""
    if at is not None:
        from hatchway.api.cli.printing import moment, note, span

        note(f"this key expires in {span(at - now)}, at {moment(at)}: have its time extended")


@click.command(
    epilog="""\b
Examples:
  hatchway engine ping
  hatchway config unset connection-token && hatchway engine ping     with a fresh token"""
)
@url_option()
@json_option
def ping(as_json: bool) -> None:
    """Contact the engine: sign in if need be, and say who we are there."""
    from hatchway.api.cli.host import Here
    from hatchway.api.cli.printing import print_facts, print_json

    here = Here()
    with here.client() as client:
        held = client.flows.stored
        began = time.monotonic()
        inspection = client.inspect()
        took = time.monotonic() - began
        now = client.flows.engine_time()
        included = "" if client.flows.stored is held else ", a sign-in or renewal included"
    facts = {
        "url": here.url,
        "identity": inspection.identity,
        "permissions": list(inspection.permissions),
        "method": inspection.method,
        "session": inspection.session,
        "expires_at": inspection.expires_at,
        "milliseconds": round(took * 1000, 1),
    }
    _tell_key_expiry(inspection.key_expires_at, now)
    if as_json:
        print_json(facts)
        return
    print_facts(
        {
            "engine": f"{here.url} answered in {facts['milliseconds']} ms{included}",
            "identity": inspection.identity,
            "permissions": ", ".join(inspection.permissions),
            "expires": _expires(inspection.expires_at, now),
        }
    )
