"""When a request or a handshake may begin: one in a tick of the event loop, one address after the other.

A tick runs every task that is ready, and what becomes ready meanwhile waits for all of them. If thousands of requests
began in one tick, everything else would wait for seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

import trio

from hatchway.engine.base.ticks import LoopTicks


class Starts:
    """The starts of one server: each takes up to a millisecond of its tick. `turn` returns at once while few begin;
    others wait, and the addresses take turns."""

    def __init__(self, ticks: LoopTicks) -> None:
        self._ticks, self._tick = ticks, -1
        """`_tick` is the number of the last tick in which one began."""
        self._armed = False
        self._waiting: dict[Hashable, deque[trio.lowlevel.Task]] = {}
        """Tasks that wait, by address; the address whose turn is next comes first."""

    async def turn(self, address: Hashable) -> None:
        """Wait until a request or handshake of this address may begin."""
        if self._tick != self._ticks.number and not self._waiting:
            self._tick = self._ticks.number
            return
        waiting = self._waiting.setdefault(address, deque())
        waiting.append(task := trio.lowlevel.current_task())
        self._arm()

        def abort(_: object) -> trio.lowlevel.Abort:
            waiting.remove(task)
            if not waiting:
                del self._waiting[address]
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            trio.lowlevel.current_trio_token().run_sync_soon(self._next_tick)

    def _next_tick(self) -> None:
        self._armed, self._tick = False, self._ticks.number
        if not self._waiting:
            return
        address = next(iter(self._waiting))
        waiting = self._waiting.pop(address)
        trio.lowlevel.reschedule(waiting.popleft())
        if waiting:
            self._waiting[address] = waiting  # behind the other addresses
        if self._waiting:
            self._arm()
