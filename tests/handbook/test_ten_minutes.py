"""The README's first ten minutes happen as they are written there."""

from __future__ import annotations

import re

import pytest

from tests.readme import README
from tests.ten_minutes import COMMANDS, first_ten_minutes


@pytest.mark.apptainer
@pytest.mark.browser
@pytest.mark.process
@pytest.mark.tools
def test_the_first_ten_minutes() -> None:
    """Clone, set up, start, pair a browser, sign in by key, start an instance, read its log, stop: in this order."""
    transcript, said = first_ten_minutes()
    assert [line.partition("$ ")[2] for line in transcript if line.startswith("[")] == list(COMMANDS)
    assert said.startswith("hello from ")


def test_the_readme_shows_these_commands() -> None:
    """The transcript in the README is of what the script types today."""
    (section,) = re.findall(r"^## A first ten minutes$(.*?)^## ", README.read_text(), re.DOTALL | re.MULTILINE)
    assert tuple(re.findall(r"^\[.*?\] \$ (.*)$", section, re.MULTILINE)) == COMMANDS
