"""Numbers in sentences."""

from __future__ import annotations

import pytest

from hatchway.engine.base.text import counted


@pytest.mark.parametrize(
    ("number", "verb", "words"),
    [
        (0, "", "0 wrong codes"),
        (1, "", "1 wrong code"),
        (2, "", "2 wrong codes"),
        (1, "have", "1 wrong code has"),
        (1, "are", "1 wrong code is"),
        (3, "have", "3 wrong codes have"),
    ],
)
def test_one_is_no_plural(number: int, verb: str, words: str) -> None:
    """One thing is told as one, whatever the verb."""
    assert counted(number, "wrong code", verb) == words
