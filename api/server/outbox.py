"""The lane's answers of one turn of the event loop, sent together behind it: a client that sleeps is woken once."""

from __future__ import annotations

from typing import Protocol

import trio

from hatchway.api.server.deadlines import LOG


class Sender(Protocol):
    """Whoever has something to send."""

    def flush(self) -> None:
        """Send it, as far as the kernel takes it at once."""


class Outbox:
    """Who has something to send behind this turn."""

    def __init__(self) -> None:
        self._senders: list[Sender] = []
        self._idle = trio.lowlevel.ParkingLot()

    def put(self, sender: Sender) -> None:
        """Flush it when the tasks of this turn have had theirs."""
        self._senders.append(sender)
        if len(self._senders) == 1:
            self._idle.unpark()

    async def run(self) -> None:
        """Flush for ever. One such task stands beside the connections."""
        while True:
            if not self._senders:
                await self._idle.park()
            senders, self._senders = self._senders, []
            for sender in senders:
                try:
                    sender.flush()
                except Exception:
                    LOG.exception("an answer was not sent, in an error of ours")  # the others' are
