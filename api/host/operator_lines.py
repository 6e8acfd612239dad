"""The lines of the operator's socket, at the engine's end: one JSON object each."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import trio

from hatchway.engine.base.errors import InvalidRequest

LONGEST_LINE = 65_536


class Lines:
    """JSON objects over a stream, one a line, both ways. After `silence` seconds without one the other end counts as
    gone."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream, self._rest = stream, b""
        self.silence = float("inf")
        self._over = False

    async def read(self) -> dict[str, Any] | None:
        """The next object, None at the end. Raises InvalidRequest for anything else."""
        with trio.move_on_after(self.silence) as waiting:
            await self._fill()
        if waiting.cancelled_caught or self._over:
            self._over = True
            return None
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            value = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise InvalidRequest({"line": "must be one JSON object"})
        return value

    def put_back(self, value: dict[str, Any]) -> None:
        """Have `read` return this object next."""
        self._rest = msgspec.json.encode(value) + b"\n" + self._rest

    async def _fill(self) -> None:
        while b"\n" not in self._rest and not self._over:
            more = await self._stream.receive_some()
            self._over = not more or len(self._rest) > LONGEST_LINE
            self._rest += more

    async def write(self, value: dict[str, Any]) -> None:
        """Send an object as a line. Raises trio.BrokenResourceError where the command has ended."""
        # The engine's folder may not be UTF-8: the json module escapes it, and reads it as it was.
        await self._stream.send_all(json.dumps(value, separators=(",", ":")).encode() + b"\n")
