"""Counts what makes the tree easy or hard to follow: `python -m tests.structure`. The gate holds the figures as bounds.

Of the code: tables of routes, types of a request, cycles of imports, class names that are there twice, functions with
many parameters, attributes that are set from outside. Of running engines: the modules that an inspection passes.
"""

from __future__ import annotations

import ast
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import httpx

from hatchway.api.http.table import ENDPOINTS
from tests.project.test_layers import package_of
from tests.support.fakes import ROOT
from tests.support.processes import EngineProcess, sign_in
from tests.support.waits import until

FOLDERS = ("statecharts", "engine", "api")

PARAMETERS = 5

MANY_PARAMETERS = {
    "api/cli/events.py events": "click hands each option over by itself",
    "api/cli/events_ship.py ship": "click hands each option over by itself",
    "api/cli/open.py open_command": "click hands each option over by itself",
    "api/cli/host.py client": "what commands may set of their client, by keyword",
    "api/cli/key_grants.py register": "click hands each option over by itself",
    "api/cli/sign_in.py login": "click hands each option over by itself",
    "api/client/base.py __init__": "what a program may set of its client, by keyword, as its users know it",
    "api/client/flows.py __init__": "the same settings, as both clients hand them on",
    "api/server/server.py serve": "all that a server is, by keyword: what most callers leave out has a default",
    "engine/engine.py __init__": "the engine joins what it is made of",
    "engine/engine.py open_engine": "all that an engine is opened with, by keyword: tests bring clocks and runtimes",
    "engine/fleet/change_reader.py __init__": "injected by the fleet, each used: a value for them would be read once",
    "engine/fleet/key_watch.py __init__": "injected by the engine, each used",
    "engine/instances/instances.py __init__": "injected by the engine, each used",
    "engine/keys/key_edits.py register": "what a line of authorized_keys says, each with a default",
    "engine/pairings/pairings.py __init__": "injected by the engine, each used",
    "engine/runtime/records.py notice": "the fields of a record, which are made nowhere else",
    "engine/runtime/records.py refusal": "the fields of a record, which are made nowhere else",
    "engine/runtime/records.py transition": "the fields of a record, which are made nowhere else",
    "engine/runtime/runtime.py create": "an actor's beginning: its chart, its names, its facts, who began it",
    "engine/runtime/runtime.py send": "an event's actor, by chart and name, and what it brings and gives, by keyword",
    "engine/runtime/runtime.py register": "a chart with the functions that it names",
    "engine/sessions/key_sign_in.py __init__": "injected by the engine, each used",
    "engine/sessions/sessions.py __init__": "injected by the engine, each used",
    "engine/sessions/sessions.py start": "a session's facts, by keyword",
    "statecharts/draw/layout.py _line": "the two ends of a line are two numbers each",
}
"""Functions with more than five parameters, and why each has them."""


SET_FROM_OUTSIDE = {
    "an object of a library's, or of Python's, which is set up so": (
        "api/cli/groups.py context.color",
        "api/cli/signing_keys.py timer.daemon",
        "api/cli/pins.py context.check_hostname",
        "api/cli/pins.py context.verify_flags",
        "api/cli/pins.py context.verify_mode",
        "api/cli/sign_in.py timer.daemon",
        "api/client/ssh/probe.py context.check_hostname",
        "api/ship/http.py late.daemon",
        "api/client/ssh/probe.py context.verify_mode",
        "api/http/quart_mount.py quart.url_map.merge_slashes",
        "api/http/quart_mount.py translated.timeout",
        "api/server/h2.py self.connection.encoder.header_table_size",
        "api/server/h2.py self.connection.local_settings",
        "api/server/tls.py context.minimum_version",
        "api/workers/pool.py keeping.cancel_scope.deadline",
        "api/testing/held_clock.py self._clock.autojump_threshold",
        "api/testing/held_clock.py self._clock.rate",
        "api/testing/pytest_plugin.py item.obj",
        "api/testing/trio_inside.py clock._autojump",
        "engine/fleet/fleet.py scope.shield",
        "engine/instances/processes.py popen.returncode",
        "engine/instances/slurm/node.py popen.returncode",
        "engine/journal/logs.py root.handlers",
    ),
    "an actor, which is a row: the runtime keeps what the chart says, a service when it was used": (
        "engine/runtime/actors.py actor.deadline",
        "engine/runtime/actors.py actor.since",
        "engine/runtime/actors.py actor.facts",
        "engine/runtime/actors.py actor.state",
        "engine/runtime/actors.py actor.version",
        "engine/runtime/runtime.py actor.deadline",
        "engine/runtime/runtime.py actor.since",
        "engine/runtime/runtime.py actor.facts",
        "engine/runtime/runtime.py actor.state",
        "engine/runtime/runtime.py actor.version",
        "engine/runtime/timers.py item.timer",
        "engine/sessions/session_limit.py actor.used",
        "engine/sessions/sessions.py actor.used",
        "statecharts/interpreter.py model.state",
    ),
    "a note of its own package's, kept by whoever works with it": (
        "api/client/operator.py refusal.code",
        "api/host/operator_socket.py lines.silence",
        "api/server/connection.py self.socket.linger",
        "api/server/h2.py stream.taken",
        "api/server/listeners.py stream.linger",
        "api/server/places.py occupant.held_bytes",
        "api/server/places.py occupant.share",
        "api/server/places.py occupant.share.held_bytes",
        "api/workers/engine_client.py call.reply",
        "api/workers/backend.py row.seconds",
        "engine/fleet/codes.py claim.match",
        "engine/fleet/remote_instances.py ask.position",
        "engine/instances/tails.py tail.end",
        "engine/pairings/pairings.py claim.given_up",
        "engine/pairings/pairings.py claim.match",
        "engine/pairings/pairings.py code.consumed_at",
        "engine/pairings/pairings.py code.wrong",
        "engine/pairings/pairings.py self._codes[actor.id].claim",
    ),
}
"""Attributes that are not set by their object itself, by why. Nothing is injected so: that is done by constructors."""


@cache
def trees() -> Mapping[str, ast.Module]:
    """Every file of the product, parsed, by its path from the root."""
    paths = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in paths}


def walk() -> Iterator[tuple[str, ast.AST]]:
    """Every node of every file, with the file's path."""
    for path, tree in trees().items():
        for node in ast.walk(tree):
            yield path, node


def route_tables() -> list[str]:
    """Where paths of endpoints are put together: collections that spell two or more of them, and routes of Quart's."""
    paths = {endpoint.path for endpoint in ENDPOINTS} - {"/"}
    found = set()
    for file, node in walk():
        if isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict | ast.Match):
            spelt = {leaf.value for leaf in ast.walk(node) if isinstance(leaf, ast.Constant)} & paths
            if len(spelt) > 1 and not file.startswith(("api/client/", "api/cli/")):
                found.add(f"{file}: the paths of endpoints")
        elif isinstance(node, ast.Attribute) and node.attr in ("add_url_rule", "route"):
            found.add(f"{file}: routes of Quart")
    return sorted(found)


def request_types() -> list[str]:
    """Classes of the server's side that hold a method, a path or target, and headers."""
    found = []
    for file, node in walk():
        if (
            isinstance(node, ast.ClassDef)
            and file.startswith("api/")
            and not file.startswith(("api/client/", "api/cli/"))
        ):
            fields = {
                leaf.target.id
                for leaf in node.body
                if isinstance(leaf, ast.AnnAssign) and isinstance(leaf.target, ast.Name)
            }
            if {"method", "headers"} <= fields and fields & {"path", "target"}:
                found.append(f"{file}: {node.name}")
    return found


def module_of(file: str) -> str:
    """The name that a file is imported by."""
    return "hatchway." + file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def imports() -> Mapping[str, set[str]]:
    """What each module imports of ours, lazily and for types too."""
    known = {module_of(file) for file in trees()}
    found: dict[str, set[str]] = {module: set() for module in known}
    for file, node in walk():
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            below = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known else node.module for name in below]
        found[module_of(file)] |= {name for name in names if name in known} - {module_of(file)}
    return found


def cycles_by_file() -> list[str]:
    """A cycle of modules, if there is one."""
    return _cycle(imports())


def cycles_by_package() -> list[str]:
    """A cycle of the packages of the layers' test, if there is one."""
    graph: dict[str, set[str]] = {}
    for module, used in imports().items():
        mine = package_of(module)
        graph.setdefault(mine, set()).update(package_of(name) for name in used if package_of(name) != mine)
    return _cycle(graph)


def _cycle(graph: Mapping[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def classes_named_twice() -> list[str]:
    """Names of classes that more than one file, or one twice, gives."""
    places: dict[str, list[str]] = {}
    for file, node in walk():
        if isinstance(node, ast.ClassDef):
            places.setdefault(node.name, []).append(file)
    return [f"{name}: {', '.join(files)}" for name, files in sorted(places.items()) if len(files) > 1]


def functions_with_many_parameters() -> list[str]:
    """File and name of each function with more than five parameters, itself not counted."""
    found = []
    for file, node in walk():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args
            named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            if sum(one.arg not in ("self", "cls") for one in named) > PARAMETERS:
                found.append(f"{file} {node.name}")
    return sorted(found)


def set_from_outside() -> list[str]:
    """File and attribute wherever a function sets an attribute of anything but `self`."""
    found = {
        f"{file} {ast.unparse(node)}"
        for file, node in walk()
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) != "self"
    }
    return sorted(found)


# What an inspection passes

TRACER = """
import os, signal, sys

seen = set()
folder = os.environ["TRACES"]

def profile(frame, event, argument):
    if event == "call":
        seen.add(frame.f_code.co_filename)

def begin(*_):
    seen.clear()
    sys.setprofile(profile)

def end(*_):
    sys.setprofile(None)
    with open(os.path.join(folder, "writing"), "w") as file:
        file.write("\\n".join(seen))
    os.replace(file.name, os.path.join(folder, str(os.getpid())))

signal.signal(signal.SIGUSR1, begin)
signal.signal(signal.SIGUSR2, end)
"""
"""`sitecustomize` of a traced process: it notes from SIGUSR1 to SIGUSR2 the files of the functions that are called."""

TRIES = 5
"""A module counts that is passed every time: what the sweeper or a renewal does meanwhile is not the request's."""


class Traced:
    """A running engine whose process, and whose worker's, tell what they pass."""

    def __init__(self, engine: EngineProcess, folder: Path) -> None:
        self._engine, self._folder = engine, folder
        self._peer = socket.create_connection(("127.0.0.1", engine.port))
        status = engine.operator({"op": "status"})[-1]
        self.pids = [status["pid"], *status.get("doors", [])]

    def token(self) -> str:
        """That of a new session."""
        with httpx.Client(base_url=self._engine.url) as client:
            token: str = sign_in(client)["token"]
        return token

    def inspect(self, token: str) -> set[str]:
        """The modules that an inspection of this token passes, on a connection that is there already."""
        for pid in self.pids:
            (self._folder / str(pid)).unlink(missing_ok=True)
            os.kill(pid, signal.SIGUSR1)
        self._ask(token)
        for pid in self.pids:
            os.kill(pid, signal.SIGUSR2)
            until((self._folder / str(pid)).exists, what="the process tells what it passed")
        files = {line for pid in self.pids for line in (self._folder / str(pid)).read_text().splitlines()}
        places = {Path(file).resolve() for file in files if not file.startswith("<")}
        return {place.relative_to(ROOT).as_posix() for place in places if place.is_relative_to(ROOT)} & trees().keys()

    def warm(self, token: str) -> None:
        """As other requests have done before the one that counts."""
        self._ask(token)

    def _ask(self, token: str) -> None:
        lines = f"Host: 127.0.0.1:{self._engine.port}\r\nAuthorization: Bearer {token}\r\n"
        self._peer.sendall(f"GET /api/auth/inspect/ HTTP/1.1\r\n{lines}\r\n".encode())
        response = self._peer.recv(65536)
        assert response.startswith(b"HTTP/1.1 200 "), response

    def close(self) -> None:
        self._peer.close()


@contextmanager
def traced_engine(workers: int) -> Iterator[Traced]:
    """A new engine with so many workers, until left."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "sitecustomize.py").write_text(TRACER)
        environ = {"PYTHONPATH": str(folder), "TRACES": str(folder), "HATCHWAY_WORKERS": str(workers)}
        engine = EngineProcess(folder / "home", **environ)
        try:
            traced = Traced(engine.start(), folder)
            try:
                yield traced
            finally:
                traced.close()
        finally:
            engine.kill()


def passed_through_the_parser() -> set[str]:
    """What an inspection passes that the engine's own process answers."""
    with traced_engine(1) as traced:
        token = traced.token()
        traced.warm(token)
        return set.intersection(*(traced.inspect(token) for _ in range(TRIES)))


def passed_by_a_worker() -> tuple[set[str], set[str]]:
    """What an inspection passes that a worker answers again; and one that it asks the engine for, in both processes."""
    with traced_engine(2) as traced:
        traced.warm(traced.token())
        fresh = [traced.token() for _ in range(TRIES)]
        missed = set.intersection(*(traced.inspect(token) for token in fresh))
        hit = set.intersection(*(traced.inspect(fresh[-1]) for _ in range(TRIES)))
        return hit, missed


def main() -> None:
    """Print all of it."""
    hit, missed = passed_by_a_worker()
    lists = {
        "tables of routes": route_tables(),
        "types of a request": request_types(),
        "modules that an inspection through the parser passes": sorted(passed_through_the_parser()),
        "modules that one through a worker passes, on a hit": sorted(hit),
        "modules that one through a worker passes, on a miss": sorted(missed),
        "cycle of imports by file": cycles_by_file(),
        "cycle of imports by package": cycles_by_package(),
        "class names that are there twice": classes_named_twice(),
        "functions with more than five parameters": functions_with_many_parameters(),
        "attributes that are set from outside": set_from_outside(),
    }
    for what, found in lists.items():
        sys.stdout.write(f"{len(found):4}  {what}\n" + "".join(f"        {one}\n" for one in found))


if __name__ == "__main__":
    main()
