"""The flags and words for a key's options: when it expires, from where, how many instances, how long a session."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from hatchway.engine.keys.key_options import KeyOptions

F = TypeVar("F", bound=Callable[..., Any])

NONE = "none"
"""The value of a flag that takes an option out."""

_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")


def option_flags(command: F) -> F:
    """Give a command the flags; it gets `options`, texts by the names that authorized_keys has, empty for none."""

    @wraps(command)
    def called(**given: Any) -> Any:
        texts = {
            "expiry-time": expiry_text(_once("--expires", given.pop("expires"))),
            "from": _once("--from", given.pop("sources")),
            "instances": _once("--instances", given.pop("instances")),
            "lifetime": _once("--lifetime", given.pop("longest")),
        }
        return command(options=_sound({name: text for name, text in texts.items() if text is not None}), **given)

    flags = (
        ("--expires", "expires", "SPAN | TIME", "When it is over: 90d, 2027-01-31, YYYYMMDDHHMMZ."),
        ("--from", "sources", "PATTERNS", "From where only: 10.0.0.0/8,!10.0.0.9."),
        ("--instances", "instances", "NUMBER", "Live instances at most."),
        ("--lifetime", "longest", "SPAN", "The longest session, renewals included: 8h."),
    )
    for flag, name, metavar, help_text in reversed(flags):
        called = click.option(flag, name, metavar=metavar, multiple=True, help=help_text)(called)
    return called  # type: ignore[return-value]


def _once(flag: str, given: tuple[str, ...]) -> str | None:
    """The value of a flag that sets a limit: of two values the last would count, and its giver may mean both."""
    if len(given) > 1:
        more = ", with commas between the patterns" if flag == "--from" else ""
        raise click.UsageError(f"give {flag} once{more}")
    return given[0] if given else None


def _sound(texts: dict[str, str]) -> dict[str, str]:
    from hatchway.engine.base.errors import KeyRefused
    from hatchway.engine.keys.key_options import read_options

    # An empty value is no way to take a limit out: it is what an unset variable of a script gives.
    try:
        read_options({name: text for name, text in texts.items() if text != NONE})
    except KeyRefused as refused:
        raise click.UsageError(f"{refused.detail} (or {NONE}, for no limit)") from None
    if any(set(text) & set('"\\') or not text.isprintable() for text in texts.values()):
        raise click.UsageError("no value may hold a quote, a backslash or a control character")
    return {name: "" if text == NONE else text for name, text in texts.items()}


def expiry_text(given: str | None) -> str | None:
    """What `--expires` means, as `expiry-time` has it: a span counts from now, a date is the beginning of that day."""
    from hatchway.engine.base.errors import KeyRefused
    from hatchway.engine.keys.key_options import expiry_of, span_of

    if not given or given == NONE:
        return given
    if not given[-1].isalpha() or given.endswith("Z"):
        date = _DATE.fullmatch(given)
        text = "".join(date.groups()) if date else given
        try:
            expiry_of(text)
        except KeyRefused:
            raise _no_time(given) from None
        return text
    if given[-1] not in "mhd":
        raise _no_time(given)
    try:
        seconds = span_of(given, "--expires")
    except KeyRefused as refused:
        raise click.UsageError(refused.detail) from None
    return time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + seconds))


def _no_time(given: str) -> click.UsageError:
    return click.UsageError(
        f"--expires: {given[:40]!a} is no time: write a span as 90d, a day as 2027-01-31, or YYYYMMDDHHMM, then Z for"
        f" UTC (or {NONE}, for no limit)"
    )


def described(options: KeyOptions | None) -> dict[str, Any]:
    """A key's options for programs; times in epoch seconds, spans in seconds, None for no limit."""
    return {
        "expires_at": None if options is None else options.ends_at,
        "from": None if options is None else options.sources,
        "instances": None if options is None else options.instances,
        "lifetime": None if options is None else options.lifetime,
    }


def expiry_words(options: KeyOptions | None, now: float) -> str:
    """When a key expires, for a column: empty for never."""
    from hatchway.api.cli.printing import moment, span

    if options is None or options.ends_at is None:
        return ""
    if options.ends_at <= now:
        return f"expired {moment(options.ends_at)}"
    return f"in {span(options.ends_at - now)}" if options.ends_soon(now) else moment(options.ends_at)


def only_words(options: KeyOptions | None) -> str:
    """A key's other options, as they are written."""
    return " ".join(f"{name}={text}" for name, text in (options.texts if options else ()) if name != "expiry-time")


def moment_words(at: float | None) -> str:
    """A point in time for a column; empty where it is not known."""
    from hatchway.api.cli.printing import moment

    return "" if at is None else moment(at)
