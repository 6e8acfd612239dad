"""Whole processes: the command's help and ping, an engine's start and idle memory, beside Python's own start."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.bench.results import Plan, Results
from tests.bench.servers import hatchway, serving, yardstick
from tests.support.fakes import ROOT
from tests.support.ports import free_port
from tests.support.processes import prepare

COMMAND = [sys.executable, "-c", "from hatchway.api.cli import main; main()"]


def seconds_of(arguments: list[str], **environ: str) -> float:
    """From start to end of a process that must succeed."""
    began = time.perf_counter()
    subprocess.run(arguments, cwd=ROOT, env=os.environ | environ, capture_output=True, check=True)
    return time.perf_counter() - began


class Start(NamedTuple):
    """One start: seconds to the first answer, CPU seconds of it, bytes held idle, and once a page was shown."""

    seconds: float
    cpu: float
    idle: float
    shown: float


def engine_start(home: Path) -> Start:
    """An engine's start on a folder that has its keys."""
    return start(hatchway, "/healthz", HATCHWAY_HOME=str(home))


def start(arguments: Callable[[int], list[str]], path: str, **environ: str) -> Start:
    """A server's start, until it answers at that path."""
    port = free_port()
    began = time.perf_counter()
    with serving(arguments(port), port, **environ) as server:
        _visit(port, path)
        seconds, cpu = time.perf_counter() - began, server.cpu()
        time.sleep(1)
        idle = server.memory()
        _visit(port, "/")
        return Start(seconds, cpu, idle, server.memory())


def _visit(port: int, path: str) -> None:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    client.request("GET", path)
    assert client.getresponse().status == 200
    client.close()


def measure(results: Results, plan: Plan) -> None:
    """All of it, by turns."""
    times: dict[str, list[float]] = {}
    starts: list[Start] = []
    hellos: list[Start] = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        prepare(home)
        environ = {"HATCHWAY_HOME": str(home)}
        engine_start(home)
        for _ in range(plan.rounds):
            times.setdefault("python -c pass", []).append(seconds_of([sys.executable, "-c", "pass"]))
            times.setdefault("hatchway --help", []).append(seconds_of([*COMMAND, "--help"], **environ))
            starts.append(engine_start(home))
            hellos.append(start(yardstick, "/"))
        port = free_port()
        with serving(hatchway(port), port, **environ):
            seconds_of([*COMMAND, "engine", "ping"], **environ)
            for _ in range(plan.rounds):
                times.setdefault("hatchway engine ping", []).append(seconds_of([*COMMAND, "engine", "ping"], **environ))
    times["engine start to first answer"] = [one.seconds for one in starts]
    times["engine start, CPU"] = [one.cpu for one in starts]
    times["start of the bare hello"] = [one.seconds for one in hellos]
    for name, rounds in times.items():
        results.add(name, "ms", [one * 1e3 for one in rounds])
    for name in ("hatchway --help", "hatchway engine ping", "engine start to first answer"):
        results.ratio(f"{name} / python -c pass", name, "python -c pass")
    results.ratio("engine start / the bare hello's", "engine start to first answer", "start of the bare hello")
    results.add("engine, idle memory", "MB", [one.idle / 1e6 for one in starts])
    results.add("the bare hello, idle memory", "MB", [one.idle / 1e6 for one in hellos])
    results.ratio("engine, idle memory / the bare hello's", "engine, idle memory", "the bare hello, idle memory")
    results.add("engine, memory once a page was shown", "MB", [one.shown / 1e6 for one in starts])
