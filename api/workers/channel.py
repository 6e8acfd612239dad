"""How messages between the engine and its workers travel: frames of msgpack, and the channel, which posts them."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
import trio

Heard = TypeVar("Heard")

LENGTH = 4
"""Bytes of a message's length before it."""

RECEIVED = 65536
"""Bytes that are received at once."""

_encode = msgspec.msgpack.Encoder().encode


def frame(message: Any) -> bytes:
    """A message in the form in which it is sent: its length, then its msgpack."""
    data = _encode(message)
    return len(data).to_bytes(LENGTH, "big") + data


class Frames:
    """Splits what was received into messages."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes | bytearray) -> list[bytes]:
        """The messages that are complete with `data`, in msgpack."""
        buffer = self._data
        buffer += data
        found, begin = [], 0
        while len(buffer) >= begin + LENGTH:
            end = begin + LENGTH + int.from_bytes(buffer[begin : begin + LENGTH], "big")
            if len(buffer) < end:
                break
            found.append(bytes(buffer[begin + LENGTH : end]))
            begin = end
        del buffer[:begin]
        return found


class Channel(Generic[Heard]):
    """One end of the socket pair between the engine and a worker. `kinds` is the union of the other end's messages."""

    def __init__(self, sock: socket.socket, kinds: object) -> None:
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        self._decoder = msgspec.msgpack.Decoder(kinds)
        self._frames = Frames()
        self._come: list[bytes] = []
        """Messages that have come and were not read yet."""
        self._out = bytearray()
        self._over, self._posted = False, trio.Event()

    def post(self, message: object) -> None:
        """Have a message sent, behind those that were posted before. Returns at once."""
        self._out += frame(message)
        self._posted.set()

    async def write(self) -> None:
        """Send what is posted, until `finish`, or until the other end is gone, at which `read` returns."""
        try:
            while self._out or not self._over:
                if self._out:
                    data, self._out = self._out, bytearray()
                    await self._stream.send_all(data)
                else:
                    self._posted = trio.Event()
                    await self._posted.wait()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    def finish(self) -> None:
        """End `write` once all is sent that was posted."""
        self._over = True
        self._posted.set()

    async def first(self) -> Heard | None:
        """The first message, before `read` reads the others; None where the other end is gone. Raises as `read`."""
        while not self._come:
            if not await self._receive():
                return None
        first: Heard = self._decoder.decode(self._come.pop(0))
        return first

    async def read(self, hear: Callable[[Heard], None]) -> None:
        """Call `hear` with each message until the other end is gone. Raises msgspec.DecodeError for one that can't be
        decoded."""
        more = True
        while more:
            come, self._come = self._come, []
            for message in come:
                hear(self._decoder.decode(message))
            more = await self._receive()

    async def _receive(self) -> bool:
        """Take what comes next. Returns False where nothing will: the other end is gone."""
        try:
            data = await self._stream.receive_some(RECEIVED)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        self._come = self._frames.feed(data)
        return bool(data)

    def close(self) -> None:
        """Close the socket."""
        self._stream.socket.close()
