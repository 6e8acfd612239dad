"""Texts for people: numbers in sentences, and foreign text that a terminal may be shown."""

from __future__ import annotations


def counted(number: int, one: str, verb: str = "") -> str:
    """`1 wrong code`, `2 wrong codes`; with `verb` in the plural, `have` or `are`, also that in its number."""
    singular = number == 1
    words = f"{number} {one}" if singular else f"{number} {one}s"
    return f"{words} {_SINGULAR[verb] if singular else verb}" if verb else words


_SINGULAR = {"are": "is", "have": "has"}


def printable(text: str) -> str:
    """`text` with whatever a terminal could act upon spelled out; a false engine writes details too."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
