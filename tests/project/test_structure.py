"""The tree stays as easy to follow as it is: the figures of `python -m tests.structure` are bounds."""

from __future__ import annotations

import pytest

from tests import structure


def test_one_table_of_endpoints() -> None:
    """Beside it there are Quart's routes, which are made of it."""
    assert structure.route_tables() == [
        "api/http/quart_mount.py: routes of Quart",
        "api/http/table.py: the paths of endpoints",
    ]


def test_one_type_of_request() -> None:
    """From the socket to the endpoint, in workers too."""
    assert structure.request_types() == ["api/http/request.py: Request"]


@pytest.mark.process
def test_an_inspection_passes_few_modules() -> None:
    """On a connection that is there already, with a token that was inspected before."""
    assert len(structure.passed_through_the_parser()) <= 14


@pytest.mark.process
def test_an_inspection_by_a_worker_passes_few_modules() -> None:
    """Where the worker answers again, and where it asks the engine, whose modules count too."""
    hit, missed = structure.passed_by_a_worker()
    assert len(hit) <= 9
    assert len(missed) <= 20


def test_no_cycles() -> None:
    """Neither modules nor packages import one another, lazily and for types too."""
    assert structure.cycles_by_file() == []
    assert structure.cycles_by_package() == []


def test_each_class_has_a_name_of_its_own() -> None:
    """Whoever searches for one finds it."""
    assert structure.classes_named_twice() == []


def test_many_parameters_have_a_reason() -> None:
    """And no reason is left over."""
    found, known = set(structure.functions_with_many_parameters()), set(structure.MANY_PARAMETERS)
    assert not found - known, "take parameters away, or give a reason in MANY_PARAMETERS of tests/structure.py"
    assert not known - found, "take these out of MANY_PARAMETERS of tests/structure.py"


def test_what_is_set_from_outside_has_a_reason() -> None:
    """And no reason is left over."""
    known = {one for some in structure.SET_FROM_OUTSIDE.values() for one in some}
    found = set(structure.set_from_outside())
    assert not found - known, "give it to the constructor, or a reason in SET_FROM_OUTSIDE of tests/structure.py"
    assert not known - found, "take these out of SET_FROM_OUTSIDE of tests/structure.py"
