"""The socket pair between the engine and one worker: messages both ways, posted without waiting."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec
import trio

from hatchway.api.workers.messages import Frames, frame

Heard = TypeVar("Heard")


class Channel(Generic[Heard]):
    """One end of the channel. `kinds` is the union of the other end's messages; `hear` is called with each of them."""

    def __init__(self, sock: socket.socket, kinds: object, hear: Callable[[Heard], None]) -> None:
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        self._decoder, self._hear = msgspec.msgpack.Decoder(kinds), hear
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

    async def read(self) -> None:
        """Read messages until the other end is gone. Raises msgspec.DecodeError for one that can't be decoded."""
        frames = Frames()
        try:
            while data := await self._stream.receive_some(65536):
                for message in frames.feed(data):
                    self._hear(self._decoder.decode(message))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    def close(self) -> None:
        """Close the socket."""
        self._stream.socket.close()
