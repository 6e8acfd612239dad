"""A keep-alive connection to a real engine process."""

from __future__ import annotations

import trio

from tests.support.processes import EngineProcess


class Wire:
    """A keep-alive connection that asks one thing after the other."""

    def __init__(self, engine: EngineProcess, address: str = "127.0.0.1") -> None:
        self.engine, self.address = engine, address
        self._rest = b""

    async def __aenter__(self) -> Wire:
        sock = trio.socket.socket()
        await sock.bind((self.address, 0))
        await sock.connect(("127.0.0.1", self.engine.port))
        self.stream = trio.SocketStream(sock)
        return self

    async def __aexit__(self, *error: object) -> None:
        await trio.aclose_forcefully(self.stream)

    def head(self, method: str, path: str, *more: str) -> bytes:
        lines = (f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.engine.port}", *more)
        return "\r\n".join(lines).encode() + b"\r\n\r\n"

    async def ask(self, method: str, path: str, body: bytes = b"") -> int:
        """The status of the answer, which is read whole."""
        more = ("Content-Type: application/json", f"Content-Length: {len(body)}") if body else ()
        await self.stream.send_all(self.head(method, path, *more) + body)
        while (end := self._rest.find(b"\r\n\r\n")) < 0:
            self._rest += await self._some()
        head, self._rest = self._rest[:end].lower(), self._rest[end + 4 :]
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        while len(self._rest) < length:
            self._rest += await self._some()
        self._rest = self._rest[length:]
        return int(head.split()[1])

    async def _some(self) -> bytes:
        data = await self.stream.receive_some()
        if not data:
            raise trio.BrokenResourceError("the engine has closed the connection")
        return data
