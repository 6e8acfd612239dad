"""What is used of other libraries: each declared, and nothing that it doesn't promise but what `pinned.py` lists."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import h11
import pytest
from h2.connection import H2Connection
from hypercorn.config import Config
from hypercorn.protocol.h2 import H2Protocol

from hatchway.api.server import pinned
from hatchway.api.server.connection import Connection
from hatchway.api.server.context import Context, ServerLimits
from hatchway.api.server.h2 import H2
from hatchway.api.server.h2_parts import H2Config
from hatchway.api.testing import trio_inside
from hatchway.engine.base.clock import SystemClock
from tests.support.fakes import ROOT

PRODUCT = ("statecharts", "engine", "api")
OURS = {"hatchway", "tests"}

PROMISED = {
    "anyio": ("anyio", "anyio.to_thread"),
    "badkeys": ("badkeys.rsakeys",),
    "certifi": ("certifi",),
    "click": ("click", "click.shell_completion"),
    "coredis": ("coredis",),
    "cryptography": (
        "cryptography.exceptions",
        "cryptography.hazmat.primitives",
        "cryptography.x509",
    ),
    "gmpy2": ("gmpy2",),
    "h11": ("h11",),
    "h2": ("h2.errors", "h2.events", "h2.exceptions", "h2.settings"),
    "httpcore": ("httpcore",),
    "hypercorn": ("hypercorn.config",),
    "idna": ("idna",),
    "jwt": ("jwt",),
    "msgspec": ("msgspec", "msgspec.structs"),
    "sortedcontainers": ("sortedcontainers",),
    "prometheus_client": ("prometheus_client", "prometheus_client.core"),
    "pytest": ("pytest",),
    "quart": ("quart",),
    "quart_trio": ("quart_trio",),
    "rich": ("rich.console", "rich.progress"),
    "segno": ("segno",),
    "structlog": ("structlog", "structlog.typing"),
    "tomlkit": ("tomlkit", "tomlkit.exceptions"),
    "transitions": ("transitions",),
    "trio": ("trio", "trio.abc", "trio.testing"),
    "typing_extensions": ("typing_extensions",),
    "werkzeug": ("werkzeug.datastructures", "werkzeug.exceptions"),
}
"""The modules of each library that its documentation describes; of cryptography, those below them too."""

OF_TUPLES = {"_asdict", "_replace", "_make", "_fields"}
"""Documented in spite of their underscore: methods of named tuples."""

OF_PYTHON = {"os._exit"}
"""Documented in spite of its underscore."""

IN_THE_MANUAL = {"they_are_waiting_for_100_continue"}
"""Described in h11's manual, though not beside its code."""


def files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """Each import of a file from other libraries, lazy ones and those for types too: the module, and the name or ""."""
    for node in ast.walk(parsed(path)):
        found = []
        if isinstance(node, ast.Import):
            found = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found = [(node.module, alias.name) for alias in node.names]
        for module, name in found:
            root = module.split(".")[0]
            if root not in sys.stdlib_module_names and root not in OURS:
                yield module, name


def declared(*extras: str) -> set[str]:
    """The distributions that pyproject asks for, with those of the extras; spelt as PEP 503 has it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + [line for extra in extras for line in project["optional-dependencies"][extra]]
    return {_spelt(re.split(r"[^A-Za-z0-9._-]", line)[0]) for line in wanted}


def _spelt(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


BY_HAND = ("tests/bench/peers", "tests/mutants.py")
"""Where something is used that its user installs: the module or CONTRIBUTING says so."""


@pytest.mark.parametrize(("folders", "extras"), [(PRODUCT, ("fleet", "test")), (("tests",), ("fleet", "dev"))])
def test_what_is_imported_is_declared(folders: tuple[str, ...], extras: tuple[str, ...]) -> None:
    """Nothing is there only because another library brings it along."""
    known, asked = packages_distributions(), declared(*extras)
    roots = {module.split(".")[0]: path for path in files(*folders) for module, _ in imported(path)}
    missing = {
        f"{root} ({path.relative_to(ROOT)})"
        for root, path in roots.items()
        if not path.relative_to(ROOT).as_posix().startswith(BY_HAND)
        and not {_spelt(name) for name in known.get(root, [root])} & asked
    }
    assert not missing


def test_what_is_declared_is_imported() -> None:
    """Nothing is installed with the wheel that it doesn't use."""
    known = packages_distributions()
    roots = {module.split(".")[0] for path in files(*PRODUCT) for module, _ in imported(path)}
    assert declared("fleet", "test") == {_spelt(name) for root in roots for name in known[root]}


def is_promised(module: str, name: str) -> bool:
    promised = PROMISED.get(module.split(".")[0], ())
    described = module in promised or any(
        part.startswith("cryptography") and module.startswith(part) for part in promised
    )
    return not name.startswith("_") and (described or f"{module}.{name}" in promised)


TRIOS_OWN = {"_core"}.union(*trio_inside.NAMES.values())
"""What the explorer takes of trio, which no engine loads."""

OF_ANY_CLASS = {"__init__", "__firstlineno__", "__static_attributes__", *vars(type("Empty", (), {}))}
"""The two are what a class statement notes from Python 3.13 on."""

LISTED = pinned.PARAMETERS.keys() | pinned.ATTRIBUTES.keys()
"""The classes that the list names something of."""


def test_what_is_imported_is_promised_or_listed() -> None:
    """Whatever comes from a module that its library doesn't describe stands in the list, and the list names no more."""
    taken = {
        getattr(import_module(module), name) if name else import_module(module)
        for path in files(*PRODUCT)
        for module, name in imported(path)
        if not is_promised(module, name) and path.name != "pinned.py"
    }
    assert taken == LISTED - {Config, H2Connection}


def test_underscores_are_our_own() -> None:
    """No attribute with an underscore is another library's, but for those that are listed."""
    own, used = set(OF_TUPLES), set()
    for node in (node for path in files(*PRODUCT) for node in ast.walk(parsed(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            own.add(node.attr)
        elif isinstance(node, ast.Attribute) and ast.unparse(node) not in OF_PYTHON:
            used.add(node.attr)
    foreign = {name for name in used - own if name.startswith("_") and not name.startswith("__")}
    assert foreign <= pinned.PARAMETERS[H2Protocol].keys() | TRIOS_OWN


@pytest.mark.parametrize(("ours", "theirs"), [(H2, H2Protocol), (H2Config, Config)])
def test_what_a_class_of_ours_inherits_is_listed(ours: type, theirs: type) -> None:
    """Each method that is overridden or called, and each attribute that is read or set, and no other. Of Config, the
    settings are promised."""
    settings = {name for name in vars(Config) if not callable(getattr(Config, name))} if theirs is Config else set()
    listed = pinned.PARAMETERS.get(theirs, {}).keys() | pinned.ATTRIBUTES.get(theirs, set())
    used = _attributes(ours, "self", "super()") | vars(ours).keys() | _attributes(Connection, "self.protocol")
    assert used & _provided(theirs) - settings - OF_ANY_CLASS == listed - OF_ANY_CLASS


def _tree(cls: type) -> ast.Module:
    return ast.parse(textwrap.dedent(inspect.getsource(cls)))


def _attributes(cls: type, *values: str) -> set[str]:
    """What a class reads, sets or calls of `values`."""
    nodes = (node for node in ast.walk(_tree(cls)) if isinstance(node, ast.Attribute))
    return {node.attr for node in nodes if ast.unparse(node.value) in values}


def _provided(cls: type) -> set[str]:
    """What instances of a class have: methods, and what it sets on itself."""
    return vars(cls).keys() | _attributes(cls, "self")


@pytest.mark.parametrize(("module", "theirs"), [("h1.py", h11.Connection), ("h2.py", H2Connection)])
def test_connections_are_used_as_described(module: str, theirs: type) -> None:
    """Of the connections of h11 and h2, we use what has a description of its own, and what is listed."""
    used = {
        node.attr
        for node in ast.walk(parsed(ROOT / "api/server" / module))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self.connection"
    }
    public = {name for name in used if hasattr(theirs, name) and not name.startswith("_")}
    described = {name for name in public if inspect.getdoc(getattr(theirs, name))}
    assert used - described - IN_THE_MANUAL == pinned.ATTRIBUTES.get(theirs, set())


class Bystander:
    """A connection that nothing is done with."""

    def __init__(self, context: Context) -> None:
        self.context = context


async def test_the_list_is_true() -> None:
    """What is listed is there, on the objects that we make of it."""
    pinned.check_hypercorn()
    context = Context(ServerLimits, None, SystemClock())
    protocol: Any = H2(Bystander(context))  # type: ignore[arg-type]
    for name in pinned.ATTRIBUTES[H2Protocol]:
        assert hasattr(protocol, name)
    for name in pinned.ATTRIBUTES[H2Connection]:
        assert hasattr(protocol.connection, name)
