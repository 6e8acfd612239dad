"""Points in time and whiles as people type them: `30m`, `2h`, `7d` before now, or a date and time."""

from __future__ import annotations

import time
from datetime import datetime

import click

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def while_of(text: str, option: str) -> int:
    """Seconds of a while; days too, unlike the contract's durations. Raises click.BadParameter."""
    seconds = _while(text)
    if seconds is None:
        raise click.BadParameter(f"'{text}' is no while: write 90s, 30m, 2h or 7d", param_hint=option)
    return seconds


def moment_of(text: str, name: str) -> float:
    """Epoch seconds: of a while before now, or of a date and time (ISO 8601), local where it has no zone. Raises
    click.BadParameter."""
    seconds = _while(text)
    if seconds is not None:
        return time.time() - seconds
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"'{text}' is no point in time: write 30m, 2h or 7d for a while ago, or such as 2026-11-28T21:30 or"
            " 2026-11-28T20:30Z",
            param_hint=name,
        ) from None


def _while(text: str) -> int | None:
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdigit() and unit in _UNITS and len(number) <= 9):
        return None
    return int(number) * _UNITS[unit]
