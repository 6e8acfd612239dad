"""The command's end of the operator socket: JSON lines to the engine of this host, if one runs."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hatchway.api.client.unix_paths import short_path
from hatchway.engine.base.errors import EngineUnavailable, Refusal
from hatchway.engine.base.files import check_private_dir

WAIT = 15.0
"""Seconds the engine has for an answer that needs no person."""

LONGEST_LINE = 65_536

ATTACH_PROTOCOL = 1
"""What `hatchway open` and `engine attach` understand of each other; raised where an older end could not go on."""


class OperatorLine:
    """A connection to the operator socket: a request, then lines both ways."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._rest = b""

    def fileno(self) -> int:
        """For select: readable when `read` has something."""
        return self.socket.fileno()

    def send(self, **message: Any) -> None:
        """One line to the engine. Raises EngineUnavailable when it is gone."""
        with _hung_up():
            self.socket.sendall(json.dumps(message).encode() + b"\n")

    def read(self) -> list[dict[str, Any]]:
        """The complete lines that have come. Waits for a first byte. Raises EngineUnavailable when the engine is gone,
        and the engine's refusal where a line is one."""
        with _hung_up():
            data = self.socket.recv(LONGEST_LINE)
        if not data or len(self._rest) > LONGEST_LINE:
            raise EngineUnavailable("the engine hung up")
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [_message(line) for line in lines if line.strip()]

    def answer(self) -> dict[str, Any]:
        """The next line. For requests that are answered by one."""
        while True:
            if lines := self.read():
                return lines[0]


@contextmanager
def _hung_up() -> Iterator[None]:
    """Around calls of the socket alone: a pipe that breaks elsewhere is that of the command's output."""
    try:
        yield
    except (BrokenPipeError, ConnectionResetError):
        raise EngineUnavailable("the engine hung up") from None


def _message(line: bytes) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(line)
    if "error" in message:
        raise _refusal(message["error"])
    return message


def _refusal(error: dict[str, Any]) -> Refusal:
    refusal = Refusal(str(error.get("detail")))
    refusal.code = str(error.get("code"))
    return refusal


@contextmanager
def operator_line(home: Path) -> Iterator[OperatorLine]:
    """A connection to the engine that runs on `home`, for the block. Raises EngineUnavailable where none runs."""
    try:
        check_private_dir(home)
        connected = _connect(home)
    except (FileNotFoundError, ConnectionRefusedError):
        raise EngineUnavailable(f"no engine runs on {home}; start one with: hatchway engine start") from None
    with connected:
        _check_peer(connected)
        connected.settimeout(WAIT)
        try:
            yield OperatorLine(connected)
        except TimeoutError:
            why = f"the engine on {home} does not answer; once it goes on, it may do what it was asked"
            raise EngineUnavailable(why) from None


def _connect(home: Path) -> socket.socket:
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_path(home / "operator.sock") as path:
            connected.connect(path)
    except BaseException:
        connected.close()
        raise
    return connected


def _check_peer(connected: socket.socket) -> None:
    """Raises EngineUnavailable unless the other end runs as our own user, or as root."""
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    if uid not in (os.geteuid(), 0):
        raise EngineUnavailable(f"the operator socket is held by another user (uid {uid}): remove it")


def ask(home: Path, op: str, **fields: Any) -> dict[str, Any]:
    """One request and its one answer."""
    with operator_line(home) as line:
        line.send(op=op, **fields)
        return line.answer()


def runs(home: Path) -> bool:
    """Whether an engine holds the operator socket of `home`."""
    try:
        with operator_line(home):
            return True
    except EngineUnavailable:
        return False
