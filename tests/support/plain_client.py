"""A client for tests that ask tens of thousands of times: a library for all of HTTP takes longer than the engine."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from tests.support.processes import EngineProcess
from tests.support.waits import PATIENCE


class PlainAnswer(NamedTuple):
    """What the engine says. Names of headers are looked up in any case."""

    status_code: int
    headers: http.client.HTTPMessage
    content: bytes

    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def text(self) -> str:
        return self.content.decode()


class PlainClient:
    """One keep-alive connection, made anew where the engine has ended it. A context manager."""

    def __init__(self, engine: EngineProcess, headers: Mapping[str, str]) -> None:
        self._headers = {"Host": f"127.0.0.1:{engine.port}", **headers}
        self._port = engine.port
        self._socket = self._connected()

    def _connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), PATIENCE)

    def __enter__(self) -> PlainClient:
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def request(
        self, method: str, path: str, content: bytes = b"", headers: Mapping[str, str | bytes] | None = None
    ) -> PlainAnswer:
        """One request, its headers as they are. Raises ConnectionError where a fresh connection has no answer."""
        named = {**self._headers, "Content-Length": str(len(content)), **(headers or {})}
        lines = [f"{method} {path} HTTP/1.1".encode()]
        for name, value in named.items():
            lines.append(name.encode() + b": " + (value if isinstance(value, bytes) else value.encode()))
        data = b"\r\n".join(lines) + b"\r\n\r\n" + content
        with suppress(ConnectionError):
            return self._ask(method, data)
        self._renew()
        return self._ask(method, data)

    def _ask(self, method: str, data: bytes) -> PlainAnswer:
        self._socket.sendall(data)
        with http.client.HTTPResponse(self._socket, method=method) as reply:
            reply.begin()
            answer = PlainAnswer(reply.status, reply.headers, reply.read())
            ends = reply.will_close
        if ends:
            self._renew()
        return answer

    def _renew(self) -> None:
        self._socket.close()
        self._socket = self._connected()
