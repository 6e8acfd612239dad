"""A chart that can't be meant is refused when it is built, in words that name the chart and the place."""

import math
import re
from dataclasses import FrozenInstanceError
from functools import partial
from typing import Any

import pytest

from hatchway.statecharts.chart import NONE, Chart, ChartFault, Data, Delay, Transition, always


def sometimes(data: Data) -> bool:
    return bool(data["now"])


T = Transition
START = T(NONE, "start", always, "on", ("light",))
STOP = T("on", "stop", always, "off", ("dim",))


def chart(*rows: Transition, final: set[str] | None = None, delays: dict[str, Delay] | None = None) -> Chart:
    return Chart("lamp", rows, frozenset({"off"} if final is None else final), delays or {})


def test_a_sound_chart_tells_its_words_in_order() -> None:
    """States and events come once, in order of appearance, `none` first; effects are a set."""
    lamp = chart(START, T("on", "dim", sometimes, "on", ("dim",)), STOP)
    assert lamp.states == (NONE, "on", "off")
    assert lamp.events == ("start", "dim", "stop")
    assert lamp.effects == {"light", "dim"}


@pytest.mark.parametrize(
    ("rows", "more", "words"),
    [
        ((), {}, "first row must start from 'none'"),
        ((T("lit", "stop", always, "off"), START, STOP), {}, "first row must start from 'none'"),
        ((STOP, START), {}, "first row must start from 'none'"),
        ((START, STOP, T("on", "back", always, NONE)), {}, "no row may lead back"),
        ((START, STOP), {"final": {"off", "burnt"}}, "'burnt' stands in no row"),
        (
            (START, STOP),
            {"final": {"off", "burnt"}, "delays": {"burnt": Delay(1, "stop")}},
            "'burnt' stands in no row",
        ),
        ((START, STOP), {"delays": {"onn": Delay(1, "stop")}}, "'onn' stands in no row"),
        ((START, STOP, STOP), {}, "a second row for 'stop' in 'on'"),
        ((START, STOP, T("on", "stop", sometimes, "on")), {}, "a second row for 'stop' in 'on'"),
        ((START, T("on", "a", sometimes, "off"), T("on", "a", sometimes, "on")), {}, "a second row for 'a' in 'on'"),
        ((START, T("on", "a", sometimes, "off"), T("on", "a", always, "off")), {}, "two rows for 'a' lead from 'on'"),
        ((START, STOP, T("off", "start", always, "on")), {}, "leaves the final state 'off'"),
        ((START, STOP), {"delays": {"on": Delay(1, "elapsed")}}, "'elapsed' must leave 'on'"),
        (
            (START, T("on", "dim", always, "dimmed"), T("dimmed", "stop", always, "off")),
            {"delays": {"on": Delay(1, "stop")}},
            "'stop' must leave 'on'",
        ),
        ((START, STOP), {"delays": {NONE: Delay(1, "stop")}}, "'stop' must leave 'none'"),
        ((START, T("on", "a", sometimes, "off")), {"delays": {"on": Delay(1, "a")}}, "'a' must leave 'on'"),
        ((START, STOP, T("dark", "x", always, "off")), {}, "'dark' is never reached"),
        ((START, STOP, T("on", "x", always, "stuck")), {}, "'stuck' is a trap"),
        ((START, STOP), {"final": set()}, "is a trap"),
        ((START, ("on", "stop", always, "off")), {}, "a row must be a Transition, not ('on', 'stop'"),
        ((START, T("on", "stop", "sometimes", "off")), {}, "'stop' in 'on': its guard must be a function"),  # type: ignore[arg-type]
        ((START, T("on", "stop", partial(sometimes), "off")), {}, "'stop' in 'on': its guard must be a function"),
        ((START, T("on", "stop", always, "off", ("dim"))), {}, "its effects must be a tuple of names"),  # type: ignore[arg-type]
        ((START, STOP), {"delays": {"on": 3}}, "the delay of 'on' must be a Delay, not 3"),
        ((START, STOP), {"delays": {"on": Delay(-1, "stop")}}, "0 or more seconds, or a rule's name, not -1"),
        ((START, STOP), {"delays": {"on": Delay(math.nan, "stop")}}, "0 or more seconds, or a rule's name, not nan"),
        ((START, STOP), {"delays": {"on": Delay(math.inf, "stop")}}, "0 or more seconds, or a rule's name, not inf"),
        ((START, STOP), {"delays": {"on": Delay(1, "stop", "day")}}, "must be 'elapsed' or 'wall', not 'day'"),  # type: ignore[arg-type]
    ],
)
def test_each_fault_is_named(rows: tuple[Transition, ...], more: dict[str, Any], words: str) -> None:
    """One chart for each thing that can be wrong with one; the message says what and where."""
    with pytest.raises(ChartFault, match=re.escape(words)) as fault:
        chart(*rows, **more)
    assert str(fault.value).startswith("lamp: ")


def test_guarded_rows_stand_before_the_unguarded_one() -> None:
    """Two rows for one event are fine as long as each can be taken; a delay's last row must be unguarded."""
    rows = (START, T("on", "a", sometimes, "on"), T("on", "a", always, "off"))
    assert chart(*rows, delays={"on": Delay(1, "a")}).events == ("start", "a")


def test_nobody_changes_a_chart() -> None:
    """Rows, delays and charts are frozen: what was checked is what runs."""
    lamp = chart(START, STOP)
    for thing, name in ((lamp, "rows"), (lamp.rows[0], "target"), (Delay(1, "stop"), "seconds")):
        with pytest.raises(FrozenInstanceError):
            setattr(thing, name, None)
