"""Histograms that take no lock, unlike the Prometheus client's: they cost little, and belong to one thread."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from math import inf

from prometheus_client.core import HistogramMetricFamily, Metric


class Series:
    """One series of a histogram."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * len(bounds)
        """Observations in each bucket alone, not added up as Prometheus shows them."""
        self.total = 0.0

    def observe(self, value: float) -> None:
        """One more observation."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def add(self, bounds: Sequence[float], counts: Sequence[int], total: float) -> None:
        """Add observations that a worker counted: `counts` by `bounds`, which hold all of ours, and the sum of them
        all."""
        for bound, count in zip((*bounds, inf), counts, strict=True):
            self.counts[bisect_left(self._bounds, bound)] += count
        self.total += total


class Histogram:
    """All series of one name: a collector to a registry. Fed in the event loop's thread, read in any."""

    def __init__(self, name: str, about: str, labels: Sequence[str], buckets: Sequence[float]) -> None:
        self._name, self._about, self._labels = name, about, labels
        self._bounds = (*map(float, buckets), inf)
        self._names = ["+Inf" if bound == inf else repr(bound) for bound in self._bounds]
        self._series: dict[tuple[str, ...], Series] = {}
        if not labels:
            self.labels()  # a histogram without labels is shown from the first, at zero

    def labels(self, *values: str) -> Series:
        """The series of these label values."""
        found = self._series.get(values)
        if found is None:
            found = self._series[values] = Series(self._bounds)
        return found

    def collect(self) -> Iterable[Metric]:
        """The metric as the Prometheus client wants it."""
        family = HistogramMetricFamily(self._name, self._about, labels=self._labels)
        for values, series in list(self._series.items()):
            total, buckets = 0, []
            for name, count in zip(self._names, list(series.counts), strict=True):
                total += count
                buckets.append((name, float(total)))
            family.add_metric(values, buckets, series.total)
        yield family
