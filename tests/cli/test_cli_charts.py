"""`hatchway chart show` and `chart check` on charts of others: drawn, checked, and refused in words."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hatchway.statecharts.draw.render import FORMATS
from tests.readme import CHAPTERS
from tests.support.command import run
from tests.support.fakes import ROOT

LEASE = f"{ROOT}/tests/examples/lease.py:CHART"

BEGIN = """
from hatchway.charts import NONE, Chart, Delay, Transition, always
"""


@pytest.mark.parametrize("form", FORMATS)
def test_anybodys_chart_is_drawn(form: str) -> None:
    """In every form."""
    shown = run("chart", "show", LEASE, "--format", form).output
    assert "warned" in shown


def test_a_chart_is_checked() -> None:
    """What is said of the example stands in the handbook; programs get the same as JSON."""
    told = run("chart", "check", LEASE).output
    assert f"$ hatchway chart check lease.py:CHART\n{told}```" in CHAPTERS["charts"].read_text()
    facts = json.loads(run("chart", "check", LEASE, "--json").output)
    assert facts["states"]["expired"] == ["request", "grant", "warning_elapsed", "lease_elapsed"]
    assert facts["delays"]["warned"] == {"event": "lease_elapsed", "leads_to": "expired", "seconds": 300.0}
    assert facts["events"]["extend"]["warned"] == "granted [is_the_holder]"


@pytest.mark.parametrize("name", ["pairing", "session", "instance"])
def test_ours_are_checked_too(name: str) -> None:
    """By their names."""
    assert "faults none" in run("chart", "check", name).output


def test_every_fault_is_told(tmp_path: Path) -> None:
    """With exit code 1."""
    path = tmp_path / "bad.py"
    path.write_text(
        BEGIN
        + "CHART = Chart('bad', (Transition(NONE, 'go', always, 'on'), Transition('off', 'go', always, 'on')),"
        + " frozenset(), {'on': Delay(1, 'late')})\n"
    )
    told = run("chart", "check", f"{path}:CHART", code=1).stderr
    for fault in ("'late' must leave 'on'", "'on' is a trap", "'off' is never reached"):
        assert fault in told


@pytest.mark.parametrize(
    ("text", "variable", "code", "words"),
    [
        ("import nothing_of_the_kind\n", "CHART", 1, "can't be run: ModuleNotFoundError: No module named"),
        ("raise SystemExit(3)\n", "CHART", 1, "can't be run: SystemExit: 3"),
        ("CHART = 5\n", "CHART", 2, "has no chart named 'CHART'"),
        (BEGIN + "MINE = Chart('m', (Transition(NONE, 'go', always, 'on'),), frozenset({'on'}))\n", "CHART", 2, "MINE"),
        (None, "CHART", 2, "there is no Python file"),
    ],
)
def test_what_is_no_chart(tmp_path: Path, text: str | None, variable: str, code: int, words: str) -> None:
    """The one reason is told, in words."""
    path = tmp_path / "theirs.py"
    if text is not None:
        path.write_text(text)
    assert words in re.sub(r"\s+", " ", run("chart", "show", f"{path}:{variable}", code=code).stderr)


def test_a_file_imports_its_neighbours(tmp_path: Path) -> None:
    """As it does where it is run."""
    (tmp_path / "neighbour_of_a_chart.py").write_text("NAME = 'of a neighbour'\n")
    (tmp_path / "theirs.py").write_text(
        BEGIN
        + "from neighbour_of_a_chart import NAME\n"
        + "CHART = Chart(NAME, (Transition(NONE, 'go', always, 'on'),), frozenset({'on'}))\n"
    )
    assert "of a neighbour: states 1, rows 1" in run("chart", "check", f"{tmp_path}/theirs.py:CHART").output
