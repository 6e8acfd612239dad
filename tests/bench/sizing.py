"""What a number of sessions costs, from measured costs: `python -m tests.bench.sizing` prints the handbook's rows.

The costs were measured on two shared cores and are good to about 20 %; what follows from them is arithmetic.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

INSPECT_CPU = 34e-6
"""Seconds of an engine's CPU for one inspection."""

SIGN_IN_CPU = 340e-6
"""Seconds of an engine's CPU for one sign-in on SQLite; a renewal is reckoned as one, which is too much."""

COMMIT_CPU = 158e-6
"""Seconds of an engine's CPU for one change written to Redis."""

ABSORB_CPU = 20e-6
"""Seconds of each other engine's CPU for one change that it hears of."""

REDIS_CPU = 33e-6
"""Seconds of Redis' one core for one change, each written out with `appendfsync always`."""

ROW_BYTES = 404
"""Bytes that Redis takes for one session: ten million take 4.0 GB."""

ACTOR_BYTES = 780
"""Bytes that each engine takes for one session: a million that it took up from Redis take 773 MB, ten million 7.2 GB
or less."""

BUSY = 0.5
"""The part of a core that is planned for; the rest is for bursts."""

RENEWED_EVERY = 1800.0
"""Seconds between two renewals of a session in use: half its lifetime of an hour."""

INSPECTED_EVERY = 60.0
"""Seconds between two calls of a session in use that somebody has inspected."""


class Growth(NamedTuple):
    """What so many sessions in use ask for each second, and take."""

    sessions: int
    renewals: float
    inspections: float
    redis_core: float
    engines: int
    redis_bytes: int
    engine_bytes: int


def grow(sessions: int, *, offline: bool = False) -> Growth:
    """With `offline`, whoever checks tokens does so by the published keys, and asks the engines nothing."""
    renewals = sessions / RENEWED_EVERY
    inspections = 0.0 if offline else sessions / INSPECTED_EVERY
    engines = 1
    while _load(engines, renewals, inspections) > BUSY:
        if renewals * ABSORB_CPU >= BUSY:
            raise OverflowError("every engine hears of more changes than it can take: more of them do not help")
        engines += 1
    return Growth(
        sessions,
        renewals,
        inspections,
        renewals * REDIS_CPU,
        engines,
        sessions * ROW_BYTES,
        sessions * ACTOR_BYTES,
    )


def _load(engines: int, renewals: float, inspections: float) -> float:
    """The part of a core that each engine is busy: its share of the calls, and everybody's changes."""
    mine = (inspections * INSPECT_CPU + renewals * (SIGN_IN_CPU + COMMIT_CPU)) / engines
    return mine + renewals * (1 - 1 / engines) * ABSORB_CPU


def most_sessions() -> int:
    """How many there may be before Redis' core is as busy as is planned for."""
    return int(BUSY / REDIS_CPU * RENEWED_EVERY)


def rows() -> list[str]:
    """The handbook's table."""
    shown = []
    for sessions in (1_000, 100_000, 1_000_000, 10_000_000):
        told, offline = grow(sessions), grow(sessions, offline=True)
        shown.append(
            f"| {sessions:,} | {told.renewals:,.1f} | {told.inspections:,.0f} | {told.redis_core:.1%} |"
            f" {told.engines} | {offline.engines} | {ceil(told.redis_bytes / 1e6):,} MB |"
            f" {ceil(told.engine_bytes / 1e6):,} MB |"
        )
    return shown


if __name__ == "__main__":
    print("\n".join(rows()))
    print(f"{most_sessions():,}")
