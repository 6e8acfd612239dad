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
    """One end. `kinds` is the union of what the other end says, `hear` is told each message as it comes."""

    def __init__(self, sock: socket.socket, kinds: object, hear: Callable[[Heard], None]) -> None:
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        self._decoder, self._hear = msgspec.msgpack.Decoder(kinds), hear
        self._out = bytearray()
        self._over, self._posted = False, trio.Event()

    def post(self, message: object) -> None:
        """Send, in the order of posting and together with what else is posted meanwhile."""
        self._out += frame(message)
        self._posted.set()

    async def write(self) -> None:
        """Send what is posted, until `finish`, or until nobody takes it: whoever reads is told of that."""
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
        """Nothing more will be posted."""
        self._over = True
        self._posted.set()

    async def read(self) -> None:
        """Hear the other end, until it is gone. Raises msgspec.DecodeError for what it can't have said."""
        frames = Frames()
        try:
            while data := await self._stream.receive_some(65536):
                for message in frames.feed(data):
                    self._hear(self._decoder.decode(message))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    def close(self) -> None:
        """Let go of the socket."""
        self._stream.socket.close()
