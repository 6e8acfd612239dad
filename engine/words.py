"""Numbers in sentences for people."""

from __future__ import annotations


def counted(number: int, one: str, verb: str = "") -> str:
    """`1 wrong code`, `2 wrong codes`; with `verb` in the plural, `have` or `are`, also that in its number."""
    singular = number == 1
    words = f"{number} {one}" if singular else f"{number} {one}s"
    return f"{words} {_SINGULAR[verb] if singular else verb}" if verb else words


_SINGULAR = {"are": "is", "have": "has"}
