"""Whole processes: the command's help and ping, an engine's start and idle memory, beside Python's own start."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
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
    """All of it, by turns, as people have it: what is loaded was compiled before."""
    times: dict[str, list[float]] = {}
    starts: list[Start] = []
    hellos: list[Start] = []
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        started, asked, port = Path(folder) / "started", Path(folder) / "asked", free_port()
        prepare(started)
        prepare(asked)
        compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": f"{folder}/compiled"}
        environ = {"HATCHWAY_HOME": str(started), **compiled}
        of_ping = {"HATCHWAY_HOME": str(asked), **compiled}
        stack.enter_context(serving(hatchway(port), port, **of_ping))
        for number in range(plan.rounds + 2):
            took = {
                "python -c pass": seconds_of([sys.executable, "-c", "pass"], **compiled),
                "hatchway --help": seconds_of([*COMMAND, "--help"], **environ),
                "hatchway engine ping": seconds_of([*COMMAND, "engine", "ping"], **of_ping),
            }
            start_of_ours, of_hello = start(hatchway, "/healthz", **environ), start(yardstick, "/", **compiled)
            if number < 2:
                continue  # the first of each compiles what it loads, and the first ping signs in
            for name, seconds in took.items():
                times.setdefault(name, []).append(seconds)
            starts.append(start_of_ours)
            hellos.append(of_hello)
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
