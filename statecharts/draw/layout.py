"""Where the states and rows of a chart stand in a picture: columns from left to right, a label on every row's line."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from hatchway.statecharts.chart import Chart, Transition, always
from hatchway.statecharts.draw.ranks import Slot, columns_of

Point = tuple[float, float]

STATE_HEIGHT, LABEL_HEIGHT, BEND_HEIGHT, LOOP_HEIGHT = 38.0, 42.0, 14.0, 46.0
"""Height in pixels of a state's box, of a label of two lines, of a line that passes a column, and of a row that leads
back to its own state."""

LETTER, PADDING, GAP, MARGIN = 6.8, 16.0, 26.0, 24.0
"""Width in pixels of a letter at 12 px, of the space beside a text, between two columns, and around the picture."""

STEPS = 10
"""Straight pieces that make up one curve."""


class Box(NamedTuple):
    """A state's rectangle; `x`, `y` is its upper left corner."""

    x: float
    y: float
    width: float
    height: float


class Edge(NamedTuple):
    """A row's line from state to state, with an arrow at its end; `label` is the middle of the lower line of its
    text."""

    label: Point
    points: list[Point]


class Layout(NamedTuple):
    """Everything in pixels; `lines` are in the order of the chart's rows."""

    width: float
    height: float
    boxes: dict[str, Box]
    lines: list[Edge]


def caption(chart: Chart, row: Transition) -> tuple[str, str]:
    """The two lines of a row's label: its event, and its condition or delay ('' if neither)."""
    delay = chart.delays.get(row.state)
    if delay and delay.event == row.event:
        return row.event, f"after {seconds(delay.seconds)}"
    return row.event, "" if row.guard is always else f"[{row.guard.__name__}]"


def seconds(value: float | str) -> str:
    """`30 s`, or a rule's name."""
    return value if isinstance(value, str) else f"{value:g} s"


def lay_out(chart: Chart) -> Layout:
    """The layout of a chart. It is always the same for the same chart."""
    columns, chains = columns_of(chart)
    heights = {slot: _height(chart, slot) for column in columns for slot in column}
    middles = _spread(columns, chains, heights)
    lefts, widths = _across(chart, columns)
    boxes = {}
    for column, left, width in zip(columns, lefts, widths, strict=True):
        names = [slot for slot in column if isinstance(slot, str)]
        own = _text_width("", *names)
        for name in names:
            boxes[name] = Box(left + (width - own) / 2, middles[name] - STATE_HEIGHT / 2, own, STATE_HEIGHT)
    spans = [(left, left + width) for left, width in zip(lefts, widths, strict=True)]
    ports = _ports(chart, chains, boxes, middles)
    lines = [_line(chart, index, chains, boxes, middles, spans, ports) for index in range(len(chart.rows))]
    height = max(middles[slot] + heights[slot] / 2 for slot in middles) + MARGIN
    return Layout(lefts[-1] + widths[-1] + MARGIN, height, boxes, lines)


def _text_width(*texts: str) -> float:
    return max(map(len, texts)) * LETTER + 2 * PADDING


def _loops(chart: Chart, state: str) -> list[int]:
    return [index for index, row in enumerate(chart.rows) if row.state == row.target == state]


def _height(chart: Chart, slot: Slot) -> float:
    if isinstance(slot, str):
        return STATE_HEIGHT + 2 * LOOP_HEIGHT * len(_loops(chart, slot)) + 12
    return LABEL_HEIGHT if slot.labelled else BEND_HEIGHT


def _across(chart: Chart, columns: list[list[Slot]]) -> tuple[list[float], list[float]]:
    """The left edge and the width of each column."""
    lefts, widths, left = [], [], MARGIN
    for column in columns:
        texts = [""]
        for slot in column:
            if isinstance(slot, str):
                texts += [slot, *(text for index in _loops(chart, slot) for text in caption(chart, chart.rows[index]))]
            elif slot.labelled:
                texts += caption(chart, chart.rows[slot.row])
        lefts.append(left)
        widths.append(_text_width(*texts))
        left += widths[-1] + GAP
    return lefts, widths


def _spread(columns: list[list[Slot]], chains: dict[int, list[Slot]], heights: dict[Slot, float]) -> dict[Slot, float]:
    """The vertical middle of each slot: near those that it is linked to, in the column's order, without overlap."""
    beside: dict[Slot, list[Slot]] = {slot: [] for slot in heights}
    for chain in chains.values():
        for one, other in pairwise(chain):
            beside[one].append(other)
            beside[other].append(one)
    middles: dict[Slot, float] = dict.fromkeys(heights, 0.0)
    for _ in range(24):
        for column in columns:
            wishes = [sum(middles[other] for other in beside[slot]) / max(len(beside[slot]), 1) for slot in column]
            for slot, middle in zip(column, _apart(wishes, [heights[slot] for slot in column]), strict=True):
                middles[slot] = middle
    top = min(middles[slot] - heights[slot] / 2 for slot in middles) - MARGIN
    return {slot: middle - top for slot, middle in middles.items()}


def _apart(wishes: list[float], heights: list[float]) -> list[float]:
    """The wished middles, moved as little as it takes for neighbours not to overlap, in the same order.

    It pools those that overlap and gives them the average (pool adjacent violators).
    """
    offsets = [0.0]
    for above, below in pairwise(heights):
        offsets.append(offsets[-1] + (above + below) / 2)
    pools: list[tuple[float, int]] = []
    for wish, offset in zip(wishes, offsets, strict=True):
        mean, count = wish - offset, 1
        while pools and pools[-1][0] > mean:
            other, more = pools.pop()
            mean, count = (mean * count + other * more) / (count + more), count + more
        pools.append((mean, count))
    bases = [mean for mean, count in pools for _ in range(count)]
    return [base + offset for base, offset in zip(bases, offsets, strict=True)]


def _ports(
    chart: Chart, chains: dict[int, list[Slot]], boxes: dict[str, Box], middles: dict[Slot, float]
) -> dict[tuple[int, str], float]:
    """Where on a state's side each row's line begins or ends, so that no two share a point."""
    sides: dict[tuple[str, bool], list[tuple[float, int]]] = {}
    for index, chain in chains.items():
        for state, beside, right in ((chain[0], chain[1], True), (chain[-1], chain[-2], False)):
            sides.setdefault((str(state), right), []).append((middles[beside], index))
    ports = {}
    for (state, _), ends in sides.items():
        box = boxes[state]
        for place, (_, index) in enumerate(sorted(ends), start=1):
            ports[index, state] = box.y + box.height * place / (len(ends) + 1)
    return ports


def _line(
    chart: Chart,
    index: int,
    chains: dict[int, list[Slot]],
    boxes: dict[str, Box],
    middles: dict[Slot, float],
    spans: list[tuple[float, float]],
    ports: dict[tuple[int, str], float],
) -> Edge:
    row = chart.rows[index]
    if row.state == row.target:
        loops = _loops(chart, row.state)
        return _loop(boxes[row.state], loops.index(index), len(loops))
    left, *between, right = chains[index]
    first, last = boxes[str(left)], boxes[str(right)]
    points = [(first.x + first.width, ports[index, str(left)])]
    label = points[0]
    for slot in between:
        assert not isinstance(slot, str)
        start, end = spans[slot.column]
        points += _bend(points[-1], (start, middles[slot]))
        points.append((end, middles[slot]))
        if slot.labelled:
            label = ((start + end) / 2, middles[slot] - 10)
    points += _bend(points[-1], (last.x, ports[index, str(right)]))
    backwards = row.state == str(right)
    return Edge(label, points[::-1] if backwards else points)


def _bend(start: Point, end: Point) -> list[Point]:
    """Points after `start` up to `end`: a curve that leaves and arrives level."""
    (x0, y0), (x1, y1) = start, end
    parts = [step / STEPS for step in range(1, STEPS + 1)]
    return [(x0 + (x1 - x0) * part, y0 + (y1 - y0) * part * part * (3 - 2 * part)) for part in parts]


def _loop(box: Box, nth: int, count: int) -> Edge:
    """A row back to its own state: an arch over the box, each further one higher and wider."""
    middle, rise, half = box.x + box.width / 2, 26.0 + nth * LOOP_HEIGHT, box.width * 0.45 * (nth + 1) / (count + 0.6)
    arch = [step / (2 * STEPS) for step in range(2 * STEPS + 1)]
    points = [(middle - half * (1 - 2 * part), box.y - rise * 4 * part * (1 - part)) for part in arch]
    return Edge((middle, box.y - rise - 10), points)
