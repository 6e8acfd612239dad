"""Changes on their way to the disk, and the tasks that wait for them."""

from __future__ import annotations

from typing import NamedTuple

import trio

from hatchway.engine.store.protocol import Change


class PendingChange:
    """One change on its way, and the task that waits for it. None is a probe, and nobody waits."""

    __slots__ = ("change", "error", "over", "task")

    def __init__(self, change: Change | None) -> None:
        self.change = change
        self.error: BaseException | None = None
        self.over = False
        self.task: trio.lowlevel.Task | None = None

    async def wait(self) -> None:
        """Until it is over, whoever cancels: the change is on its way, only its outcome may be told."""
        if not self.over:
            self.task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(_go_on)

    def end(self, error: BaseException | None) -> None:
        """It is over."""
        self.error, self.over = error, True
        if self.task is not None:
            trio.lowlevel.reschedule(self.task)


def _go_on(raise_cancel: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED


class Batch(NamedTuple):
    """Changes of one transaction. `errors` are what came of each; None where the transaction is yet to begin."""

    jobs: list[PendingChange]
    errors: list[BaseException | None] | None
    token: trio.lowlevel.TrioToken
