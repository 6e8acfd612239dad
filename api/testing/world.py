"""What the explorer runs: a small world of tasks, made anew for every run, and what it may tell of itself."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Hashable
from typing import Any


class World:
    """A small world of tasks, made anew for every run. A plain async function is one too."""

    waits_only = False
    """Whether `main` only waits for the other tasks: then it is not worth an order of its own."""

    clock_jumps = True
    """Whether the clock may jump while tasks could run. Where nobody can, it jumps anyhow."""

    async def main(self) -> None:
        """Starts the tasks, waits for them, and checks what they did."""

    def state(self) -> Hashable:
        """All that the future depends on, but for where the tasks stand; None has everything looked at."""
        return None

    def outcome(self) -> Hashable:
        """What came of it, at the end."""
        return None

    def idle(self, task: Any) -> bool:
        """Whether the task's next stretch is seen by nobody, and may as well be done now."""
        return False

    def commutes(self, task: Any) -> bool:
        """Whether the task may as well go first: all that may come of this state still may after its next stretch."""
        return False


class FunctionWorld(World):
    """The world of an async function, which tells nothing of itself."""

    def __init__(self, main: Awaitable[None]) -> None:
        self._main = main

    async def main(self) -> None:
        await self._main


Make = Callable[[], Any]
"""Makes a world: an async function, or what returns a `World`."""


def made_by(make: Make) -> World:
    """A new world."""
    made = make()
    return FunctionWorld(made) if inspect.isawaitable(made) else made
