"""The operator's `y` to the token in the client, with many event streams held; bytes of a held stream."""

from __future__ import annotations

import json
import resource
import select
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.endpoints import ask, solved_by
from tests.bench.load import request
from tests.bench.results import Plan, Results, at
from tests.bench.servers import Server, hatchway, serving, yardstick
from tests.support.fakes import key
from tests.support.ports import free_port
from tests.support.processes import prepare

STREAMS = 10_000
"""Event streams that are held at once; fewer where the plan's size is below 1."""


def hold(server: Server, token: str, count: int) -> list[socket.socket]:
    """So many event streams, each with its first bytes read."""
    held = []
    for _ in range(count):
        sock = socket.create_connection(("127.0.0.1", server.port))
        sock.sendall(request("GET", "/api/events/", server.port, token=token))
        held.append(sock)
    for sock in held:
        assert sock.recv(15).startswith(b"HTTP/1.1 200")
    return held


def drain(held: list[socket.socket]) -> None:
    """Read what has come; a subscriber that nobody reads for would be dropped."""
    poll = select.poll()
    by_file = {sock.fileno(): sock for sock in held}
    for file in by_file:
        poll.register(file, select.POLLIN)
    while ready := poll.poll(300):
        for file, _ in ready:
            by_file[file].recv(262_144)


class Host:
    """The operator's end of one pairing: lines over the operator socket."""

    def __init__(self, home: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(home / "operator.sock"))
        self._lines = self._socket.makefile("rb")
        self.say({"op": "pair", "permissions": None, "lifetime": 3600})
        self.code = self.hear()["code"]

    def say(self, line: dict[str, Any]) -> None:
        self._socket.sendall(json.dumps(line).encode() + b"\n")

    def hear(self) -> Any:
        return json.loads(self._lines.readline())

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


def yes_to_token(server: Server, home: Path, held: list[socket.socket]) -> float:
    """Seconds from the operator's `y` to the last line of the claim, which holds the token.

    A person takes a second and more to compare two digits: what the claim told the held streams has come by then.
    """
    host = Host(home)
    with socket.create_connection(("127.0.0.1", server.port)) as console:
        console.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        console.sendall(request("POST", "/api/auth/pair/request/", server.port, {"code": host.code}))
        while host.hear()["event"] != "claimed":
            pass
        data = b""
        while b'"accepted"' not in data:
            data += console.recv(4096)
        drain(held)
        began = time.perf_counter()
        host.say({"answer": "y"})
        while b'"token"' not in data:
            data += console.recv(4096)
        lasted = time.perf_counter() - began
    host.close()
    return lasted


def idle_connection(count: int) -> float:
    """Bytes that stock Hypercorn-trio keeps for a connection that has asked once and waits."""
    port = free_port()
    with serving(yardstick(port), port) as server:
        before, held = server.memory(), []
        for _ in range(count):
            held.append(socket.create_connection(("127.0.0.1", port)))
            held[-1].sendall(request("GET", "/", port))
        for sock in held:
            assert sock.recv(15).startswith(b"HTTP/1.1 200")
        grown = server.memory() - before
        for sock in held:
            sock.close()
    return grown / count


def files_for(size: float) -> int:
    """Files that the bench, and the engine, has open at once."""
    return int(STREAMS * size) + 200


def _allow_files(count: int) -> None:
    """Many systems let a process open 1,024 and raise that when asked."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(count, hard)), hard))


def measure(results: Results, plan: Plan) -> None:
    """All of it."""
    count, times = int(STREAMS * plan.size), max(20, int(30 * plan.size))
    _allow_files(files_for(plan.size))
    quiet, quiet_p99s, held_rounds, p99s, memory, idle = [], [], [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        prepare(home)
        port = free_port()
        environ = {"HATCHWAY_HOME": str(home), "HATCHWAY_MAX_CONNECTIONS": str(count + 100)}
        with serving(hatchway(port), port, **environ) as server:
            token = f"Bearer {ask(server, 'POST', '/api/auth/verify/', solved_by(server, key('own')))['token']}"
            yes_to_token(server, home, [])
            for _ in range(plan.rounds):
                alone = [yes_to_token(server, home, []) for _ in range(times)]
                quiet.append(at(0.5, alone))
                quiet_p99s.append(at(0.99, alone))
                before = server.memory()
                held = hold(server, token, count)
                time.sleep(0.5)
                memory.append((server.memory() - before) / count)
                took = []
                for _ in range(times):
                    took.append(yes_to_token(server, home, held))
                    drain(held)
                held_rounds.append(at(0.5, took))
                p99s.append(at(0.99, took))
                for sock in held:
                    sock.close()
                idle.append(idle_connection(count))
                time.sleep(0.5)
    results.add("y to the token, p50", "ms", [one * 1e3 for one in quiet])
    results.add(f"y to the token, {count:,} streams held, p50", "ms", [one * 1e3 for one in held_rounds])
    results.add(f"y to the token, {count:,} streams held, p99", "ms", [one * 1e3 for one in p99s])
    # What the first round took stays the process's own, for the next ones to use again.
    results.add("held event stream", "kB", [max(memory) / 1e3])
    results.add("idle connection of the bare hello", "kB", [max(idle) / 1e3])
    results.ratio("held event stream / an idle connection", "held event stream", "idle connection of the bare hello")
    results.add("y to the token, p99", "ms", [one * 1e3 for one in quiet_p99s])
    held_p99 = f"y to the token, {count:,} streams held, p99"
    results.ratio("y to the token, p99, with streams held / with none", held_p99, "y to the token, p99")
