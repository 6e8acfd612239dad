"""Promises on time, measured on a machine that others use too: chance does not spoil every try."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

TRIES = 5

LINE = (
    '{"seq":12345,"time":"2026-11-28T21:30:00.123456Z","kind":"transition","chart":"session","event":"renew",'
    f'"actor":"{"a" * 22}","source":"live","target":"live","effects":["issue_token"],"identity":"{"f" * 64}"}}'
)


def kept(most: float, measure: Callable[[], float], tries: int = TRIES) -> None:
    """One of so many tries measures less than `most`, mostly seconds: chance spoils some, a fault spoils all."""
    told: list[float] = []
    while len(told) < tries:
        told.append(measure())
        if told[-1] < most:
            return
    raise AssertionError(f"not under {most}: {', '.join(f'{one:.3f}' for one in told)}")


def parsing_seconds(lines: int) -> float:
    """What Python's own parser of JSON takes of a core for so many lines of a journal: the measure for work that has to
    be cheap on any machine, and beside any load."""
    before = time.process_time()
    for _ in range(lines):
        json.loads(LINE)
    return time.process_time() - before


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
