"""Every order in which trio could run the tasks of a small world: one task's stretch between two awaits at a time.

Where several tasks can run, any of them may be next; and where somebody sleeps, the clock may jump to the end of that
first. Each run begins anew and goes where some order has not been followed to its end, until none is left. A state that
two orders reach is one: what its future depends on is compared, by the world's own `state`, or by a walk through all
that its tasks hold. Were a state told too roughly, its choices would differ between visits, which is an error here.

A world may say that a task's next stretch commutes with all that the others may still do: then that one goes first,
alone (a persistent set of one). `Explored.check_commuting` holds that against every state of an unreduced search.
"""

from __future__ import annotations

import time

from hatchway.api.testing.explored import Explored
from hatchway.api.testing.ordered_runs import Deadlock, Endless, OrderMisfit, RepeatedRun, SearchingRun, TaskRun
from hatchway.api.testing.world import Make, World, made_by

__all__ = ["Deadlock", "Endless", "Explored", "OrderMisfit", "World", "explore", "replay"]

SHRINKING, SHRINKING_SECONDS = 300, 5.0
"""Runs, and seconds, that may be spent on a shorter order that fails in the same way."""


def explore(make: Make, *, runs: int | None = None, seconds: float | None = None, reduced: bool = True) -> Explored:
    """Run every order of a world's tasks, or as many as `runs` or `seconds` allow.

    What fails is raised, with the order that led to it, made short, in its notes. Not `reduced`, each state and each
    way from it is looked at, even where only one task can go on.
    """
    explored, until = Explored(), None if seconds is None else time.monotonic() + seconds
    while 0 not in explored.followed:
        if runs is not None and explored.runs >= runs:
            explored.stop(f"{runs} runs were allowed")
            break
        if until is not None and time.monotonic() >= until:
            explored.stop(f"{seconds:g} s were allowed")
            break
        search = SearchingRun(made_by(make), explored, reduced=reduced)
        try:
            search.run()
        except BaseException as error:
            _explain(make, error, search.order)
            raise
        explored.ended(search.path, search.world.outcome(), at_the_end=not search.known)
        if not explored.ways:
            break  # nobody ever had a choice
    return explored


def replay(make: Make, order: str) -> None:
    """Run a world in one order, as `explore` told it. Raises what fails in it, else OrderMisfit where the world can't
    take that order, as when it was changed since."""
    run = RepeatedRun(made_by(make), order.split())
    try:
        run.run()
    except BaseException as error:
        error.add_note(f"in this order:{run}")
        if (misfit := run.misfit()) is not None:
            error.add_note(f"but {misfit}")
        raise
    if (misfit := run.misfit()) is not None:
        raise misfit


def _explain(make: Make, error: BaseException, order: list[str]) -> None:
    """Note the shortest order that was found to fail in the same way, and how to run it again."""
    shrunk, run = _shrunk(make, error, order)
    error.add_note(f"in this order:{run}" if run is not None else f"in this order: {' '.join(order)}")
    error.add_note(f"again: replay(world, {' '.join(shrunk)!r}), or pytest --explore-order='{' '.join(shrunk)}'")


def _shrunk(make: Make, error: BaseException, order: list[str]) -> tuple[list[str], TaskRun | None]:
    kind, tries, best = _kind(error), 0, None
    at, size = 0, max(1, len(order) // 2)
    until = time.monotonic() + SHRINKING_SECONDS
    while tries < SHRINKING and size and time.monotonic() < until:
        shorter = order[:at] + order[at + size :]
        tries += 1
        run = _fails(make, shorter, kind) if at < len(order) else None
        if run is not None:
            order, best = run.order[: len(shorter)], run  # without what it could not do
        else:
            at += size
        if at >= len(order):
            at, size = 0, size // 2
    return order, best or _fails(make, order, kind)


def _fails(make: Make, order: list[str], kind: set[str]) -> TaskRun | None:
    run = RepeatedRun(made_by(make), order)
    try:
        run.run()
    except BaseException as error:
        return run if _kind(error) & kind else None
    return None


def _kind(error: BaseException) -> set[str]:
    """The types of what went wrong, in whatever groups."""
    if isinstance(error, BaseExceptionGroup):
        return {kind for inner in error.exceptions for kind in _kind(inner)}
    return {type(error).__name__}
