"""`advance` runs one event through `transitions` and says what follows; the only module that imports it."""

from __future__ import annotations

from transitions import EventData, Machine, MachineError, State

from hatchway.statecharts.chart import NONE, Chart, Data, Transition, always


class Step:
    """What one event did: where from, where to, and the names of the effects that are now due.

    `row` is the row that was taken, `index` its place in the chart.
    """

    __slots__ = ("effects", "event", "index", "row", "source", "target")

    def __init__(self, index: int, row: Transition) -> None:
        self.index, self.row = index, row
        self.source, self.event, self.target, self.effects = row.state, row.event, row.target, row.effects


class EventRefused(Exception):
    """No row takes the event: the state has none for it (`no_row`), or its guard said no (the guard's name)."""

    def __init__(self, chart: str, state: str, event: str, cause: str) -> None:
        super().__init__(f"{chart}: '{event}' is refused in '{state}' ({cause})")
        self.chart, self.state, self.event, self.cause = chart, state, event, cause


class _State(State):
    """A state without callbacks: a step's effects run once it is stored. Not to look for any, and to tell the log of
    none, makes a step a sixth quicker."""

    def enter(self, event_data: EventData) -> None:
        """Nothing runs inside a step."""

    def exit(self, event_data: EventData) -> None:
        """Nothing runs inside a step."""


class _Model:
    """The model of `transitions`. All actors share one: the library keeps a list of its models, and searches it."""

    __slots__ = ("state",)
    state: str


class Interpreter:
    """One chart, ready to run. `advance` is pure and never waits: call it freely, from one thread."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self._model = _Model()
        # Without auto_transitions no state can be entered past the chart's own rows.
        states = [_State(name) for name in chart.states]
        machine = Machine(model=None, states=states, initial=NONE, auto_transitions=False)
        for row in chart.rows:
            conditions = None if row.guard is always else row.guard
            machine.add_transition(row.event, row.state, row.target, conditions=conditions)
        self._triggers = {name: event.trigger for name, event in machine.events.items()}
        # `transitions` tells the state that it entered, and no two rows of one event lead from one state to another.
        self._steps = {(row.state, row.event, row.target): Step(index, row) for index, row in enumerate(chart.rows)}

    def advance(self, state: str, event: str, data: Data) -> Step:
        """The step that `event` makes from `state`. Raises `EventRefused`; an event no row names is a KeyError."""
        try:
            model, trigger = self._model, self._triggers[event]
        except KeyError:
            raise KeyError(f"no row of the chart '{self.chart.name}' has the event '{event}'") from None
        model.state = state
        try:
            taken = trigger(model, data)
        except MachineError:
            raise EventRefused(self.chart.name, state, event, "no_row") from None
        if not taken:
            raise EventRefused(self.chart.name, state, event, self._guards(state, event))
        return self._steps[state, event, model.state]

    def _guards(self, state: str, event: str) -> str:
        rows = (row for row in self.chart.rows if row.state == state and row.event == event)
        return ", ".join(row.guard.__name__ for row in rows)
