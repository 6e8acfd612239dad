"""Connections to an engine with worker processes, each known by the worker that has it."""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.processes import EngineProcess, running_engine
from tests.support.waits import PATIENCE


@contextmanager
def engine_with_workers(home: Path, count: int = 2, **environ: str) -> Iterator[EngineProcess]:
    """A ready engine process and its worker processes, gone at the end."""
    with running_engine(home, HATCHWAY_WORKERS=str(count), **environ) as engine:
        yield engine


def workers_of(engine: EngineProcess) -> list[int]:
    """The pids of the workers that serve now."""
    pids: list[int] = engine.operator({"op": "status"})[-1]["doors"]
    return pids


class Line:
    """A keep-alive connection that sends plain requests, as the fast path takes them."""

    def __init__(self, engine: EngineProcess, address: str = "127.0.0.1") -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=PATIENCE, source_address=(address, 0))
        self._http.connect()
        self.host = f"127.0.0.1:{engine.port}"

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> tuple[int, Any]:
        """Status and JSON of the answer."""
        headers = {"Host": self.host} | ({"Authorization": f"Bearer {token}"} if token else {})
        data = None
        if body is not None:
            headers["Content-Type"], data = "application/json", json.dumps(body)
        self._http.request(method, path, data, headers)
        answer = self._http.getresponse()
        said = answer.read()
        return answer.status, json.loads(said) if said else None

    def inspect(self, token: str) -> int:
        """The status that a token's inspection has."""
        return self.ask("GET", "/api/auth/inspect/", token=token)[0]

    def send(self, data: bytes) -> None:
        """Bytes as they are."""
        self._http.sock.sendall(data)

    def rest(self) -> bytes:
        """All that still comes, to the connection's end."""
        return self._http.sock.makefile("rb").read()

    @property
    def worker(self) -> int | None:
        """The pid of the process that has accepted this connection; None while nobody has."""
        port = self._http.sock.getsockname()[1]
        inode = next(inode for local, remote, inode in _connections() if (remote, local) == (port, self._http.port))
        return next((pid for pid in _processes() if f"socket:[{inode}]" in _files(pid)), None)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _connections() -> Iterator[tuple[int, int, str]]:
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        yield int(fields[1].rpartition(":")[2], 16), int(fields[2].rpartition(":")[2], 16), fields[9]


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _files(pid: int) -> set[str]:
    found = set()
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found


@contextmanager
def two_workers(engine: EngineProcess) -> Iterator[tuple[Line, Line]]:
    """Two connections that two workers have."""
    lines: list[Line] = []
    try:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            line = Line(engine)
            lines.append(line)
            assert line.ask("GET", "/healthz")[0] == 200
            if line.worker != lines[0].worker:
                yield lines[0], line
                return
        raise AssertionError("one worker takes every connection")
    finally:
        for line in lines:
            line.close()
