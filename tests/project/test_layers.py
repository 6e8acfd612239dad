"""Which way imports run: downward by package, no loops, each library where it belongs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.fakes import ROOT

PACKAGES = (
    "statecharts",
    "statecharts.draw",
    "engine.base",
    "engine.settings",
    "engine.store",
    "engine.runtime",
    "engine.journal",
    "engine.keys",
    "engine.access",
    "engine.sessions",
    "engine.pairings",
    "engine.instances",
    "engine.fleet",
    "engine",
    "api.http",
    "api.server",
    "api.workers",
    "api.ship",
    "api.host",
    "api.client",
    "api.open",
    "api.testing",
    "api.cli",
    "api",
)
"""Every package, in the order in which they may import: each only itself and those above it."""


ONLY = {
    "transitions": {"statecharts/interpreter.py"},
    "hypercorn": {"api/server/"},
    "quart": {"api/http/"},
    "quart_trio": {"api/http/"},
    "click": {"api/cli/"},
    "rich": {"api/cli/"},
    "prometheus_client": {"api/", "engine/journal/metrics.py", "engine/journal/gauges.py"},
}
"""Where a library may be imported: by path, or by folder."""

CLOCKS = {
    "engine/base/clock.py": "it is the one source of time",
    "engine/engine.py": "an engine is opened on the host's clock, unless it is given another",
    "api/server/server.py": "as an engine is",
    "api/server/tls.py": "as an engine is",
    "api/workers/engine_client.py": "a worker is another process than its engine",
    "engine/keys/own_keys.py": "it compares with a file's time stamp",
    "engine/store/sqlite.py": "the writer's thread waits, without trio, for another program to be done with the file",
    "engine/journal/logs.py": "a line of the log has the host's time; the writer's thread waits without trio",
    "engine/instances/apptainer/launcher.py": "it is a program of its own, on the standard library alone",
    "engine/instances/apptainer/watcher.py": "it is a program of its own, on the standard library alone",
    "engine/instances/slurm/node.py": "it is a program of its own, on the standard library alone",
    "api/http/gateway.py": "it measures how long a response took",
    "api/host/systemd.py": "systemd wants the kernel's monotonic clock",
    "api/host/detached.py": "it waits for another process, before there is any engine or trio",
    "api/open/": "it is a command's, on its user's own machine",
    "api/testing/explorer.py": "an exploration may take so many seconds of its user",
    "api/testing/held_clock.py": "a held clock begins at the time of the host",
    "api/cli/": "a command runs on its user's host, and loads no trio to know the time",
    "api/client/": "a client runs on its user's host, and loads no trio to know the time",
}
"""Where a clock is read or a thread sleeps, by path or folder, and why there. All else is given a `Clock`."""

STATECHARTS_MAY = {
    "collections",
    "dataclasses",
    "typing",
    "functools",
    "xml",
    "math",
    "itertools",
    "json",
    "html",
    "re",
}
"""The pure side knows the standard library's pure half, and `transitions` in one file."""


def modules() -> Iterator[tuple[str, Path]]:
    """Every file of the product: its path from the root, and where it is."""
    for folder in ("statecharts", "engine", "api"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path


def module_of(name: str) -> str:
    """The dotted name of a file: `hatchway.engine.base.clock` of `engine/base/clock.py`."""
    return "hatchway." + name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def package_of(module: str) -> str:
    """The innermost package of PACKAGES that a module is in."""
    return max((package for package in PACKAGES if f"{module}.".startswith(f"hatchway.{package}.")), key=len)


@cache
def imports(path: Path, *, top: bool = False) -> frozenset[str]:
    """What a file imports, everywhere, lazily and for types too; or where it runs at import."""
    tree = ast.parse(path.read_text())
    nodes = list(tree.body) if top else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


KNOWN = {module_of(name): path for name, path in modules()}


@pytest.mark.parametrize(("name", "path"), list(modules()), ids=lambda value: value if isinstance(value, str) else "")
def test_imports_run_downward(name: str, path: Path) -> None:
    """A package imports itself and those above it in the order, lazily and for types too; libraries stay in place."""
    mine = PACKAGES.index(package_of(module_of(name)))
    for used in imports(path) & KNOWN.keys():
        assert PACKAGES.index(package_of(used)) <= mine, f"{name} imports {used}, which stands below it"
    libraries = {module.split(".")[0] for module in imports(path)}
    for library, places in ONLY.items():
        if library in libraries:
            assert any(name.startswith(place) for place in places), f"{name} imports {library}"
    if name.startswith("statecharts"):
        assert libraries - {"__future__", "hatchway", "transitions"} <= STATECHARTS_MAY


def test_one_name_to_import() -> None:
    """Program and tests import `hatchway...` alone: by its folder's name a module would be loaded a second time."""
    for path in (*KNOWN.values(), *(ROOT / "tests").rglob("*.py")):
        assert not re.search(
            r"\bfrom (api|engine|statecharts)[\w.]* import|\\nfrom (api|engine|statecharts)\b", path.read_text()
        ), path


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_what_it_is_for(package: str) -> None:
    """Each one's docstring is a sentence or two, for somebody who has read nothing else."""
    text = ast.get_docstring(ast.parse((ROOT / package.replace(".", "/") / "__init__.py").read_text()))
    assert text
    assert len(text) > 40


def test_a_test_stands_in_the_folder_of_what_it_holds() -> None:
    """None lies at the top, each folder says what it holds, and a file's name alone says which file is meant."""
    found = sorted((ROOT / "tests").rglob("test_*.py"))
    assert not [path.name for path in found if path.parent.name == "tests"], "move it into a folder of tests/"
    assert len({path.name for path in found}) == len(found)
    for folder in {path.parent for path in found}:
        assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text())), folder


def test_time_comes_from_one_place() -> None:
    """Whoever needs the time is given a clock, so that tests can hold it; who reads one has a reason in CLOCKS."""
    read = {name for name, path in modules() if reads_a_clock(path)}
    places = {name: [place for place in CLOCKS if name.startswith(place)] for name in read}
    assert not [name for name, found in places.items() if not found], "give it a Clock, or a reason in CLOCKS"
    assert {place for found in places.values() for place in found} == CLOCKS.keys(), "take what is left over out"


def reads_a_clock(path: Path) -> bool:
    """Whether a file uses the standard library's clocks or sleeps, or makes a `SystemClock`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "time":
            return True
        if isinstance(node, ast.Attribute) and node.attr in ("now", "utcnow", "today") and "date" in ast.unparse(node):
            return True
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "SystemClock":
            return True
    return False


def test_no_loops() -> None:
    """What is imported while a module loads never leads back to it."""
    graph = {name: imports(path, top=True) & KNOWN.keys() - {name} for name, path in KNOWN.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a loop of imports: {' -> '.join(reversed(error.args[1]))}")


def test_services_do_not_know_each_other() -> None:
    """Pairings and instances reach sessions through what the engine hands them, not by calling one another."""
    services = ("pairings", "instances", "sessions")
    for service in services:
        others = {f"hatchway.engine.{other}.{other}" for other in services if other != service}
        for path in (ROOT / "engine" / service).rglob("*.py"):
            assert not imports(path) & others
