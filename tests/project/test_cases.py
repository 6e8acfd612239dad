"""Every security case and field report is shown by a test that is run and can fail, as tests/data/cases.md says."""

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


FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)

NOT_RUN = {"skip", "skipif", "xfail"}
"""Marks of pytest's by which a test is left out, or may fail."""


@cache
def functions_of(module: str) -> dict[str, set[str]]:
    """The functions of a file of tests, and the names that each of them uses, its decorators' among them."""
    (path,) = (ROOT / "tests").rglob(f"{module}.py")
    return {node.name: names_in(node) for node in ast.parse(path.read_text()).body if isinstance(node, FUNCTION)}


def names_in(function: ast.AST) -> set[str]:
    """What it names; `assert` and `raise` where it has such a statement."""
    names = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Assert | ast.Raise):
            names.add(type(node).__name__.lower())
    return names


@cache
def can_fail() -> set[str]:
    """Names by which a test fails: statements, what pytest, trio and playwright give, and the tests' own functions that
    use one of these."""
    found = {"assert", "raise", "raises", "fail_after", "expect"}
    used = [
        (node.name, names_in(node))
        for path in (ROOT / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, FUNCTION)
    ]
    while more := {name for name, names in used if names & found} - found:
        found |= more
    return found


def test_the_table_has_every_case_once() -> None:
    """D1 to D40, B1 to B15 and E1 to E38, in order."""
    assert list(table()) == CASES


@pytest.mark.parametrize("case", CASES)
def test_a_case_is_shown(case: str) -> None:
    """Each test that a row names stands in its file, is never left out, and fails where something isn't as it says."""
    assert table()[case]
    for name in table()[case]:
        module, _, function = name.partition("::")
        assert function in functions_of(module), f"{case}: {name}"
        names = functions_of(module)[function]
        assert names & can_fail(), f"{case}: {name} passes whatever happens"
        assert not names & NOT_RUN, f"{case}: {name}"
