"""A chart as data: rows in the specification's five columns, delays, and the faults a chart may have (section 3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

NONE = "none"
"""The state before the first row: the specification's `(none)`."""

Data = Mapping[str, Any]
"""What an event brings. Always `now` (seconds on the delay's clock) and `deadline` (same clock, or None)."""

Guard = Callable[[Data], bool]


class ChartFault(ValueError):
    """A chart that is wrong: an unknown state, two rows alike, a trap (a state without a way to a final one), a row
    that leaves a final state, or a part that is of the wrong type."""


def always(data: Data) -> bool:
    """The guard of a row without a condition."""
    return True


@dataclass(frozen=True, slots=True)
class Transition:
    """One row: in `state`, on `event`, if `guard`, go to `target`, then the effects run in order.

    `ours` marks a row that the specification does not have.
    """

    state: str
    event: str
    guard: Guard
    target: str
    effects: tuple[str, ...] = ()
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Delay:
    """Leaving a state by time: `event` is sent `seconds` after the state is entered.

    `seconds` is a number, or the name of a rule that the engine resolves for each actor (a session's own lifetime).
    `clock` says whose seconds: `elapsed` counts suspended time and never jumps; `wall` is the epoch clock of tokens.
    """

    seconds: float | str
    event: str
    clock: Literal["elapsed", "wall"] = "elapsed"


@dataclass(frozen=True)
class Chart:
    """States in order of appearance, rows in the specification's order. Building one checks it: raises `ChartFault`,
    with each fault on a line."""

    name: str
    rows: tuple[Transition, ...]
    final: frozenset[str]
    delays: Mapping[str, Delay] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checks = (_known_states, _distinct_rows, _final_states, _delays, _ways)
        # What isn't made of rows and delays can't be asked for the rest.
        found = list(_parts(self)) or [fault for check in checks for fault in check(self)]
        faults = [f"{self.name}: {fault}" for fault in found]
        if faults:
            raise ChartFault("\n".join(faults))

    @property
    def states(self) -> tuple[str, ...]:
        """Every state once, `none` first, in order of appearance."""
        return tuple(dict.fromkeys(state for row in self.rows for state in (row.state, row.target)))

    @property
    def events(self) -> tuple[str, ...]:
        """Every event once, in order of appearance."""
        return tuple(dict.fromkeys(row.event for row in self.rows))

    @property
    def effects(self) -> frozenset[str]:
        """The names of all effects: each wants a handler, and a handler wants a name here."""
        return frozenset(effect for row in self.rows for effect in row.effects)


def _parts(chart: Chart) -> Iterator[str]:
    """The types of rows and delays: a chart need not come from code that a type checker has seen."""
    rows: tuple[Any, ...] = chart.rows
    delays: Mapping[str, Any] = chart.delays
    for row in rows:
        if not isinstance(row, Transition):
            yield f"a row must be a Transition, not {row!r}"
            continue
        where = f"the row for '{row.event}' in '{row.state}'"
        if not callable(row.guard) or not hasattr(row.guard, "__name__"):
            yield f"{where}: its guard must be a function with a name, which tables and refusals show"
        if not isinstance(row.effects, tuple) or not all(isinstance(effect, str) for effect in row.effects):
            yield f"{where}: its effects must be a tuple of names, as ('tell_holder',)"
    for state, delay in delays.items():
        if not isinstance(delay, Delay):
            yield f"the delay of '{state}' must be a Delay, not {delay!r}"
        elif not isinstance(delay.seconds, str) and not 0 <= delay.seconds < math.inf:
            yield f"the delay of '{state}' must be 0 or more seconds, or a rule's name, not {delay.seconds!r}"
        elif delay.clock not in ("elapsed", "wall"):
            yield f"the clock of the delay of '{state}' must be 'elapsed' or 'wall', not {delay.clock!r}"


def _known_states(chart: Chart) -> Iterator[str]:
    if not chart.rows or chart.rows[0].state != NONE:
        yield f"the first row must start from '{NONE}'"
    if any(row.target == NONE for row in chart.rows):
        yield f"no row may lead back to '{NONE}'"
    for state in sorted((chart.final | set(chart.delays)) - set(chart.states)):
        yield f"'{state}' stands in no row"


def _distinct_rows(chart: Chart) -> Iterator[str]:
    seen: dict[tuple[str, str], dict[Guard, str]] = {}
    for row in chart.rows:
        before = seen.setdefault((row.state, row.event), {})
        if row.guard in before or always in before:
            yield f"a second row for '{row.event}' in '{row.state}' can never be taken"
        elif row.target in before.values():
            yield f"two rows for '{row.event}' lead from '{row.state}' to '{row.target}': make them one"
        before[row.guard] = row.target


def _final_states(chart: Chart) -> Iterator[str]:
    for row in chart.rows:
        if row.state in chart.final:
            yield f"a row leaves the final state '{row.state}'"


def _delays(chart: Chart) -> Iterator[str]:
    for state, delay in chart.delays.items():
        ways = [row for row in chart.rows if row.state == state and row.event == delay.event]
        if not ways or ways[-1].guard is not always:
            yield f"'{delay.event}' must leave '{state}' whatever the guards say"


def reachable(chart: Chart, state: str) -> set[str]:
    """The states that may follow `state`, itself included."""
    return _closure({state}, [(row.state, row.target) for row in chart.rows])


def _ways(chart: Chart) -> Iterator[str]:
    """Every state is reached from `none`, and from every state a final one is reached (no trap)."""
    forward = _closure({NONE}, [(row.state, row.target) for row in chart.rows])
    backward = _closure(set(chart.final), [(row.target, row.state) for row in chart.rows])
    for state in chart.states:
        if state not in forward:
            yield f"'{state}' is never reached"
        if state not in backward and state != NONE:  # what `none` leads to is named itself
            yield f"'{state}' is a trap: no final state is reached from it"


def _closure(start: set[str], edges: list[tuple[str, str]]) -> set[str]:
    reached, grown = set(start), True
    while grown:
        more = {target for source, target in edges if source in reached} - reached
        reached |= more
        grown = bool(more)
    return reached
