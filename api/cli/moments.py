"""Points in time as people type them: `30m`, `2h`, `7d` before now, a time of day, or a date and time."""

from __future__ import annotations

import math
import re
import time
from datetime import datetime, timedelta
from datetime import time as clock

import click

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def moment_of(text: str, name: str) -> float:
    """Epoch seconds: of a while before now, or of a date and time (ISO 8601), local where it has no zone; of a time
    of day alone, its last one. Raises click.BadParameter."""
    seconds = _while(text)
    if seconds is not None:
        return time.time() - seconds
    try:
        if ":" in text[:3]:
            return _last(clock.fromisoformat(text))
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"'{text}' is no point in time: write 30m, 2h or 7d for a while ago, or such as 21:30, 2026-11-28T21:30 or"
            " 2026-11-28T20:30Z",
            param_hint=name,
        ) from None


def end_of(text: str, name: str, begin: float) -> float:
    """As `moment_of`, of the end of a while that begins at `begin`: a date alone means its last moment, and a time of
    day the first one from then on."""
    seconds = moment_of(text, name)
    if ":" in text[:3] and begin > -math.inf:
        at = clock.fromisoformat(text)
        first = datetime.combine(datetime.fromtimestamp(begin, at.tzinfo).date(), at)
        return (first if first.timestamp() >= begin else first + timedelta(days=1)).timestamp()
    if re.fullmatch(r"\d{4}-?\d\d-?\d\d", text):
        return (datetime.fromisoformat(text) + timedelta(days=1)).timestamp()
    return seconds


def _last(at: clock) -> float:
    """The last moment that had this time of day: today's, or yesterday's where today's is still to come."""
    now = datetime.now(at.tzinfo)
    today = datetime.combine(now.date(), at)
    if today.timestamp() > now.timestamp():
        today -= timedelta(days=1)
    return today.timestamp()


def _while(text: str) -> int | None:
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdigit() and unit in _UNITS and len(number) <= 9):
        return None
    return int(number) * _UNITS[unit]
