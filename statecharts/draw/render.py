"""A chart in other forms: the specification's table, Mermaid, SVG, SCXML, XState, JSON (section 3)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from hatchway.statecharts.chart import NONE, Chart, Transition
from hatchway.statecharts.draw.exports import scxml, xstate
from hatchway.statecharts.draw.layout import caption, lay_out
from hatchway.statecharts.draw.picture import svg


def table(chart: Chart) -> str:
    """The specification's five columns as Markdown; rows of our own are marked with `*`."""
    rows = [("State", "Event", "Condition", "Next state", "Effects")]
    for row in chart.rows:
        rows.append((_state(row.state), _event(chart, row), row.guard.__name__, row.target, ", ".join(row.effects)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n" + _notes(chart)


def _state(state: str) -> str:
    return f"({NONE})" if state == NONE else state


def _event(chart: Chart, row: Transition) -> str:
    event, condition = caption(chart, row)
    timed = f" ({condition})" if condition.startswith("after ") else ""
    return event + timed + (" *" if row.ours else "")


def _notes(chart: Chart) -> str:
    return "\n`*` not in the specification.\n" if any(row.ours for row in chart.rows) else ""


def mermaid(chart: Chart) -> str:
    """A `stateDiagram-v2`, as GitHub draws it."""
    lines = ["stateDiagram-v2", "    direction LR"]
    for row in chart.rows:
        source = "[*]" if row.state == NONE else row.state
        lines.append(f"    {source} --> {row.target}: {' '.join(filter(None, caption(chart, row)))}")
    lines += [f"    {state} --> [*]" for state in chart.states if state in chart.final]
    return "\n".join(lines) + "\n"


def as_json(chart: Chart) -> dict[str, object]:
    """The chart with its layout, for the console. Pixels, `x` and `y` of a state are its upper left corner."""
    layout = lay_out(chart)
    states = [
        {"name": state, **_rounded(layout.boxes[state]._asdict()), "final": state in chart.final}
        for state in chart.states
    ]
    rows = [
        {
            "state": row.state,
            "event": row.event,
            "guard": row.guard.__name__,
            "target": row.target,
            "effects": list(row.effects),
            "ours": row.ours,
            "label": _rounded({"x": line.label[0], "y": line.label[1]}),
            "points": [[round(x, 1), round(y, 1)] for x, y in line.points],
        }
        for row, line in zip(chart.rows, layout.lines, strict=True)
    ]
    delays = [
        {"state": state, "event": delay.event, "seconds": delay.seconds, "clock": delay.clock}
        for state, delay in chart.delays.items()
    ]
    final = [state for state in chart.states if state in chart.final]
    size = _rounded({"width": layout.width, "height": layout.height})
    return {
        "name": chart.name,
        "initial": NONE,
        "final": final,
        "states": states,
        "rows": rows,
        "delays": delays,
        **size,
    }


def _rounded(numbers: Mapping[str, float]) -> dict[str, float]:
    return {name: round(number, 1) for name, number in numbers.items()}


FORMATS: Mapping[str, Callable[[Chart], str]] = {
    "table": table,
    "mermaid": mermaid,
    "svg": svg,
    "scxml": scxml,
    "xstate": lambda chart: json.dumps(xstate(chart), indent=2) + "\n",
    "json": lambda chart: json.dumps(as_json(chart), indent=2) + "\n",
}
"""Every text form by its name on the command line."""
