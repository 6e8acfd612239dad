"""How noisy a machine is: the same little piece of work, again and again."""

from __future__ import annotations

import time

from tests.bench.results import at

WORK = 200_000
"""Additions in one piece of work: some milliseconds."""

PIECES = 50


def noise() -> dict[str, float]:
    """`waited` is how much longer a piece takes than its own CPU time, since others have the core: 0.1 is a tenth. With
    `spread` its CPU time differs, from the quickest tenth to the slowest: others share the caches, or the clock."""
    waited, spent = [], []
    for _ in range(PIECES):
        began, cpu = time.perf_counter(), time.process_time()
        sum(range(WORK))
        spent.append(time.process_time() - cpu)
        waited.append((time.perf_counter() - began) / spent[-1] - 1)
    return {"waited": sum(waited) / PIECES, "spread": at(0.9, spent) / at(0.1, spent) - 1}
