"""Changes on their way to SQLite's file, and the tasks that wait until they are there."""

from __future__ import annotations

from typing import NamedTuple

import trio

from hatchway.engine.store.protocol import Change


class PendingChange:
    """One change to be written, and the task that waits for it. A `change` of None is a probe, for which nobody
    waits."""

    __slots__ = ("change", "error", "over", "task")

    def __init__(self, change: Change | None) -> None:
        self.change = change
        self.error: BaseException | None = None
        self.over = False
        self.task: trio.lowlevel.Task | None = None

    async def wait(self) -> None:
        """Wait until it is written or refused. Cancelling has no effect: the change can't be called back, so only its
        outcome is an answer."""
        if not self.over:
            self.task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(_go_on)

    def end(self, error: BaseException | None) -> None:
        """The change is written, or `error` says why it is not: wake the task that waits."""
        self.error, self.over = error, True
        if self.task is not None:
            trio.lowlevel.reschedule(self.task)


def _go_on(raise_cancel: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED


class Batch(NamedTuple):
    """Changes of one transaction, the error of each (None for none), and the trio run to tell it to.

    `errors` is None where the writer's thread has to make the changes too, and not only to commit them.
    """

    jobs: list[PendingChange]
    errors: list[BaseException | None] | None
    token: trio.lowlevel.TrioToken
