"""The ticks of trio's loop, by their number; and what is to be done at the end of one, for all its tasks together."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

LOG = logging.getLogger("hatchway.ticks")


class LoopTicks(trio.abc.Instrument):
    """Counts the ticks of trio's loop. Whatever a tick runs was asked for before the tick began."""

    __slots__ = ("_at_end", "left", "number")

    def __init__(self) -> None:
        self.number = self.left = 0
        """`left` is how many calls the tick before had left for its end."""
        self._at_end: list[Callable[[], None]] = []

    def at_end(self, call: Callable[[], None]) -> None:
        """Have `call` called when every task of the present tick has run, before the loop waits for anything.

        The loop has settled by then how long it waits: `call` must start or wake tasks by a `TrioToken` alone. An
        error that it raises is logged, and ends nothing else.
        """
        self._at_end.append(call)

    def before_io_wait(self, timeout: float) -> None:
        """A tick ends; trio calls this."""
        self.left = len(self._at_end)
        while self._at_end:
            calls, self._at_end = self._at_end, []
            for call in calls:
                try:
                    call()
                except Exception:
                    LOG.exception("what was left for the end of a tick failed, in an error of ours")
        self.number += 1  # what comes now is the next tick's


_TICKS: trio.lowlevel.RunVar[LoopTicks] = trio.lowlevel.RunVar("hatchway.ticks")


def loop_ticks() -> LoopTicks:
    """The counter of this run of trio, one for all its tasks; made when it is first asked for."""
    try:
        return _TICKS.get()
    except LookupError:
        ticks = LoopTicks()
        trio.lowlevel.add_instrument(ticks)
        _TICKS.set(ticks)
        return ticks
