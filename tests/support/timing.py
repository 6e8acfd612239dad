"""Promises on time, measured on a machine that others use too: chance does not spoil every try."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

TRIES = 5


def kept(most: float, measure: Callable[[], float], tries: int = TRIES) -> None:
    """One of so many tries measures less than `most`, mostly seconds: chance spoils some, a fault spoils all."""
    told: list[float] = []
    while len(told) < tries:
        told.append(measure())
        if told[-1] < most:
            return
    raise AssertionError(f"not under {most}: {', '.join(f'{one:.3f}' for one in told)}")


class Share:
    """How much of the time since in which processes wanted a core they had one: 1 where nobody else wants it.

    Of the one that had least, by its main thread (Linux's `schedstat`: nanoseconds on a core, and waiting for one).
    """

    def __init__(self, *pids: int) -> None:
        self._before = {pid: _scheduled(pid) for pid in (*pids, os.getpid())}

    def now(self) -> float:
        return min(self._of(pid) for pid in self._before)

    def _of(self, pid: int) -> float:
        ran, waited = (now - then for now, then in zip(_scheduled(pid), self._before[pid], strict=True))
        return ran / (ran + waited) if ran else 1.0


def _scheduled(pid: int) -> tuple[int, int]:
    with suppress(OSError):  # a kernel may not count
        ran, waited, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
        return int(ran), int(waited)
    return 0, 0
