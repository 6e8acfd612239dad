"""Decides a step again, from what a record says: the chart's own rows, read without running them.

`Interpreter.advance` moves actors; this looks up which row it would have taken, a hundred times as fast, for whoever
checks a journal. A test holds the two against each other for every state, event and outcome of the guards.
"""

from __future__ import annotations

from hatchway.statecharts.chart import Chart, Data, Transition, always

NO_ROW = "no_row"
"""Cause of a refusal where a state has no row for an event."""


class Decider:
    """One chart's rows by state and event."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self._rows: dict[tuple[str, str], list[Transition]] = {}
        for row in chart.rows:
            self._rows.setdefault((row.state, row.event), []).append(row)
        self._sure = {key: rows[0] for key, rows in self._rows.items() if rows[0].guard is always}

    def decide(self, state: str, event: str, data: Data) -> Transition | str:
        """The row that is taken, or the cause of the refusal. Raises KeyError where a guard lacks its input."""
        row = self._sure.get((state, event))
        if row is not None:
            return row
        rows = self._rows.get((state, event))
        if rows is None:
            return NO_ROW
        for row in rows:
            if row.guard(data):
                return row
        return ", ".join(row.guard.__name__ for row in rows)

    def ways(self, state: str, event: str) -> list[Transition]:
        """Every row of that state and event, whatever its guard says."""
        return self._rows.get((state, event), [])
