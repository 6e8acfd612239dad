"""Tells a connection that is lost from one that is merely quiet: each side sends a beat, and the other answers it."""

from __future__ import annotations

import time

from hatchway.api.client.operator import OperatorLine

BEAT = 5.0
"""Seconds between two beats to the engine, for which a tunnel is gone after four of them have failed to come."""

SILENT = 15.0
"""Seconds without an answer after which the connection counts as lost."""


class Pulse:
    """The beats over one conversation. Whoever waits on it calls `beat` every few seconds, and `heard` for each
    line."""

    def __init__(self, line: OperatorLine) -> None:
        self._line = line
        self._sent = 0.0
        self._heard = self._looked = time.monotonic()

    def beat(self) -> bool:
        """Send a beat if one is due. Returns whether the other side is there, as far as is known. Raises OSError."""
        now = time.monotonic()
        if now - self._looked > 2 * BEAT:  # this process slept, and answers may be on their way
            self._heard = max(self._heard, now - SILENT + BEAT)
        self._looked = now
        if now - self._sent >= BEAT:
            self._line.send(op="beat")
            self._sent = now
        return now - self._heard < SILENT

    def heard(self) -> None:
        """The other side said something."""
        self._heard = time.monotonic()
