"""Mutation testing: `python -m tests.mutants [--every N] [FILE ...]` shows the changes that no test notices.

The changes are cosmic-ray's (`pip install cosmic-ray`), and statements left out. No file is written: each mutant is
served to a forked interpreter that has all but our own modules loaded, so that trying one costs little but its tests.
"""

from __future__ import annotations

import ast
import difflib
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count, islice
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.changed_modules import outcome, preload
from tests.support.fakes import ROOT

FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef

CACHE = TemporaryDirectory(prefix="mutants-")

SLOWER = 5
"""So many times the tests' usual time, and a minute: what takes longer hangs, and that is noticed."""

CHARTS = ("chart", "interpreter", "pairing_chart", "session_chart", "instance_chart", "contract_tables", "runtime")

TESTS = {
    "statecharts/chart.py": CHARTS,
    "statecharts/interpreter.py": CHARTS,
    "statecharts/pairing.py": (*CHARTS, "pairings"),
    "statecharts/session.py": (*CHARTS, "session_ends", "sessions"),
    "statecharts/instance.py": (*CHARTS, "instances"),
    "engine/access/challenges.py": ("challenges", "signatures", "sign_in"),
    "engine/access/tokens.py": ("tokens", "jose_vectors", "session_ends", "sessions", "security_tokens"),
    "engine/access/limits.py": ("limits",),
    "engine/base/base64url.py": ("challenges", "tokens", "jose_vectors"),
    "engine/base/permissions.py": ("permissions", "authorized_keys", "session_ends", "sessions", "pairings"),
    "engine/pairings/codes.py": ("codes", "pairings"),
    "engine/keys/keys.py": ("signatures", "key_lines", "key_files", "keys"),
    "engine/access/signers.py": ("signers",),
    "engine/keys/authorized_keys.py": ("hand_edits", "authorized_keys", "settled_keys"),
    "engine/keys/key_edits.py": ("key_edits", "authorized_keys", "key_lines"),
    "engine/access/license.py": ("license",),
    "engine/keys/rotation.py": ("rotation",),
    "engine/keys/key_files.py": ("key_files", "keys"),
    "engine/keys/key_lines.py": ("key_lines", "authorized_keys"),
    "engine/keys/weak_keys.py": ("weak_keys", "keys"),
    "engine/keys/key_index.py": ("many_keys", "authorized_keys"),
    "engine/sessions/versions.py": ("versions",),
    "engine/base/files.py": ("files",),
    "engine/base/file_locks.py": ("file_locks", "files"),
    "engine/runtime/runtime.py": ("runtime", "shared_store", "instances", "session_ends", "sessions", "pairings"),
    "engine/runtime/actors.py": ("runtime", "shared_store", "session_ends", "pairings", "sessions"),
    "engine/runtime/timers.py": ("timers", "runtime"),
    "engine/runtime/records.py": ("records", "logs", "journal"),
    "engine/runtime/actor_index.py": ("actor_index", "sessions", "instances"),
    "engine/sessions/key_uses.py": ("key_uses",),
    "engine/sessions/sessions.py": ("sessions_shared", "session_ends", "sign_in", "sessions", "pairings"),
    "engine/sessions/orphans.py": ("session_ends", "key_command", "sessions"),
    "engine/sessions/key_sign_in.py": ("sessions_shared", "sign_in", "sessions"),
    "engine/access/principal.py": ("permissions",),
    "engine/pairings/pairings.py": ("pairings_shared", "pairing_ends", "pairings", "security_pairing", "interleavings"),
    "engine/pairings/claims.py": ("codes", "pairings"),
    "engine/fleet/lease.py": ("fleet_lease",),
    "engine/fleet/limits.py": ("fleet_lease",),
    "engine/fleet/remote_calls.py": ("remote_calls", "remote_codes", "roster"),
    "engine/fleet/change_reader.py": ("change_reader", "remote_calls", "roster", "key_mirror"),
    "engine/sessions/session_limit.py": ("session_limit",),
    "engine/instances/binds.py": ("binds",),
    "engine/instances/tails.py": ("followed_logs",),
    "api/http/gateway.py": ("addresses", "manners_origins", "manners", "metrics", "traceparent"),
    "api/workers/backend.py": ("response_cache", "worker_messages"),
    "api/server/context.py": ("starts", "server_parts", "places", "server_life", "server_limits"),
    "api/server/starts.py": ("starts",),
    "api/server/places.py": ("places",),
    "api/server/silent.py": ("places", "server_limits"),
}
"""File, and its tests, the quickest first."""


PASSED_OVER = re.compile(r"_(Eq|NotEq)_(Is|IsNot)$|_(Add|Sub|Mul|Div|FloorDiv|Mod)_(Pow|[LR]Shift|Bit\w+)$")
"""Operators that no test can notice (equal texts are mostly one object), or that any test does."""


def mutants(source: str) -> Iterator[str]:
    """Every text that the file may be changed into, each once, if more than annotations and comments tell it apart."""
    seen = {None, _meaning(source)}
    for text in (*_replaced(source), *_left_out(source)):
        meaning = _meaning(text)
        if meaning not in seen:
            seen.add(meaning)
            yield text


def _meaning(source: str) -> str | None:
    """What tells two texts apart; None for one that is no program."""
    try:
        tree: Any = ast.parse(source)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign | ast.arg):
            node.annotation = ast.Constant(None)
        elif isinstance(node, FUNCTION):
            node.returns = None
    return ast.dump(tree)


def _replaced(source: str) -> Iterator[str]:
    """One operator, comparison, condition, number, exception or decorator changed."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator, operator_names

    for name in operator_names():
        operator = get_operator(name)
        if operator.arguments() or PASSED_OVER.search(name):
            continue
        for occurrence in count():
            # It stumbles over `except module.Fault`.
            with suppress(AttributeError):
                if (text := mutate_code(source, operator(), occurrence)) is None:
                    break
                yield text


def _left_out(source: str) -> Iterator[str]:
    """One statement of a function left out, or one `if` always or never taken."""
    lines = source.splitlines(keepends=True)
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, FUNCTION)]
    for node in dict.fromkeys(node for function in functions for node in ast.walk(function) if node is not function):
        if isinstance(node, ast.If | ast.While):
            yield _with(lines, node.test, "True")
            yield _with(lines, node.test, "False")
        elif isinstance(node, ast.stmt) and ast.get_docstring(ast.Module([node], [])) is None:
            yield _with(lines, node, "pass")


def _with(lines: list[str], node: Any, instead: str) -> str:
    """The text with `instead` in the node's place."""
    first, last = lines[node.lineno - 1].encode(), lines[node.end_lineno - 1].encode()
    middle = first[: node.col_offset].decode() + instead + last[node.end_col_offset :].decode()
    return "".join((*lines[: node.lineno - 1], middle, *lines[node.end_lineno :]))


def options(file: str) -> list[str]:
    """What pytest is asked to run for a file."""
    # What noticed the last change comes first: the next one is often beside it.
    last = ["--failed-first", "-o", f"cache_dir={CACHE.name}"]
    return [
        "-q",
        "-n0",
        *last,
        *(str(path) for name in TESTS[file] for path in (ROOT / "tests").rglob(f"test_{name}.py")),
    ]


def main(arguments: list[str]) -> int:
    """Try them all, or with `--every N` a sample; the exit code says whether one was not noticed."""
    every = int(arguments[1]) if arguments[:1] == ["--every"] else 1
    files = arguments[2:] if every > 1 else arguments
    return int(sum(survivors(file, every) for file in files or TESTS) > 0)


def survivors(file: str, every: int) -> int:
    """Print what no test of the file notices; how many there are."""
    preload(options(file))
    source, tried, unnoticed = (ROOT / file).read_text(), 0, 0
    begun = time.monotonic()
    if outcome(file, source, options(file)):
        raise SystemExit(f"the tests of {file} fail as it is")
    if not outcome(file, "raise ImportError", options(file)):
        raise SystemExit(f"no test of {file} imports it")
    longest = SLOWER * (time.monotonic() - begun) + 60
    for text in islice(mutants(source), 0, None, every):
        tried += 1
        if not outcome(file, text, options(file), longest):
            unnoticed += 1
            print(
                *difflib.unified_diff(source.splitlines(), text.splitlines(), file, n=0, lineterm=""),
                sep="\n",
                flush=True,
            )
    print(f"{file}: {tried} tried, {unnoticed} not noticed", flush=True)
    return unnoticed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
