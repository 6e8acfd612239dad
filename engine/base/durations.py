"""Durations on the wire: `30m`, `2h`, `1m0s`; and the lifetime a session gets for one (sections 2.1, 4.2 and 8)."""

from __future__ import annotations

import re

from hatchway.engine.base.errors import Refusal

_FORM = re.compile(r"(?P<hours>[0-9]+)h|(?P<minutes>[0-9]+)m(?:(?P<seconds>[0-9]+)s)?", re.ASCII)
_MANY = 10**12
"""Stands for every larger number: far out of any range, and no limit on the digits is met."""


class InvalidDuration(Refusal):
    """Not a duration at all; one that is merely out of range is not refused (section 8)."""

    code = "invalid_request"


def parse_duration(text: object) -> int:
    """Seconds in `text`, a whole number with `m` or `h`, or `<m>m<s>s`. Raises `InvalidDuration`."""
    match = _FORM.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InvalidDuration("a duration is a whole number of minutes or hours, such as 30m or 2h")
    hours, minutes, seconds = (_number(match[part]) for part in ("hours", "minutes", "seconds"))
    return hours * 3600 + minutes * 60 + seconds


def _number(digits: str | None) -> int:
    significant = (digits or "").lstrip("0")
    return _MANY if len(significant) > 12 else int(significant or "0")


def lifetime(text: object) -> tuple[int, bool]:
    """Seconds a session asked for with `text` lasts, and whether that fell back to the default (section 4.2).

    None is an omitted field: the default, and no falling back. Raises `InvalidDuration`.
    """
    # Imported here: a command that reads durations in its settings needs no chart.
    from hatchway.statecharts.session import DEFAULT_LIFETIME, LONGEST_LIFETIME, SHORTEST_LIFETIME

    if text is None:
        return DEFAULT_LIFETIME, False
    seconds = parse_duration(text)
    if SHORTEST_LIFETIME <= seconds <= LONGEST_LIFETIME:
        return seconds, False
    return DEFAULT_LIFETIME, True


def format_duration(seconds: float) -> str:
    """`seconds` in the form `<m>m<s>s` of section 2.1, parts of a second dropped."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s"
