"""Load from another core: wrk for one request again and again, and flows of several requests by sockets of our own."""

from __future__ import annotations

import json
import re
import selectors
import socket
import subprocess
import time
from collections.abc import Callable, Generator, Sequence
from math import inf
from typing import NamedTuple

from tests.bench.servers import CLIENT_CORE, Server

Flow = Generator[bytes, "Reply", None]
"""Yields whole requests; is sent each one's answer. Returning, it has done one unit of work."""


class Reply(NamedTuple):
    """An answer with a length."""

    status: int
    body: bytes


class Told(NamedTuple):
    """What a load of some seconds did. `per_cpu` is units a second of the server's CPU; times in seconds."""

    rate: float
    per_cpu: float
    p50: float
    p99: float
    errors: int


def request(method: str, path: str, port: int, body: object = None, token: str | None = None, form: str = "") -> bytes:
    """A whole request; a `form` is sent as one, any other body as JSON."""
    data = form.encode() if form else b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}"]
    if data or method == "POST":
        kind = "x-www-form-urlencoded" if form else "json"
        lines += [f"Content-Type: application/{kind}", f"Content-Length: {len(data)}"]
    if token is not None:
        lines.append(f"Authorization: {token}")
    return "\r\n".join([*lines, "", ""]).encode() + data


def wrk(
    server: Server,
    path: str,
    connections: int,
    seconds: float,
    token: str = "",
    body: str = "",
    cores: Sequence[int] = (CLIENT_CORE,),
) -> Told:
    """One request by wrk (a GET, or a form where there is a `body`), over and over."""
    script = ["-s", _form_script(body)] if body else []
    authorization = ["-H", f"Authorization: {token}"] if token else []
    before = server.cpu()
    done = subprocess.run(
        [
            *(
                "taskset",
                "-c",
                ",".join(map(str, cores)),
                "wrk",
                "-t1",
                f"-c{connections}",
                f"-d{max(1, round(seconds))}s",
            ),
            *("--latency", "--timeout", "5s", *script, *authorization, f"http://127.0.0.1:{server.port}{path}"),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    spent = server.cpu() - before
    count = int(_find(r"(\d+) requests in", done))
    errors = sum(map(int, re.findall(r"(?:connect|read|write|timeout|responses:) (\d+)", done)))
    return Told(
        float(_find(r"Requests/sec:\s+([\d.]+)", done)),
        count / spent if spent else 0.0,
        latency(50, done),
        latency(99, done),
        errors,
    )


def latency(percent: int, told: str) -> float:
    """Seconds that so many of a hundred took, from the table of latencies: other lines end in a percentage too."""
    return _seconds(_find(rf"(?m)^ +{percent}% +(\S+) *$", told))


def _form_script(body: str) -> str:
    path = f"/tmp/hatchway-bench-{hash(body) & 0xFFFFFF:x}.lua"
    with open(path, "w") as file:
        file.write(f'wrk.method = "POST"\nwrk.body = "{body}"\n')
        file.write('wrk.headers["Content-Type"] = "application/x-www-form-urlencoded"\n')
    return path


def _find(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if found is None:
        raise RuntimeError(f"wrk did not say {pattern!r}: {text}")
    return found[1]


def _seconds(text: str) -> float:
    """wrk's time; endless where nothing was answered."""
    found = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text)
    return float(found[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}[found[2]] if found else inf


class _Client:
    """One connection and the flow it is in."""

    def __init__(self, port: int, begin: Callable[[], Flow | None]) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._begin, self._data = begin, b""
        self.took: list[float] = []
        self.errors = 0
        self.over = False
        self.start()

    def start(self) -> None:
        flow = self._begin()
        self.over = flow is None
        if flow is not None:
            self._flow, self._began = flow, time.perf_counter()
            self.socket.sendall(next(flow))

    def read(self) -> None:
        """Take what came; go on once an answer is whole."""
        self._data += self.socket.recv(65536)
        reply = parse(self._data)
        if reply is None:
            return
        self._data = b""
        try:
            self.socket.sendall(self._flow.send(reply))
        except StopIteration:
            self.took.append(time.perf_counter() - self._began)
            self.start()
        except AssertionError:
            self.errors += 1
            self.start()


def parse(data: bytes) -> Reply | None:
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = data[:end].lower()
    begin = head.find(b"content-length:")
    length = int(head[begin + 15 :].split(b"\r\n", 1)[0]) if begin >= 0 else 0
    body = data[end + 4 :]
    return Reply(int(data[9:12]), body) if len(body) >= length else None


def flows(server: Server, begin: Callable[[], Flow | None], connections: int, seconds: float) -> Told:
    """Flows one after another on each connection, until time or flows run out."""
    selector = selectors.DefaultSelector()
    clients = [_Client(server.port, begin) for _ in range(connections)]
    for client in clients:
        selector.register(client.socket, selectors.EVENT_READ, client)
    spent, began = server.cpu(), time.perf_counter()
    while time.perf_counter() < began + seconds and not any(client.over for client in clients):
        for key, _ in selector.select(1):
            key.data.read()
    lasted, spent = time.perf_counter() - began, server.cpu() - spent
    for client in clients:
        client.socket.close()
    took = sorted(one for client in clients for one in client.took)
    if not took:
        raise RuntimeError("no flow came to its end")
    return Told(
        len(took) / lasted,
        len(took) / spent if spent else 0.0,
        took[len(took) // 2],
        took[int(len(took) * 0.99)],
        sum(client.errors for client in clients),
    )
