"""What the explorer takes of trio that trio does not promise: all of it, and a check that it is there.

The explorer stands in for the dice by which trio orders its tasks, sees which tasks can run, and lets one of them run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from unittest.mock import patch

import trio
from trio.testing import MockClock

KNOWN = ("0.35",)
"""The versions of trio that this was tried with, without their last number."""

NAMES = {
    "trio._core._run": ("_r", "_ALLOW_DETERMINISTIC_SCHEDULING", "GLOBAL_RUN_CONTEXT"),
    "Runner": ("runq", "tasks", "main_task"),
    "Task": ("_counter", "_next_send", "_cancel_status", "custom_sleep_data"),
    "MockClock": ("_autojump",),
}
"""The names that are used, by where they stand."""


class Dice(Protocol):
    """What trio orders its tasks by."""

    def random(self) -> float:
        """A number below 1."""

    def shuffle(self, batch: list[Any]) -> None:
        """Order the tasks that run in this tick of the loop; the last one runs first."""


def check_trio() -> None:
    """Raises ImportError, in words, where this trio is another than the explorer knows."""
    version = ".".join(trio.__version__.split(".")[:2])
    module = trio._core._run
    places: dict[str, Any] = {
        "trio._core._run": vars(module),
        "Runner": {field.name for field in module.Runner.__attrs_attrs__},
        "Task": {field.name for field in module.Task.__attrs_attrs__},
        "MockClock": vars(MockClock),
    }
    missing = [f"{place}.{name}" for place, names in NAMES.items() for name in names if name not in places[place]]
    if version not in KNOWN or missing:
        lacks = f"; it lacks {', '.join(missing)}" if missing else ""
        raise ImportError(
            f"the explorer was tried with trio {', '.join(KNOWN)}, and this is trio {trio.__version__}{lacks}:"
            " install a trio that it knows, or a newer Hatchway"
        )


check_trio()


def runner() -> Any:
    """What runs the tasks of this run of trio."""
    return trio._core._run.GLOBAL_RUN_CONTEXT.runner


def put_off(tasks: list[Any]) -> None:
    """These run in a later tick."""
    runner().runq.extend(tasks)


def will_wake(task: Any) -> tuple[Any, ...]:
    """What the task is to be woken with, what it sleeps on, and what may cancel it."""
    return task._next_send, task.custom_sleep_data, task._cancel_status


def wakes_by_error(task: Any) -> bool:
    """Whether the task is to be woken by an error, as one that is cancelled is."""
    return type(task._next_send).__name__ == "Error"


def is_trios_own(task: Any) -> bool:
    """Trio's own tasks: their names are in angle brackets."""
    return str(task.name).startswith("<")


@contextmanager
def ordered_by(dice: Dice) -> Iterator[None]:
    """Runs of trio that begin in here order their tasks by `dice`."""
    with (
        patch.object(trio._core._run, "_r", dice),
        patch.object(trio._core._run, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
    ):
        yield


def jumping_clock(when_idle: Callable[[MockClock], None], seconds: float) -> MockClock:
    """A clock for `trio.run` that calls `when_idle` once nobody has been able to run for so many seconds."""
    clock = MockClock(autojump_threshold=seconds)
    clock._autojump = lambda: when_idle(clock)  # type: ignore[method-assign]
    return clock
