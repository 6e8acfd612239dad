"""Which way imports run: api -> engine -> statecharts, no loops inside a folder, each library where it belongs."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.fakes import ROOT

MAY = {"statecharts": {"statecharts"}, "engine": {"engine", "statecharts"}, "api": {"api", "engine", "statecharts"}}

ONLY = {
    "transitions": {"statecharts/interpreter.py"},
    "hypercorn": {"api/server.py", "api/transport/"},
    "quart": {"api/http/"},
    "quart_trio": {"api/http/"},
    "click": {"api/cli/"},
    "rich": {"api/cli/"},
    "prometheus_client": {"api/", "engine/metrics.py", "engine/histograms.py"},
}
"""Where a library may be imported: by path, or by folder."""

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
    for folder in MAY:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path


def imports(path: Path, *, top: bool = False) -> set[str]:
    """What a file imports: everywhere, or where it runs at import."""
    tree = ast.parse(path.read_text())
    nodes = list(tree.body) if top else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize(("name", "path"), list(modules()), ids=lambda value: value if isinstance(value, str) else "")
def test_imports_run_one_way(name: str, path: Path) -> None:
    """No room knows the one above it, and libraries stay in their places."""
    room, used = name.split("/")[0], {module.split(".")[0] for module in imports(path)}
    assert not (used & set(MAY)) - MAY[room]
    for library, places in ONLY.items():
        if library in used:
            assert any(name.startswith(place) for place in places), f"{name} imports {library}"
    if room == "statecharts":
        assert used - {"__future__", "statecharts", "transitions"} <= STATECHARTS_MAY


def test_no_loops() -> None:
    """What is imported while a module loads never leads back to it."""
    known = {name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for name, path in modules()}
    graph = {name: imports(path, top=True) & known.keys() - {name} for name, path in known.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a loop of imports: {' -> '.join(reversed(error.args[1]))}")


def test_services_do_not_know_each_other() -> None:
    """Pairings and instances reach sessions through what the engine hands them, not by calling one another."""
    for service in ("pairings", "instances", "sessions"):
        others = {f"engine.{other}" for other in ("pairings", "instances", "sessions") if other != service}
        classes = {f"{other}.{other.split('.')[1].title()}" for other in others}
        assert not imports(ROOT / "engine" / f"{service}.py") & classes


def test_help_needs_no_server() -> None:
    """The command prints its help without loading the server, the engine's crypto or trio."""
    probe = (
        "import sys\nfrom api.cli import main\n"
        "heavy = set(sys.argv[1:])\nsys.argv[1:] = ['--help']\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & heavy))"
    )
    heavy = ["quart", "hypercorn", "cryptography", "trio", "httpx", "jwt", "transitions"]
    done = subprocess.run([sys.executable, "-c", probe, *heavy], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
