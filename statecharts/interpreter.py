"""`advance` runs one event through `transitions` and says what follows; the only module that imports it."""

from __future__ import annotations

from typing import Any

from transitions import Event, EventData, Machine, MachineError
from transitions import Transition as MachineTransition

from statecharts.chart import NONE, Chart, Data, Transition, always


class Step:
    """What one event did: where from, where to, and the names of the effects that are now due."""

    __slots__ = ("effects", "event", "row", "source", "target")

    def __init__(self, row: Transition) -> None:
        self.row = row
        self.source, self.event, self.target, self.effects = row.state, row.event, row.target, row.effects


class EventRefused(Exception):
    """No row takes the event: the state has none for it (`no_row`), or its guard said no (the guard's name)."""

    def __init__(self, chart: str, state: str, event: str, cause: str) -> None:
        super().__init__(f"{chart}: '{event}' is refused in '{state}' ({cause})")
        self.chart, self.state, self.event, self.cause = chart, state, event, cause


class _Probe:
    """The one model that `transitions` sees: it would keep every live actor in a list and scan it."""

    __slots__ = ("state", "step")
    state: str
    step: Step | None


class _Row(MachineTransition):
    """A row as `transitions` runs it. Taken, it leaves its step with the model.

    Guards and change of state are `transitions`' own. Its rounds of callbacks are passed over: no effect runs inside a
    step, so there are none, and looking for them costs a quarter of it.
    """

    def __init__(self, *args: Any, step: Step, **options: Any) -> None:
        super().__init__(*args, **options)
        self._step = step

    def execute(self, event_data: EventData) -> bool:
        probe: Any = event_data.model
        if not self._eval_conditions(event_data):
            return False
        event_data.machine.set_state(self._step.target, probe)
        probe.step = self._step
        return True


class _Event(Event):
    """An event as `transitions` runs it: the first row of the state whose guards agree. No callbacks here either."""

    def __init__(self, name: str, machine: Machine) -> None:
        super().__init__(name, machine)
        self._data = EventData(None, self, machine, None, (), {})
        """Used for every step: none is begun inside another, and none is waited in."""

    def trigger(self, model: Any, *args: Any, **kwargs: Any) -> bool:
        rows = self.transitions.get(model.state)
        if rows is None:
            raise MachineError(f"{self.name} from {model.state}")
        event_data = self._data
        event_data.model, event_data.args, event_data.kwargs = model, args, kwargs
        for row in rows:  # noqa: SIM110 - any() would make a generator of each step
            if row.execute(event_data):
                return True
        return False


class _Table(Machine):
    event_cls, transition_cls = _Event, _Row


class Interpreter:
    """One chart, ready to run. `advance` is pure and never waits: call it freely, from one thread."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self._probe = _Probe()
        # auto_transitions would open a door to every state past the table.
        machine = _Table(model=None, states=list(chart.states), initial=NONE, auto_transitions=False)
        for row in chart.rows:
            machine.add_transition(
                row.event,
                row.state,
                row.target,
                conditions=None if row.guard is always else row.guard,
                step=Step(row),
            )
        self._triggers = {name: event.trigger for name, event in machine.events.items()}

    def advance(self, state: str, event: str, data: Data) -> Step:
        """The step that `event` makes from `state`. Raises `EventRefused`; an event no row names is a KeyError."""
        probe: Any = self._probe
        probe.state, probe.step = state, None
        try:
            self._triggers[event](probe, data)
        except MachineError:
            raise EventRefused(self.chart.name, state, event, "no_row") from None
        if probe.step is None:
            raise EventRefused(self.chart.name, state, event, self._guards(state, event))
        step: Step = probe.step
        return step

    def _guards(self, state: str, event: str) -> str:
        rows = (row for row in self.chart.rows if row.state == state and row.event == event)
        return ", ".join(row.guard.__name__ for row in rows)
