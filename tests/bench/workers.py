"""Inspect and whole sign-ins with the engine alone and with worker processes, on all cores that the load leaves."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.bench.endpoints import key_flow, sign_in_by_key, solved
from tests.bench.load import Told, flows, wrk
from tests.bench.results import Plan, Results
from tests.bench.servers import CORES, Server, cpu_of, hatchway, serving
from tests.support.ports import free_port
from tests.support.processes import prepare

COUNTS = (1, 2)
CONNECTIONS = 64
FLOWS = 32


class Apart:
    """A load, and what of the server's CPU was the engine's: the workers' grows with their number, its does not."""

    def __init__(self, server: Server, load: Callable[[], Told]) -> None:
        all_before, engine_before = server.cpu(), cpu_of(server.process.pid)
        self.told = load()
        all_spent, engine_spent = server.cpu() - all_before, cpu_of(server.process.pid) - engine_before
        self.engine = engine_spent / all_spent / self.told.per_cpu if all_spent and self.told.per_cpu else 0.0
        """Seconds of the engine's CPU for one unit."""


def inspect(server: Server, token: str, seconds: float) -> Apart:
    """The same token again and again."""
    return Apart(server, lambda: wrk(server, "/api/auth/inspect/", CONNECTIONS, seconds, token, cores=tuple(CORES)))


def sign_in(server: Server, seconds: float) -> Apart:
    """Challenge and verify, signed before."""
    answers = iter([solved(server) for _ in range(int(2000 * min(seconds, 3)))])
    return Apart(server, lambda: flows(server, lambda: key_flow(server, answers), FLOWS, seconds))


def measure(results: Results, plan: Plan) -> None:
    """By turns, in one run."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = {count: _start(stack, folder / f"{count}", count) for count in COUNTS}
        tokens = {count: sign_in_by_key(server) for count, server in servers.items()}
        for count, server in servers.items():
            inspect(server, tokens[count], 1)  # warmed up
        found: dict[str, list[Apart]] = {}
        for _ in range(plan.rounds):
            for count, server in servers.items():
                found.setdefault(f"inspect, workers={count}", []).append(inspect(server, tokens[count], plan.seconds))
                found.setdefault(f"sign-in, workers={count}", []).append(sign_in(server, plan.seconds))
        for name, parts in found.items():
            _add(results, name, parts)
        many = servers[COUNTS[-1]]
        each = (many.memory() - many.memory_of_engine()) / COUNTS[-1]
        results.add("a worker process, memory", "MB", [each / 1e6])
    for kind in ("inspect", "sign-in"):
        for figure in ("", ", engine's CPU"):
            name = f"{kind}, workers={COUNTS[-1]}{figure}"
            results.ratio(f"{name} / workers=1", name, f"{kind}, workers=1{figure}")


def _add(results: Results, name: str, parts: list[Apart]) -> None:
    results.add(name, "/s", [part.told.rate for part in parts])
    results.add(f"{name}, engine's CPU", "us", [part.engine * 1e6 for part in parts])
    results.add(f"{name}, all CPU", "us", [1e6 / part.told.per_cpu if part.told.per_cpu else 0.0 for part in parts])
    results.add(f"{name}, p99", "ms", [part.told.p99 * 1e3 for part in parts])
    results.add(f"{name}, errors", "", [part.told.errors for part in parts])


def _start(stack: ExitStack, home: Path, count: int) -> Server:
    prepare(home)
    port = free_port()
    environ = {"HATCHWAY_HOME": str(home), "HATCHWAY_WORKERS": str(count)}
    return stack.enter_context(serving(hatchway(port), port, *CORES, **environ))
