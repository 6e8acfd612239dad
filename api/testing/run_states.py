"""The state of a run of trio in a few bytes: where each task stands, and every value that its future depends on.

From each task the walk goes on through frames, their values, and the objects that those hold. Two runs with the same
digest go on alike. What can't be looked into gets a mark of its own each time: such states are never taken for one.
"""

from __future__ import annotations

import gc
import itertools
import types
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import trio

from hatchway.api.testing.trio_inside import is_trios_own, runner, will_wake

MOST_OBJECTS = 20_000
"""Objects of one state; past it the world is too large to be compared so."""

PLAIN = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), type(NotImplemented))
NAMED = (type, types.ModuleType, types.BuiltinFunctionType, types.CodeType, types.GenericAlias, types.FrameType)
RUNNING = (types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType)

NOT_STATE = frozenset({"_counter", "_runner", "context", "_cancel_points", "_schedule_points", "_abort_func"})
"""Attributes of trio's objects that count, or lead to everything."""

_fresh = itertools.count()
_trio_folder = str(Path(trio.__file__).parent)


class Watching:
    """What looks at a run, and is no part of it."""


class StateTooLarge(Exception):
    """A run holds more objects than can be compared: give the world a `state` of its own."""


class _Walk:
    def __init__(self, label: Callable[[Any], str]) -> None:
        self._label = label
        self._hash = blake2b(digest_size=16)
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []
        self._queue: list[Any] = []

    def digest(self, roots: list[Any]) -> bytes:
        self._queue = [roots]
        while self._queue:
            self._take(self._queue.pop())
        return self._hash.digest()

    def _tell(self, *words: object) -> None:
        self._hash.update(repr(words).encode("utf-8", "backslashreplace"))

    def _later(self, values: list[Any]) -> None:
        self._tell(len(values))
        self._queue.extend(reversed(values))

    def _take(self, value: Any) -> None:
        if isinstance(value, PLAIN) and type(value).__module__ == "builtins":
            self._tell(type(value).__name__, value)
            return
        if isinstance(value, trio.lowlevel.Task):
            self._tell("task", self._label(value))
            return
        if isinstance(value, (*NAMED, Watching)):
            self._tell("name", getattr(value, "__qualname__", getattr(value, "__name__", type(value).__name__)))
            return
        number = self._seen.setdefault(id(value), len(self._seen))
        if number < len(self._kept):
            self._tell("again", number)
            return
        self._kept.append(value)  # no other object may get its address meanwhile
        if len(self._kept) > MOST_OBJECTS:
            raise StateTooLarge(f"more than {MOST_OBJECTS} objects belong to the state: give the world a state()")
        self._tell(type(value).__qualname__)
        self._later(list(_parts(value)))


def _parts(value: Any) -> Iterator[Any]:
    """What a value is made of, in an order that is the same for the same value."""
    if isinstance(value, RUNNING):
        yield from _frame(value)
    elif isinstance(value, types.FunctionType):
        yield value.__qualname__
        yield from (value.__closure__ or (), value.__defaults__ or (), value.__kwdefaults__ or {})
    elif isinstance(value, types.MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, types.CellType):
        yield from gc.get_referents(value)
    elif isinstance(value, partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, BaseException):
        yield from (value.args, vars(value))
    elif _is_opaque(value):
        yield next(_fresh)
    else:
        yield from _of_container(value)
        yield from _attributes(value)


def _of_container(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from (part for item in value.items() for part in item)
    elif isinstance(value, (set, frozenset)):
        yield from sorted(value, key=_rank)
    elif isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
        yield from value
    elif isinstance(value, (bytearray, memoryview)):
        yield bytes(value)
    elif isinstance(value, PLAIN):  # of a class of its own
        yield repr(value)


def _rank(value: Any) -> str:
    """Sets have no order: their members get one, by what they say of themselves, which holds no address."""
    if isinstance(value, PLAIN):
        return repr(value)
    name = getattr(value, "name", "")
    return f"{type(value).__qualname__} {name if isinstance(name, str) else ''} {getattr(value, '_counter', '')}"


def _is_opaque(value: Any) -> bool:
    """Whether a C object keeps something that neither attributes nor a copy of it would show."""
    if hasattr(value, "__dict__") or isinstance(value, (dict, set, frozenset, list, tuple, bytearray, *PLAIN)):
        return False
    if type(value).__name__ == "deque" or any("__slots__" in vars(kind) for kind in type(value).__mro__):
        return False
    return _reduced(value) is None


def _reduced(value: Any) -> Any:
    """How a C object would be copied: an iterator tells its place so."""
    try:
        return value.__reduce_ex__(4)
    except Exception:
        return None


def _attributes(value: Any) -> Iterator[Any]:
    kind = type(value)
    if hasattr(value, "__dict__"):
        yield from (part for name, held in vars(value).items() if name not in NOT_STATE for part in (name, held))
    slots = [name for base in kind.__mro__ for name in _slots(vars(base).get("__slots__", ()))]
    yield from (getattr(value, name, None) for name in slots if name not in ("__weakref__", "__dict__", *NOT_STATE))
    plain = isinstance(value, (dict, set, frozenset, list, tuple, bytearray, *PLAIN)) or kind.__name__ == "deque"
    if not plain and not slots and not hasattr(value, "__dict__"):
        yield _reduced(value)


def _slots(named: Any) -> tuple[str, ...]:
    return (named,) if isinstance(named, str) else tuple(named)


def _frame(running: Any) -> Iterator[Any]:
    """Where a coroutine stands, what its variables hold, and what its half-done expressions do."""
    frames = (getattr(running, name, None) for name in ("cr_frame", "gi_frame", "ag_frame"))
    frame = next(filter(None, frames), None)
    yield running.__qualname__
    if frame is None:
        return
    yield frame.f_lasti
    yield from gc.get_referents(running)
    if not frame.f_code.co_filename.startswith(_trio_folder) and "site-packages" not in frame.f_code.co_filename:
        for name in frame.f_code.co_names:
            held = frame.f_globals.get(name)
            if not isinstance(held, (*NAMED, types.FunctionType)):
                yield from (name, held)


def state_of_run(runnable: list[Any], label: Callable[[Any], str], *more: Any) -> bytes:
    """A digest of this run: its tasks, its clock, and `more`. Raises StateTooLarge."""
    tasks = sorted((task for task in runner().tasks if not is_trios_own(task)), key=label)
    stand = [(label(task), task in runnable, *will_wake(task), task.coro) for task in tasks]
    return _Walk(label).digest([trio.current_time(), stand, list(more)])
