"""A chart as other state machines read it: SCXML (W3C) and a config of XState 5."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import quoteattr

from hatchway.statecharts.chart import NONE, Chart, Delay, Transition, always


def scxml(chart: Chart, *, delays: bool = True) -> str:
    """An SCXML 1.0 document. A guard is asked of the event: `_event.data.<guard>` says whether it holds.

    With `delays` a state sends itself its time event; without, whoever runs the chart sends it. Effects are `<log>`.
    """
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<scxml xmlns="http://www.w3.org/2005/07/scxml" version="1.0" datamodel="ecmascript" initial="{NONE}"'
        f" name={quoteattr(chart.name)}>",
    ]
    for state in chart.states:
        if state in chart.final:
            lines.append(f"  <final id={quoteattr(state)}/>")
        else:
            lines.append(f"  <state id={quoteattr(state)}>")
            delay = chart.delays.get(state)
            if delays and delay:
                lines += _sent(delay)
            lines += [line for row in chart.rows if row.state == state for line in _transition(row)]
            lines.append("  </state>")
    return "\n".join([*lines, "</scxml>"]) + "\n"


def _sent(delay: Delay) -> list[str]:
    event = quoteattr(delay.event)
    when = f'delay="{delay.seconds:g}s"' if not isinstance(delay.seconds, str) else f'delayexpr="{delay.seconds}"'
    return [
        f"    <onentry><send id={event} event={event} {when}/></onentry>",
        f"    <onexit><cancel sendid={event}/></onexit>",
    ]


def _transition(row: Transition) -> list[str]:
    cond = "" if row.guard is always else f" cond={quoteattr('_event.data.' + row.guard.__name__)}"
    head = f"    <transition event={quoteattr(row.event)}{cond} target={quoteattr(row.target)}"
    if not row.effects:
        return [head + "/>"]
    effects = "".join(f'<log label="effect" expr="{name!r}"/>' for name in row.effects)
    return [f"{head}>{effects}</transition>"]


def xstate(chart: Chart) -> dict[str, Any]:
    """A config for `createMachine`. Guards, actions and named delays are to be given by `setup`; times in ms."""
    return {"id": chart.name, "initial": NONE, "states": {state: _node(chart, state) for state in chart.states}}


def _node(chart: Chart, state: str) -> dict[str, Any]:
    if state in chart.final:
        return {"type": "final"}
    delay = chart.delays.get(state)
    on: dict[str, list[dict[str, Any]]] = {}
    after: list[dict[str, Any]] = []
    for row in chart.rows:
        if row.state == state:
            timed = delay is not None and row.event == delay.event
            (after if timed else on.setdefault(row.event, [])).append(_way(row))
    node: dict[str, Any] = {"on": on}
    if delay:
        node["after"] = {_milliseconds(delay): after}
    return node


def _milliseconds(delay: Delay) -> str:
    return delay.seconds if isinstance(delay.seconds, str) else f"{delay.seconds * 1000:.0f}"


def _way(row: Transition) -> dict[str, Any]:
    way: dict[str, Any] = {"target": row.target}
    if row.guard is not always:
        way["guard"] = row.guard.__name__
    if row.effects:
        way["actions"] = list(row.effects)
    if row.target == row.state:
        # XState would not leave the state otherwise, and the state's delay would not start anew.
        way["reenter"] = True
    return way
