"""Facts as they were read from a medium: equal texts of many actors are one object in memory."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TypeVar

import msgspec

FactsT = TypeVar("FactsT", bound=msgspec.Struct)


def share_texts(facts: FactsT) -> FactsT:
    """Replace the texts in facts that were just decoded by the one object that stands for each. Returns the facts.

    A decoder makes new objects for every actor. A million sessions have few identities, addresses and permissions, so
    that the copies would take three times as much memory as the sessions themselves.
    """
    for name in facts.__struct_fields__:
        value = getattr(facts, name)
        if type(value) is str:
            msgspec.structs.force_setattr(facts, name, sys.intern(value))
        elif type(value) is tuple and all(type(one) is str for one in value):
            msgspec.structs.force_setattr(facts, name, _one_object(value))
    return facts


@lru_cache(1024)
def _one_object(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(sys.intern, texts))
