"""Messages between the engines of a fleet, through their store: those to this engine, and those that it sends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from math import inf
from typing import Any

import structlog
import trio

from hatchway.engine.base.clock import Clock
from hatchway.engine.base.errors import Refusal, StoreUnavailable
from hatchway.engine.fleet.lease import inbox
from hatchway.engine.store.redis_link import RedisLink
from hatchway.engine.store.scripts import SEND

log = structlog.get_logger(__name__)

SEND_WITHIN = 15.0
"""Seconds in which a message is sent again where the store is away. A caller waits that long for its reply too."""

Message = Mapping[str, bytes]
"""The fields of a message; `kind` says which others there are."""

Handler = Callable[[Message], Awaitable[None]]

Write = Callable[[], Awaitable[Any]]
"""Writes something to the store. It may be called again where the store is away."""


class Messages:
    """One engine's messages. They are sent, and handled, one after the other."""

    def __init__(self, link: RedisLink, clock: Clock) -> None:
        self._link, self._clock = link, clock
        self._handlers: dict[str, Handler] = {}
        self._received, self._inbox = trio.open_memory_channel[Message](inf)
        self._queued, self._queue = trio.open_memory_channel[Write](inf)
        self._writing, self._all_written = 0, trio.Event()
        """How many calls of `write_now` are under way; and an event that is set when none is."""

    def subscribe(self, kind: str, handler: Handler) -> None:
        """Have `handler` called with every message of that kind, one message after the other."""
        self._handlers[kind] = handler

    def take(self, message: Message) -> None:
        """Have a message handled that has come for this engine."""
        self._received.send_nowait(message)

    def post(self, run: str, **fields: str | bytes) -> None:
        """Send a message to another engine, behind all that was posted before."""
        flat = [part for field in fields.items() for part in field]
        self.write_later(lambda: self._link.script(SEND, [inbox(run)], flat))

    def write_later(self, write: Write) -> None:
        """Have `write` called behind all that was posted before."""
        self._queued.send_nowait(write)

    async def write_now(self, write: Write) -> None:
        """Call `write` without waiting for what was posted before. `send_rest` waits for its end."""
        self._writing += 1
        try:
            await self._insist(write, SEND_WITHIN)
        finally:
            self._writing -= 1
            if not self._writing:
                self._all_written.set()
                self._all_written = trio.Event()

    async def run(self) -> None:
        """Send and handle messages, for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._handle)
            nursery.start_soon(self._send)

    async def send_rest(self) -> None:
        """Send what waits, each message once; and wait until all else is written that is being written."""
        await self._send_queued()
        while self._writing:
            await self._all_written.wait()
            await self._send_queued()

    async def _send(self) -> None:
        async for write in self._queue:
            await self._insist(write, SEND_WITHIN)

    async def _send_queued(self) -> None:
        with suppress(trio.WouldBlock):
            while True:
                await self._insist(self._queue.receive_nowait(), 0)

    async def _insist(self, write: Write, seconds: float) -> None:
        """Call `write`, for so many seconds again and again where the store is away. Raises nothing."""
        until = self._clock.elapsed() + seconds
        while True:
            try:
                await write()
            except StoreUnavailable as lost:
                if self._clock.elapsed() >= until:
                    log.warning("store_not_told", why=lost.why)
                    return
                await trio.sleep(0.1)
            except Exception:
                log.exception("store_not_told")
                return
            else:
                return

    async def _handle(self) -> None:
        async for message in self._inbox:
            kind = message.get("kind", b"").decode(errors="replace")
            try:
                if kind in self._handlers:
                    await self._handlers[kind](message)
            except Refusal as refused:
                log.warning("message_refused", kind=kind, why=refused.detail)
            except Exception:
                log.exception("message_not_handled", kind=kind)
