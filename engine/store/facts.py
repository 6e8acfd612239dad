"""Facts as they were read from a medium: equal texts of many actors are one object in memory."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TypeVar

import msgspec
from msgspec.structs import force_setattr as set_field

FactsT = TypeVar("FactsT", bound=msgspec.Struct)


def share_texts(facts: FactsT) -> FactsT:
    """Replace the texts in facts that were just decoded by the one object that stands for each. Returns the facts.

    A decoder makes new objects for every actor. A million sessions have few identities, addresses and permissions, so
    that the copies would take three times as much memory as the sessions themselves.
    """
    texts, lists = _fields_of(type(facts))
    for name in texts:
        set_field(facts, name, sys.intern(getattr(facts, name)))
    for name in lists:
        set_field(facts, name, _one_object(getattr(facts, name)))
    return facts


@lru_cache
def _fields_of(kind: type[msgspec.Struct]) -> tuple[list[str], list[str]]:
    """The names of the fields that hold a text, and of those that hold any number of texts."""
    fields = msgspec.structs.fields(kind)
    texts = [field.name for field in fields if field.type is str]
    return texts, [field.name for field in fields if field.type == tuple[str, ...]]


@lru_cache(1024)
def _one_object(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(sys.intern, texts))
