"""Every form of a chart says what its rows say, and the pictures can be read: nothing lies on anything else."""

from __future__ import annotations

import json
import re
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatchway.statecharts.catalogue import CHARTS
from hatchway.statecharts.chart import NONE, Chart, Delay, Transition, always
from hatchway.statecharts.draw.exports import scxml, xstate
from hatchway.statecharts.draw.layout import LETTER, Box, Layout, caption, lay_out
from hatchway.statecharts.draw.picture import svg
from hatchway.statecharts.draw.render import FORMATS, as_json, mermaid, table

each_chart = pytest.mark.parametrize("chart", CHARTS.values(), ids=CHARTS)


@st.composite
def charts(draw: st.DrawFn) -> Chart:
    """Any sound chart of up to seven states: forks, joins, ways back, loops, rows side by side."""
    names = [NONE, *(f"state{number}" for number in range(draw(st.integers(1, 6))))]
    ways = draw(st.lists(st.tuples(st.sampled_from(names[:-1]), st.sampled_from(names[1:])), max_size=10))
    rows = [Transition(one, "go", always, other) for one, other in pairwise(names)]
    rows += [Transition(one, f"event{number}", always, other) for number, (one, other) in enumerate(ways)]
    return Chart("any", tuple(rows), frozenset({names[-1]}))


def overlap(one: Box, other: Box) -> bool:
    return (
        one.x < other.x + other.width
        and other.x < one.x + one.width
        and one.y < other.y + other.height
        and other.y < one.y + one.height
    )


def label_boxes(chart: Chart, layout: Layout) -> list[Box]:
    boxes = []
    for row, line in zip(chart.rows, layout.lines, strict=True):
        event, condition = caption(chart, row)
        width, height = max(len(event), len(condition)) * LETTER, 26 if condition else 13
        boxes.append(Box(line.label[0] - width / 2, line.label[1] + 7 - height, width, height))
    return boxes


def check_picture(chart: Chart) -> None:
    layout = lay_out(chart)
    things = [*layout.boxes.values(), *label_boxes(chart, layout)]
    assert not [pair for pair in combinations(things, 2) if overlap(*pair)]
    for thing in things:
        assert thing.x >= 0
        assert thing.y >= 0
        assert thing.x + thing.width <= layout.width
        assert thing.y + thing.height <= layout.height
    for row, line in zip(chart.rows, layout.lines, strict=True):
        assert touches(layout.boxes[row.state], line.points[0])
        assert touches(layout.boxes[row.target], line.points[-1])
        assert all(0 <= x <= layout.width and 0 <= y <= layout.height for x, y in line.points)
    assert len({(line.points[0], line.points[-1]) for line in layout.lines}) == len(layout.lines)


def touches(box: Box, point: tuple[float, float]) -> bool:
    """Whether the point lies on the box's rim."""
    (x, y), slack = point, 1e-6
    inside = box.x - slack <= x <= box.x + box.width + slack and box.y - slack <= y <= box.y + box.height + slack
    rim = min(abs(x - box.x), abs(x - box.x - box.width), abs(y - box.y), abs(y - box.y - box.height))
    return inside and rim < slack


@each_chart
def test_the_picture_can_be_read(chart: Chart) -> None:
    """No state or label overlaps another, all lie inside the frame, and each line runs from state to next state."""
    check_picture(chart)


@given(charts())
def test_any_sound_chart_can_be_drawn(chart: Chart) -> None:
    """The same holds for charts that nobody has thought of yet, ways back and parallel rows included."""
    check_picture(chart)


LEAD_BACK = {("queued", "place")}
"""Rows to a state that was there before."""


@each_chart
def test_states_stand_in_the_order_of_time(chart: Chart) -> None:
    """A row leads from left to right unless it leads back: the picture reads like the table."""
    boxes = lay_out(chart).boxes
    rows = [row for row in chart.rows if row.state != row.target]
    assert all((boxes[row.state].x > boxes[row.target].x) == ((row.state, row.event) in LEAD_BACK) for row in rows)


@each_chart
def test_the_table_has_the_specifications_columns(chart: Chart) -> None:
    """Five columns, one line a row, in order; rows of our own are marked, delays and guards are told."""
    lines = table(chart).split("\n\n")[0].splitlines()
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert found[0] == ["State", "Event", "Condition", "Next state", "Effects"]
    assert len({len(line) for line in lines}) == 1
    for row, (state, event, condition, target, effects) in zip(chart.rows, found[2:], strict=True):
        assert (state.strip("()"), event.split(" ")[0], condition, target) == (
            row.state,
            row.event,
            row.guard.__name__,
            row.target,
        )
        assert tuple(filter(None, effects.split(", "))) == row.effects
        assert event.endswith("*") == row.ours
        delay = chart.delays.get(row.state)
        assert ("(after " in event) == (delay is not None and delay.event == row.event)


def test_a_chart_without_own_rows_has_no_note() -> None:
    """The footnote stands only where a row needs it."""
    rows = (Transition(NONE, "go", always, "done"),)
    assert table(Chart("plain", rows, frozenset({"done"}))).endswith("|\n")


@each_chart
def test_mermaid_has_every_row(chart: Chart) -> None:
    """One arrow a row, from `[*]` at the start, and to `[*]` from every final state."""
    lines = [line.strip() for line in mermaid(chart).splitlines()]
    assert lines[0] == "stateDiagram-v2"
    arrows = [re.fullmatch(r"(\S+) --> (\S+)(?:: (.+))?", line) for line in lines[2:]]
    found = [arrow.groups() for arrow in arrows if arrow]
    rows = [("[*]" if row.state == NONE else row.state, row.target, row.event) for row in chart.rows]
    assert [(one, other, words.split()[0]) for one, other, words in found if words] == rows
    assert {one for one, other, words in found if words is None and other == "[*]"} == chart.final


@each_chart
def test_svg_is_well_formed_and_whole(chart: Chart) -> None:
    """An SVG that parses, without scripts or outside references; each state, event and effect is in it."""
    text = svg(chart)
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == space + "svg"
    words = [element.text for element in root.iter(space + "text")]
    assert set(chart.states) <= set(words)
    assert [words.count(row.event) for row in chart.rows] == [
        sum(other.event == row.event for other in chart.rows) for row in chart.rows
    ]
    assert len(list(root.iter(space + "polyline"))) == len(chart.rows)
    titles = [element.text for element in root.iter(space + "title")]
    assert titles == [", ".join(row.effects) or "no effect" for row in chart.rows]
    assert "script" not in text
    assert re.findall(r"https?:[^\"]*", text) == ["http://www.w3.org/2000/svg"]


@each_chart
def test_json_is_what_the_console_draws(chart: Chart) -> None:
    """States, rows and delays with their places, in whole JSON; as the console's board reads them."""
    value = json.loads(FORMATS["json"](chart))
    assert value == as_json(chart)
    assert set(value) == {"name", "initial", "final", "states", "rows", "delays", "width", "height"}
    assert (value["name"], value["initial"]) == (chart.name, NONE)
    assert [state["name"] for state in value["states"]] == list(chart.states)
    assert {state["name"] for state in value["states"] if state["final"]} == set(value["final"]) == chart.final
    assert all(set(state) == {"name", "x", "y", "width", "height", "final"} for state in value["states"])
    rows = [
        (row["state"], row["event"], row["guard"], row["target"], row["effects"], row["ours"]) for row in value["rows"]
    ]
    assert rows == [
        (row.state, row.event, row.guard.__name__, row.target, list(row.effects), row.ours) for row in chart.rows
    ]
    assert all(set(row["label"]) == {"x", "y"} and len(row["points"]) > 2 for row in value["rows"])
    assert value["delays"] == [
        {"state": state, "event": delay.event, "seconds": delay.seconds, "clock": delay.clock}
        for state, delay in chart.delays.items()
    ]


SCXML = "{http://www.w3.org/2005/07/scxml}"


@each_chart
def test_scxml_sends_its_own_delays(chart: Chart) -> None:
    """With delays, a state sends itself its time event on entry and cancels it on exit; without, it does neither."""
    root = ElementTree.fromstring(scxml(chart))
    sent = {
        state.get("id"): (send.get("event"), send.get("delay") or send.get("delayexpr"), cancel.get("sendid"))
        for state in root.iter(SCXML + "state")
        for send in state.iter(SCXML + "send")
        for cancel in state.iter(SCXML + "cancel")
    }
    assert sent == {
        state: (
            delay.event,
            delay.seconds if isinstance(delay.seconds, str) else f"{delay.seconds:g}s",
            delay.event,
        )
        for state, delay in chart.delays.items()
    }
    assert not list(ElementTree.fromstring(scxml(chart, delays=False)).iter(SCXML + "send"))


@each_chart
def test_scxml_has_every_row(chart: Chart) -> None:
    """One transition a row with its condition, target and effects; final states are `<final>`."""
    root = ElementTree.fromstring(scxml(chart))
    found = [
        (state.get("id"), way.get("event"), way.get("target"), [log.get("expr") for log in way])
        for state in root.iter(SCXML + "state")
        for way in state.iter(SCXML + "transition")
    ]
    rows = [(row.state, row.event, row.target, [f"'{effect}'" for effect in row.effects]) for row in chart.rows]
    assert sorted(found) == sorted(rows)
    assert {final.get("id") for final in root.iter(SCXML + "final")} == chart.final


def test_xstate_knows_delays_in_milliseconds() -> None:
    """A time event becomes `after`, guards and actions go by name, and a row back to its own state re-enters."""
    pairing, session = xstate(CHARTS["pairing"]), xstate(CHARTS["session"])
    assert pairing["states"]["issued"]["after"] == {"30000": [{"target": "expired", "actions": ["consume_code"]}]}
    assert "claim_elapsed" not in pairing["states"]["issued"]["on"]
    assert pairing["states"]["issued"]["on"]["claim"][0]["guard"] == "within_claim_window"
    assert session["states"]["active"]["on"]["renew"] == [
        {"target": "active", "actions": ["issue_token"], "reenter": True}
    ]
    assert list(session["states"]["active"]["after"]) == ["session_lifetime"]
    assert session["states"]["ended"] == {"type": "final"}


@pytest.mark.parametrize("form", FORMATS)
def test_a_form_is_text_that_ends_its_line(form: str) -> None:
    """Whatever the form, the command can print it as it is, twice the same."""
    for chart in CHARTS.values():
        text = FORMATS[form](chart)
        assert text.endswith("\n")
        assert not text.endswith("\n\n")
        assert text == FORMATS[form](chart)


def test_a_sub_second_delay_is_told_as_it_is() -> None:
    """Half a second reads `0.5 s`, and is 500 for XState."""
    rows = (Transition(NONE, "go", always, "on"), Transition("on", "tick", always, "off"))
    blink = Chart("blink", rows, frozenset({"off"}), {"on": Delay(0.5, "tick")})
    assert "tick (after 0.5 s)" in table(blink)
    assert list(xstate(blink)["states"]["on"]["after"]) == ["500"]
