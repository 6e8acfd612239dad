"""The handbook's list of licenses."""

from __future__ import annotations

import re

from tests.readme import LICENSES, closure, license_of

LISTED = dict(re.findall(r"^\| ([a-z0-9-]+) \| (.+) \|$", LICENSES.read_text(), re.MULTILINE))


def test_each_that_we_declare_is_listed() -> None:
    """Whatever pyproject.toml names has a row. What those bring along may change on any day, without us."""
    needs = {
        re.split(r"[^A-Za-z0-9._-]", text)[0].lower()
        for text in closure()["hatchway"].requires or ()
        if "dev" not in text
    }
    assert needs <= LISTED.keys()


def test_a_license_is_named_as_its_owner_names_it() -> None:
    """By the metadata of what is installed."""
    named = {name: license_of(one) for name, one in closure().items() if name in LISTED}
    assert named
    assert named.items() <= LISTED.items()
