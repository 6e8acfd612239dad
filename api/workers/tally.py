"""What a worker counts of the requests it answers, until it tells the engine, which counts for all."""

from __future__ import annotations

from bisect import bisect_left

from hatchway.api.workers.messages import Tallied
from hatchway.engine.journal.metrics import FINEST


class WorkerCounts:
    """Feeds as the engine's `Metrics` does."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, int], Tallied] = {}

    def answered(self, method: str, path: str, status: int, seconds: float) -> None:
        """The worker has answered; `path` as the table of endpoints has it."""
        row = self._rows.get((method, path, status))
        if row is None:
            row = self._rows[method, path, status] = Tallied(method, path, status, [0] * (len(FINEST) + 1), 0.0)
        row.buckets[bisect_left(FINEST, seconds)] += 1
        row.seconds += seconds

    def take(self) -> list[Tallied]:
        """All since the last time."""
        rows, self._rows = list(self._rows.values()), {}
        return rows
