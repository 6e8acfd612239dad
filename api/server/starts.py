"""How many requests and handshakes may begin in one tick of the event loop: a few, one address after the other.

A tick runs every task that is ready, and what becomes ready meanwhile waits for all of them. If thousands of requests
began in one tick, everything else would wait for seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

import trio

from hatchway.engine.base.ticks import LoopTicks

PER_TICK = 2
"""Requests and TLS handshakes that begin in one tick: each takes up to a millisecond of it."""


class Starts:
    """The starts of one server. `turn` returns at once while few begin; others wait, and the addresses take turns."""

    def __init__(self, ticks: LoopTicks) -> None:
        self._ticks, self._tick = ticks, -1
        self._left = PER_TICK
        """How many may still begin in the tick number `_tick`."""
        self._armed = False
        self._waiting: dict[Hashable, deque[trio.lowlevel.Task]] = {}
        """Tasks that wait, by address; the address whose turn is next comes first."""

    async def turn(self, address: Hashable) -> None:
        """Wait until a request or handshake of this address may begin."""
        if self._tick != self._ticks.number:
            self._tick, self._left = self._ticks.number, PER_TICK
        if self._left > 0 and not self._waiting:
            self._left -= 1
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
        self._armed, self._tick, self._left = False, self._ticks.number, PER_TICK
        while self._waiting and self._left:
            address = next(iter(self._waiting))
            waiting = self._waiting.pop(address)
            trio.lowlevel.reschedule(waiting.popleft())
            if waiting:
                self._waiting[address] = waiting  # behind the other addresses
            self._left -= 1
        if self._waiting:
            self._arm()
