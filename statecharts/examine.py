"""Facts about a chart: how each state is reached, where each delay leads, what each event does in each state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hatchway.statecharts.chart import NONE, Chart, Transition, always


def shortest_ways(chart: Chart) -> dict[str, tuple[str, ...]]:
    """For each state the fewest events that lead to it from `none`; guards are taken to say yes."""
    ways: dict[str, tuple[str, ...]] = {NONE: ()}
    rows = list(chart.rows)
    while True:
        found = {
            row.target: (*ways[row.state], row.event)
            for row in reversed(rows)
            if row.state in ways and row.target not in ways
        }
        if not found:
            return {state: ways[state] for state in chart.states}
        ways |= found


def ways_out(chart: Chart) -> dict[str, tuple[str, str]]:
    """For each state with a delay: the event of its end, and the state where that leads."""
    out = {}
    for state, delay in chart.delays.items():
        rows = [row for row in chart.rows if row.state == state and row.event == delay.event]
        out[state] = (delay.event, ", ".join(_target(row) for row in rows))
    return out


def effects_of_events(chart: Chart) -> dict[str, dict[str, str]]:
    """For each event, and each state that an actor can stand in: where it leads, with its guard; `-` where the event is
    refused."""
    states = [state for state in chart.states if state not in chart.final]
    table: dict[str, dict[str, str]] = {event: dict.fromkeys(states, "-") for event in chart.events}
    for row in chart.rows:
        before = table[row.event][row.state]
        table[row.event][row.state] = _target(row) if before == "-" else f"{before}, {_target(row)}"
    return table


def _target(row: Transition) -> str:
    return row.target if row.guard is always else f"{row.target} [{row.guard.__name__}]"


def as_json(chart: Chart) -> dict[str, Any]:
    """All these facts, for programs."""
    return {
        "chart": chart.name,
        "states": {state: list(way) for state, way in shortest_ways(chart).items()},
        "final": sorted(chart.final),
        "delays": {
            state: {"event": event, "leads_to": target, "seconds": chart.delays[state].seconds}
            for state, (event, target) in ways_out(chart).items()
        },
        "events": effects_of_events(chart),
        "effects": sorted(chart.effects),
    }


def as_text(chart: Chart) -> str:
    """All these facts, for people."""
    table = effects_of_events(chart)
    states = list(next(iter(table.values())))
    parts = [
        f"{chart.name}: states {len(chart.states) - 1}, rows {len(chart.rows)}, faults none",
        "Every state is reached, and from each one an end is reached:",
        _columns([(state, ", ".join(way)) for state, way in shortest_ways(chart).items() if way]),
        "Every delay has a way out:" if chart.delays else "There is no delay.",
        _columns(
            [
                (state, f"{event} after {_seconds(chart.delays[state].seconds)}", f"-> {target}")
                for state, (event, target) in ways_out(chart).items()
            ]
        ),
        "What each event does in each state (- where it is refused):",
        _columns([("", *states), *((event, *row.values()) for event, row in table.items())]),
        f"Effects that want a handler: {', '.join(sorted(chart.effects)) or 'none'}",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _seconds(value: float | str) -> str:
    return f"the rule {value}" if isinstance(value, str) else f"{value:g} s"


def _columns(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)] if rows else []
    return "\n".join("  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
