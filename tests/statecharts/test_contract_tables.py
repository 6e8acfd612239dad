"""The charts say what the contract's tables say: tests/data/contract_tables.md holds both, side by side."""

from hashlib import sha256
from pathlib import Path

import pytest

from hatchway.statecharts.catalogue import CHARTS
from hatchway.statecharts.chart import Chart, Transition, always

TABLES = (Path(__file__).parents[1] / "data" / "contract_tables.md").read_text()

CONTRACT = {
    "pairing": ("## 3.1 Pairing code", "bcaf68cdf94ad67c4cf9052f19e93b1cb71b8473eaa7ed7cce1d429046839bc4"),
    "session": ("## 3.2 Session", "0ea6c1019c1d7fce905db8c3c89cb86d554990ecf1ff03cb5f21b6d654b3f016"),
}
"""Where each chart's table stands, and the SHA-256 of its lines as the contract has them."""


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def lines_of(name: str) -> list[str]:
    part = TABLES.split(CONTRACT[name][0])[1].split("\n## ")[0]
    return [line for line in part.splitlines() if line.startswith("|")]


def pairs(name: str) -> list[tuple[list[str], list[str]]]:
    """Of each row: the contract's five cells, and ours."""
    return [(cells(line)[::2], cells(line)[1::2]) for line in lines_of(name)[2:]]


def contract_rows(chart: Chart) -> list[Transition]:
    return [row for row in chart.rows if not row.ours]


@pytest.mark.parametrize("name", CONTRACT)
def test_the_contracts_column_is_word_for_word(name: str) -> None:
    """Our columns taken away, the table is the contract's, to the letter."""
    rows = [cells(line)[::2] for line in lines_of(name)]
    plain = ["|---|---|---|---|---|" if row[0] == "---" else f"| {' | '.join(row)} |" for row in rows]
    assert sha256("\n".join(plain).encode()).hexdigest() == CONTRACT[name][1]


@pytest.mark.parametrize("name", CONTRACT)
def test_our_column_is_the_chart(name: str) -> None:
    """Row by row, in the contract's order, our words are the chart's own; no contract row is left out."""
    chart = CHARTS[name]
    assert [ours for _, ours in pairs(name)] == [our_cells(chart, row) for row in contract_rows(chart)]


def our_cells(chart: Chart, row: Transition) -> list[str]:
    effects = ", ".join(f"`{effect}`" for effect in row.effects)
    delay = chart.delays.get(row.target)
    if delay:
        after = delay.seconds if isinstance(delay.seconds, str) else f"{delay.seconds:g} s"
        effects += f"; `{delay.event}` after `{after}`"
    return [f"`{word}`" for word in (row.state, row.event, row.guard.__name__, row.target)] + [effects]


@pytest.mark.parametrize("name", CONTRACT)
def test_states_bear_the_contracts_names(name: str) -> None:
    """`issued (waiting)` is `issued`, `(none)` is `none`: a state never gets a word of ours."""
    for (state, *_, target, _), row in zip([row for row, _ in pairs(name)], contract_rows(CHARTS[name]), strict=True):
        assert (row.state, row.target) == (state.strip("()"), target.split(" (")[0])


@pytest.mark.parametrize("name", CONTRACT)
def test_a_row_is_guarded_where_the_contract_has_a_condition(name: str) -> None:
    """`always` and `none` are the guard `always`; every other condition is a guard of its own."""
    for (_, _, condition, *_), row in zip([row for row, _ in pairs(name)], contract_rows(CHARTS[name]), strict=True):
        assert (row.guard is always) == (condition in ("always", "none"))


def test_a_code_is_consumed_where_the_contract_says_so() -> None:
    """`(consumed)` beside the next state, or `Code consumed` among the effects, is `consume_code`; nowhere else."""
    for (*_, target, effects), row in zip(
        [row for row, _ in pairs("pairing")], contract_rows(CHARTS["pairing"]), strict=True
    ):
        assert ("consume" in (target + effects).lower()) == ("consume_code" in row.effects)


def test_time_events_are_the_contracts_elapsing_rows() -> None:
    """A row whose trigger is time passing is sent by a delay, of the contract's 30 seconds; no other row is."""
    for name in CONTRACT:
        chart = CHARTS[name]
        for (_, trigger, *_), row in zip([row for row, _ in pairs(name)], contract_rows(chart), strict=True):
            delay = chart.delays.get(row.state)
            timed = any(word in trigger for word in ("seconds pass", "window", "elapses"))
            assert timed == (delay is not None and delay.event == row.event)
            if "30 seconds" in trigger:
                assert delay is not None
                assert delay.seconds == 30
