"""Every event in every state of every chart does what its row says, or is refused and says why."""

from collections.abc import Iterator
from typing import Any

import pytest
from transitions import Machine

from hatchway.statecharts.catalogue import CHARTS
from hatchway.statecharts.chart import NONE, Chart, Data, Transition, always
from hatchway.statecharts.interpreter import EventRefused, Interpreter

OPEN: dict[str, Any] = {"now": 0.0, "deadline": 1.0, "proof": "signature"}
"""What an event may bring for every guard to hold."""

SHUT: dict[str, Any] = {"now": 1.0, "deadline": 1.0, "proof": "none"}
"""... and for none to hold."""


def pairs() -> Iterator[tuple[Chart, str, str]]:
    return ((chart, state, event) for chart in CHARTS.values() for state in chart.states for event in chart.events)


def expected(chart: Chart, state: str, event: str, data: Data) -> Transition | None:
    """The row, by reading the table from top to bottom."""
    fitting = [row for row in chart.rows if (row.state, row.event) == (state, event) and row.guard(data)]
    return fitting[0] if fitting else None


@pytest.mark.parametrize("data", [OPEN, SHUT], ids=["guards hold", "guards fail"])
@pytest.mark.parametrize(
    ("chart", "state", "event"), [pytest.param(*pair, id=".".join((pair[0].name, *pair[1:]))) for pair in pairs()]
)
def test_every_event_in_every_state(
    chart: Chart, state: str, event: str, data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step is the table's row, whole, and `transitions` made the change; where no row fits, the refusal names
    chart, state, event and cause."""
    row, interpreter = expected(chart, state, event, data), Interpreter(chart)
    entered: list[str] = []
    set_state = Machine.set_state

    def watched(machine: Machine, target: str, model: Any = None) -> None:
        entered.append(target)
        set_state(machine, target, model)

    monkeypatch.setattr(Machine, "set_state", watched)
    if row is not None:
        step = interpreter.advance(state, event, data)
        assert entered == [row.target]
        assert (step.row, step.source, step.event, step.target, step.effects) == (
            row,
            state,
            event,
            row.target,
            row.effects,
        )
        return
    with pytest.raises(EventRefused) as refused:
        interpreter.advance(state, event, data)
    assert not entered
    guards = [row.guard.__name__ for row in chart.rows if (row.state, row.event) == (state, event)]
    assert refused.value.cause == (", ".join(guards) or "no_row")
    assert (refused.value.chart, refused.value.state, refused.value.event) == (chart.name, state, event)
    assert str(refused.value) == f"{chart.name}: '{event}' is refused in '{state}' ({refused.value.cause})"


@pytest.mark.parametrize("chart", CHARTS.values(), ids=CHARTS)
def test_the_guards_of_this_test_are_told_apart(chart: Chart) -> None:
    """Every guard holds for OPEN; every condition fails for SHUT: the pairs above see both sides of each."""
    for guard in {row.guard for row in chart.rows} - {always}:
        assert (guard(OPEN), guard(SHUT)) == (True, False)


def is_first(data: Data) -> bool:
    return bool(data["now"] == 1)


def is_second(data: Data) -> bool:
    return data["now"] in (1, 2)


@pytest.mark.parametrize(("now", "target"), [(1, "first"), (2, "second"), (3, "third")])
def test_the_first_row_that_fits_is_taken(now: int, target: str) -> None:
    """Rows of one event are asked from top to bottom, and none after the one that is taken."""
    ways = [
        Transition(NONE, "go", guard, state)
        for state, guard in (("first", is_first), ("second", is_second), ("third", always))
    ]
    chart = Chart("fork", tuple(ways), frozenset({"first", "second", "third"}))
    assert Interpreter(chart).advance(NONE, "go", {"now": now}).target == target


@pytest.mark.parametrize(
    ("state", "event", "cause"),
    [
        ("a", "go", "is_first"),
        ("b", "go", "is_second"),
        ("b", "halt", "is_first"),
        ("b", "jump", "is_first, is_second"),
    ],
)
def test_a_refusal_names_the_guards_that_said_no(state: str, event: str, cause: str) -> None:
    """Those of that event in that state, and no others."""
    rows = (
        Transition(NONE, "start", always, "a"),
        Transition("a", "go", is_first, "b"),
        Transition("a", "on", always, "b"),
        Transition("b", "go", is_second, "off"),
        Transition("b", "halt", is_first, "off"),
        Transition("b", "jump", is_first, "a"),
        Transition("b", "jump", is_second, "off"),
    )
    with pytest.raises(EventRefused) as refused:
        Interpreter(Chart("lamp", rows, frozenset({"off"}))).advance(state, event, {"now": 3})
    assert refused.value.cause == cause


def test_an_unknown_event_is_our_own_mistake() -> None:
    """A word that stands in no chart is no refusal to be answered, but a KeyError to be mended."""
    with pytest.raises(KeyError):
        Interpreter(CHARTS["session"]).advance(NONE, "to_active", OPEN)


def test_one_interpreter_serves_all_actors() -> None:
    """`advance` remembers nothing: steps of many actors may alternate, and a refusal leaves no trace."""
    interpreter = Interpreter(CHARTS["pairing"])
    for _ in range(3):
        assert interpreter.advance("issued", "claim", OPEN).target == "claimed"
        with pytest.raises(EventRefused):
            interpreter.advance("approved", "claim", OPEN)
        assert interpreter.advance(NONE, "issue", OPEN).target == "issued"


def test_a_failing_guard_changes_nothing() -> None:
    """An exception inside a guard reaches the caller, and the next event is not disturbed."""

    def broken(data: Data) -> bool:
        raise ZeroDivisionError

    chart = Chart(
        "lamp", (Transition(NONE, "a", broken, "off"), Transition(NONE, "b", always, "off")), frozenset({"off"})
    )
    interpreter = Interpreter(chart)
    with pytest.raises(ZeroDivisionError):
        interpreter.advance(NONE, "a", OPEN)
    assert interpreter.advance(NONE, "b", OPEN).event == "b"
