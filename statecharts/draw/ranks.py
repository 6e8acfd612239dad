"""The columns of a chart's picture: states by their distance from `none`, the labels of rows between them."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from hatchway.statecharts.chart import NONE, Chart

SWEEPS = 12
"""Passes over the columns, from left to right and back, that look for an order with few crossings; the best is
taken."""


class Via(NamedTuple):
    """The place where the line of row number `row` passes a column. In one of its columns the row has its label."""

    row: int
    column: int
    labelled: bool


Slot = str | Via
"""What a column holds: states, and lines that pass it."""


def columns_of(chart: Chart) -> tuple[list[list[Slot]], dict[int, list[Slot]]]:
    """The columns, each from top to bottom, and the chain of slots of every row that leaves its state, left to right.

    States stand in the even columns. A row's label stands in the column beside the state it leaves.
    """
    ranks, backward = _ranks(chart)
    columns: list[list[Slot]] = [[] for _ in range(2 * max(ranks.values()) + 1)]
    for state in chart.states:
        columns[2 * ranks[state]].append(state)
    chains: dict[int, list[Slot]] = {}
    for index, row in enumerate(chart.rows):
        if row.state == row.target:
            continue
        left, right = (row.target, row.state) if index in backward else (row.state, row.target)
        first, last = 2 * ranks[left] + 1, 2 * ranks[right] - 1
        own = last if index in backward else first
        vias = [Via(index, column, column == own) for column in range(first, last + 1)]
        for via in vias:
            columns[via.column].append(via)
        chains[index] = [left, *vias, right]
    return _sorted(columns, list(chains.values())), chains


def _ranks(chart: Chart) -> tuple[dict[str, int], set[int]]:
    """How many rows lead to each state on the longest way, and the rows that lead back."""
    backward: set[int] = set()
    done: list[str] = []
    _walk(chart, NONE, [], done, backward)
    ranks = dict.fromkeys(reversed(done), 0)
    for state in ranks:
        for index, row in enumerate(chart.rows):
            if row.state == state != row.target and index not in backward:
                ranks[row.target] = max(ranks[row.target], ranks[state] + 1)
    return ranks, backward


def _walk(chart: Chart, state: str, above: list[str], done: list[str], backward: set[int]) -> None:
    """Depth first; `done` ends up in reversed topological order."""
    for index, row in enumerate(chart.rows):
        if row.state == state != row.target:
            if row.target in above:
                backward.add(index)
            elif row.target not in done:
                _walk(chart, row.target, [*above, state], done, backward)
    done.append(state)


def _sorted(columns: list[list[Slot]], chains: list[list[Slot]]) -> list[list[Slot]]:
    """The columns, each in an order in which few lines cross, found by sorting each by the places of its neighbours."""
    pairs = [pair for chain in chains for pair in pairwise(chain)]
    best, fewest = columns, _crossings(columns, pairs)
    for sweep in range(SWEEPS):
        forth = sweep % 2 == 0
        columns = _sweep(columns, pairs if forth else [(right, left) for left, right in pairs], forth)
        crossed = _crossings(columns, pairs)
        if crossed < fewest:
            best, fewest = columns, crossed
    return best


def _sweep(columns: list[list[Slot]], pairs: list[tuple[Slot, Slot]], forth: bool) -> list[list[Slot]]:
    before: dict[Slot, list[Slot]] = {}
    for one, other in pairs:
        before.setdefault(other, []).append(one)
    places: dict[Slot, float] = {}
    result = []
    for column in columns if forth else columns[::-1]:
        own = {slot: float(place) for place, slot in enumerate(column)}
        means = {
            slot: sum(places[one] for one in before[slot]) / len(before[slot]) if slot in before else own[slot]
            for slot in column
        }
        result.append(sorted(column, key=means.__getitem__))
        places.update({slot: place / max(len(column), 1) for place, slot in enumerate(result[-1])})
    return result if forth else result[::-1]


def _crossings(columns: list[list[Slot]], pairs: list[tuple[Slot, Slot]]) -> int:
    places = {slot: (number, place) for number, column in enumerate(columns) for place, slot in enumerate(column)}
    ends = [(*places[left], places[right][1]) for left, right in pairs]
    return sum(
        column == other and (start - start2) * (end - end2) < 0
        for index, (column, start, end) in enumerate(ends)
        for other, start2, end2 in ends[:index]
    )
