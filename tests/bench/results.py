"""Results: rounds of one figure, their median and spread, as a table, as JSON, and beside an earlier run's."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from math import ceil, inf, isfinite
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from hatchway.engine.base.version import installed_version


class Figure(NamedTuple):
    """One thing measured in several rounds. `spread` is (largest - smallest) / median."""

    name: str
    unit: str
    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.rounds)

    @property
    def spread(self) -> float:
        return (max(self.rounds) - min(self.rounds)) / self.median if self.median else 0.0


def at(share: float, values: Iterable[float]) -> float:
    """The least of the values that so large a share of them does not exceed: 0.99 of a hundred is the last but one."""
    ordered = sorted(values)
    return ordered[max(ceil(share * len(ordered)) - 1, 0)]


class Promise(NamedTuple):
    """What a ratio must reach: at least or at most `bound`."""

    figure: str
    kind: str
    bound: float

    def verdict(self, figure: Figure) -> str:
        """`kept`, `missed`, or `unsettled` where the rounds lie further apart than the median and the bound do."""
        value = figure.median
        kept = value >= self.bound if self.kind == "at least" else value <= self.bound
        if figure.spread > (abs(value - self.bound) / value if value else inf):
            return "unsettled"
        return "kept" if kept else "missed"


class Results:
    """Everything one run has measured, in order."""

    def __init__(self) -> None:
        self.figures: dict[str, Figure] = {}
        self.noise: dict[str, float] = {}
        """As `tests.bench.noise` tells it."""

    def add(self, name: str, unit: str, rounds: Iterable[float]) -> Figure:
        """One more figure."""
        figure = self.figures[name] = Figure(name, unit, tuple(rounds))
        return figure

    def ratio(self, name: str, above: str, below: str) -> None:
        """A figure over another of the same run, round by round: what drifts between rounds drops out."""
        if above in self.figures and below in self.figures:
            pairs = zip(self.figures[above].rounds, self.figures[below].rounds, strict=True)
            self.add(name, "x", [one / other if other else inf for one, other in pairs])

    def verdicts(self, promises: Sequence[Promise], verdict: str) -> list[str]:
        """The figures whose promises have that verdict."""
        told = [(one, self.figures.get(one.figure)) for one in promises]
        return [one.figure for one, figure in told if figure is not None and one.verdict(figure) == verdict]

    def to_json(self) -> dict[str, Any]:
        return {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "version": installed_version(),
            "noise": self.noise,
            "figures": {
                one.name: {
                    "unit": one.unit,
                    "median": _finite(one.median),
                    "spread": _finite(one.spread),
                    "rounds": [_finite(value) for value in one.rounds],
                }
                for one in self.figures.values()
            },
        }

    def table(self, promises: Sequence[Promise] = (), before: dict[str, Any] | None = None) -> str:
        """A markdown table: median, spread, what is promised, and the change against an earlier run."""
        head = ["what", "median", "spread", "promised", *(["beside", "change"] if before else [])]
        rows = [head, ["---"] * len(head)]
        bounds = {one.figure: one for one in promises}
        for one in self.figures.values():
            row = [one.name, f"{_short(one.median)} {one.unit}", f"{one.spread:.0%}", _told(one, bounds.get(one.name))]
            rows.append(row + (_change(one, before["figures"].get(one.name)) if before else []))
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _finite(value: float) -> float | None:
    """JSON knows neither what is endless nor what is no number."""
    return value if isfinite(value) else None


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _told(figure: Figure, promise: Promise | None) -> str:
    if promise is None:
        return ""
    verdict = promise.verdict(figure)
    return f"{promise.kind} {_short(promise.bound)}{'' if verdict == 'kept' else f' **{verdict}**'}"


def _change(figure: Figure, before: dict[str, Any] | None) -> list[str]:
    if before is None or before["median"] is None:
        return ["", "new"]
    return [_short(before["median"]), f"{figure.median / before['median'] - 1:+.0%}" if before["median"] else ""]


def load(path: Path) -> dict[str, Any]:
    """A saved run."""
    saved: dict[str, Any] = json.loads(path.read_text())
    return saved


Measure = Callable[[Results, "Plan"], None]


class Plan(NamedTuple):
    """How much is measured: rounds, seconds a round, and where the peers are (None: none of them)."""

    rounds: int
    seconds: float
    size: float
    """1 for the whole promise, less for a quick look: scales the numbers of timers, actors, sessions and streams."""
    cache: Path | None
