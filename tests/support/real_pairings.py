"""Both ends of a pairing with a real engine process: the operator's socket, and a console that claims over raw HTTP."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from tests.support.hostile_requests import request
from tests.support.processes import EngineProcess

PAIR = "/api/auth/pair/request/"


class Operator:
    """The operator's end: `code` is out, `next` is what the terminal would be told."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer, self._lines = peer, peer.makefile("rb")
        self.told: list[dict[str, Any]] = []
        self.code: str = self.next()["code"]

    def next(self) -> dict[str, Any]:
        """The next event. Fails the test where the engine has no more to tell."""
        event: dict[str, Any] = json.loads(self._lines.readline())
        self.told.append(event)
        return event

    def wait(self, name: str) -> dict[str, Any]:
        """The next event of that name; those before it are kept in `told`."""
        while (event := self.next())["event"] != name:
            pass
        return event

    def close(self) -> None:
        """The terminal is gone."""
        self._lines.close()  # it holds the socket open too

    def answer(self, word: str) -> None:
        """What the operator types."""
        self._peer.sendall(json.dumps({"answer": word}).encode() + b"\n")


@contextmanager
def operator_at(
    engine: EngineProcess, permissions: Sequence[str] | None = None, lifetime: int = 3600
) -> Iterator[Operator]:
    """A code that is out until left."""
    with engine.operator_connection() as peer:
        peer.settimeout(60)
        asked = {"op": "pair", "permissions": permissions, "lifetime": lifetime}
        peer.sendall(json.dumps(asked).encode() + b"\n")
        operator = Operator(peer)
        try:
            yield operator
        finally:
            operator.close()


class Dialled(Protocol):
    """An engine, or a proxy before it."""

    port: int


class Console:
    """The requester's end: a claim sent, its answer read line by line."""

    def __init__(self, engine: Dialled, code: object, *headers: str, address: str = "127.0.0.1") -> None:
        body = json.dumps({"code": code}).encode()
        data = request("POST", PAIR, "Content-Type: application/json", *headers, port=engine.port, body=body)
        self._peer = socket.create_connection(("127.0.0.1", engine.port), timeout=60, source_address=(address, 0))
        self._file = self._peer.makefile("rb")
        self.head: list[str] = []
        try:
            self._peer.sendall(data)
            while line := self._file.readline().strip():
                self.head.append(line.decode("latin-1"))
            self.status = int(self.head[0].split()[1])
        except BaseException:
            self.close()
            raise

    def line(self) -> dict[str, Any]:
        """The next object of the stream."""
        while not (line := self._file.readline().strip()).startswith(b"{"):
            pass
        value: dict[str, Any] = json.loads(line)
        return value

    def items(self) -> list[Any]:
        """Every item to the end: objects of the stream, or the one problem. Chunk sizes and blank lines left out."""
        try:
            lines = [line.strip() for line in self._file]
        finally:
            self.close()
        return [json.loads(line) for line in lines if line.startswith(b"{")]

    def reset(self) -> None:
        """Hang up as a crashed machine does, with a reset."""
        self._peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._file.close()
        self._peer.close()


def logged(engine: EngineProcess, words: str, seconds: float = 10) -> bool:
    """Whether the log says so, soon: its lines are written together."""
    until = time.monotonic() + seconds
    while words not in engine.log() and time.monotonic() < until:
        time.sleep(0.05)
    return words in engine.log()


def pair(engine: EngineProcess, permissions: Sequence[str] | None = None) -> dict[str, Any]:
    """A session by an approved pairing."""
    with operator_at(engine, permissions) as operator:
        console = Console(engine, operator.code)
        operator.wait("claimed")
        operator.answer("y")
        session: dict[str, Any] = console.items()[-1]
    assert "token" in session, session
    return session
