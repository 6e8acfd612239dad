"""Keeps libraries from loading modules that are never used, or not yet: they cost memory, and time at each start."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Inside the block an import of one of these modules raises ImportError; a module that is loaded already stays."""
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def lazily(*names: str) -> None:
    """Whoever imports one of these modules as a whole from now on gets it at once; it is loaded when something of it is
    used. (importlib's own LazyLoader loads a module when it is imported a second time.)"""
    for name in names:
        sys.modules.setdefault(name, _Later(name))


class _Later(ModuleType):
    """Stands for a module until something of it is asked for, and has all of it from then on."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python asks of any module when it is imported
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        module = import_module(self.__name__)
        vars(self).update(vars(module))
        return getattr(module, name)
