"""The permission names of section 2.3, their grade `:READ`, and what holding one allows (section 5, rule 4)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from hatchway.engine.base.errors import InvalidRequest

FIVE = ("SHELL", "ARTIFACT", "RUNTIME", "WORKFLOW", "AGENT")
"""What a key registered without a list receives, in the specification's order."""

MASTER = "MASTER"
"""Includes all five; belongs to the engine's own key."""

READ = "READ"
"""The grade that may look and change nothing: `RUNTIME:READ`."""

_KNOWN = frozenset(FIVE) | {f"{name}:{READ}" for name in FIVE}
_LISTED = f"the names are {', '.join(FIVE)}, each also with :{READ}, joined by single commas"


def parse_permissions(text: str, *, master: bool = False) -> tuple[str, ...]:
    """The names in `text`, folded, in the specification's order; `master` also admits MASTER.

    Nothing is taken for "all": an empty, unknown or lower-case name raises `InvalidRequest`, which lists the names.
    """
    names = text.split(",")
    for name in names:
        if name not in _KNOWN and not (master and name == MASTER):
            raise InvalidRequest({"permissions": f"{_reason(name)}; {_LISTED}"})
    return fold(names)


def _reason(name: str) -> str:
    if not name:
        return "an empty name"
    if name == MASTER:
        return "MASTER belongs to the engine's own key and is not given to another"
    return f"{name[:24]!a} is not a permission"


def fold(names: Iterable[str]) -> tuple[str, ...]:
    """Each name once, at its widest grade, in the specification's order. Unknown names grant nothing: dropped."""
    held = frozenset(names)
    if MASTER in held:
        return (MASTER,)
    grades = ((name, f"{name}:{READ}") for name in FIVE)
    return tuple(full if full in held else look for full, look in grades if full in held or look in held)


def allows(held: tuple[str, ...], needed: str) -> bool:
    """Whether `held` covers `needed`: a name (may change), or `NAME:READ` (may look)."""
    if MASTER in held or needed in held:
        return True
    name, _, grade = needed.partition(":")
    return grade == READ and name in held


@lru_cache(maxsize=1024)
def cut(held: tuple[str, ...], to: tuple[str, ...]) -> tuple[str, ...]:
    """What is left of `held` (a session's) under `to` (what its key holds now): each name at the narrower grade."""
    if MASTER in held and MASTER in to:
        return (MASTER,)
    return fold(name for name in _KNOWN if allows(held, name) and allows(to, name))
