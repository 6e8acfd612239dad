"""Every security case and field report is shown by a test that exists, as tests/data/cases.md says."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.support.fakes import ROOT

CASES = [
    *(f"D{number}" for number in range(1, 41)),
    *(f"B{number}" for number in range(1, 16)),
    *(f"E{number}" for number in range(1, 39)),
]


@cache
def table() -> dict[str, list[str]]:
    """The tests that each case is shown by."""
    text = (ROOT / "tests/data/cases.md").read_text()
    rows = re.findall(r"^\| ([DBE][0-9]+) \| [^|]+ \| ([^|]+) \|", text, re.MULTILINE)
    return {case: tests.split() for case, tests in rows}


@cache
def functions_of(module: str) -> frozenset[str]:
    """The test functions of a file."""
    (path,) = (ROOT / "tests").rglob(f"{module}.py")
    tree = ast.parse(path.read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def test_the_table_has_every_case_once() -> None:
    """D1 to D40, B1 to B15 and E1 to E38, in order."""
    assert list(table()) == CASES


@pytest.mark.parametrize("case", CASES)
def test_a_case_is_shown(case: str) -> None:
    """Each test that a row names stands in its file."""
    assert table()[case]
    for name in table()[case]:
        module, _, function = name.partition("::")
        assert function in functions_of(module), f"{case}: {name}"
