"""Where a task stands: the frames of what it awaits, for a comparison and for people."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Hashable, Iterator
from typing import Any


def where(awaiting: Any) -> tuple[Hashable, ...]:
    """Where a task stands: each frame of its stack with its next instruction, and what an engine is about to do."""
    frames: list[Hashable] = []
    for frame in _stack(awaiting):
        ours = "/engine/" in frame.f_code.co_filename
        frames.append((frame.f_code.co_name, frame.f_lasti, *(_choices(frame.f_locals) if ours else ())))
    return tuple(frames)


def place(awaiting: Any) -> str:
    """Where a task stands, for people: the innermost line that is not trio's."""
    told = ""
    for frame in _stack(awaiting):
        if f"trio{'/'}_" not in frame.f_code.co_filename:
            told = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
    return told


def _stack(awaiting: Any) -> Iterator[Any]:
    while awaiting is not None:
        frame = _first(awaiting, "cr_frame", "ag_frame", "gi_frame")
        if frame is None:
            # What awaits the next item of an asynchronous generator has no frame, but refers to the generator.
            awaiting = next(filter(inspect.isasyncgen, gc.get_referents(awaiting)), None)
            continue
        yield frame
        awaiting = _first(awaiting, "cr_await", "ag_await", "gi_yieldfrom")


def _first(awaiting: Any, *names: str) -> Any:
    return next((found for name in names if (found := getattr(awaiting, name, None))), None)


def _choices(variables: dict[str, Any]) -> Iterator[Hashable]:
    for name, value in variables.items():
        if hasattr(value, "target") and hasattr(value, "source"):  # a step that is not stored yet
            yield name, value.source, value.target
        elif name in ("due", "event", "deadline") and not isinstance(value, list):
            yield name, value
