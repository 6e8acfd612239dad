"""Counts the requests that a worker answers, until the worker tells the engine, whose metrics count for all."""

from __future__ import annotations

from bisect import bisect_left

from hatchway.api.workers.messages import RequestCount
from hatchway.engine.journal.metrics import FINEST


class WorkerCounts:
    """Stands in a worker where the engine has `Metrics`: the gateway calls `answered` after each request."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, int], RequestCount] = {}

    def answered(self, method: str, path: str, status: int, seconds: float) -> None:
        """The worker has answered; `path` as the table of endpoints has it."""
        row = self._rows.get((method, path, status))
        if row is None:
            row = self._rows[method, path, status] = RequestCount(method, path, status, [0] * (len(FINEST) + 1), 0.0)
        row.buckets[bisect_left(FINEST, seconds)] += 1
        row.seconds += seconds

    def take(self) -> list[RequestCount]:
        """The counts since the last `take`."""
        rows, self._rows = list(self._rows.values()), {}
        return rows
