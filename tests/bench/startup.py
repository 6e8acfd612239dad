"""Whole processes: the command's help and ping, an engine's start and idle memory, beside Python's own start."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.results import Plan, Results
from tests.bench.servers import free_port, hatchway, serving
from tests.fakes import ROOT
from tests.processes import prepare

COMMAND = [sys.executable, "-c", "from api.cli import main; main()"]


def seconds_of(arguments: list[str], **environ: str) -> float:
    """From start to end of a process that must succeed."""
    began = time.perf_counter()
    subprocess.run(arguments, cwd=ROOT, env=os.environ | environ, capture_output=True, check=True)
    return time.perf_counter() - began


def engine_start(home: Path) -> tuple[float, float]:
    """Seconds from an engine's start to its first answer, and the bytes it then holds, idle."""
    port = free_port()
    began = time.perf_counter()
    with serving(hatchway(port), port, HATCHWAY_HOME=str(home)) as server:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        client.request("GET", "/healthz")
        assert client.getresponse().status == 200
        lasted = time.perf_counter() - began
        time.sleep(1)
        return lasted, server.memory()


def measure(results: Results, plan: Plan) -> None:
    """All of it, by turns."""
    times: dict[str, list[float]] = {}
    memory = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        prepare(home)
        environ = {"HATCHWAY_HOME": str(home)}
        engine_start(home)
        for _ in range(plan.rounds):
            times.setdefault("python -c pass", []).append(seconds_of([sys.executable, "-c", "pass"]))
            times.setdefault("hatchway --help", []).append(seconds_of([*COMMAND, "--help"], **environ))
            lasted, held = engine_start(home)
            times.setdefault("engine start to first answer", []).append(lasted)
            memory.append(held)
        port = free_port()
        with serving(hatchway(port), port, **environ):
            seconds_of([*COMMAND, "engine", "ping"], **environ)
            for _ in range(plan.rounds):
                times.setdefault("hatchway engine ping", []).append(seconds_of([*COMMAND, "engine", "ping"], **environ))
    for name, rounds in times.items():
        results.add(name, "ms", [one * 1e3 for one in rounds])
    results.ratio("hatchway --help / python -c pass", "hatchway --help", "python -c pass")
    results.add("engine, idle memory", "MB", [one / 1e6 for one in memory])
