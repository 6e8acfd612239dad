"""`python -m tests`: format, lint, types, then every test. What follows is handed to pytest.

Where that selects tests (`-k WORDS`, or a file) the selected ones alone are run, at once and here: no checks
before them, no other processes, and only files are loaded whose tests may have one of the words in their names.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

CHECKS = (
    ("ruff", "format", "--check", "."),
    ("ruff", "check", "."),
    ("mypy",),
)

NOTHING_COLLECTED = 5
"""pytest's exit code."""


ENVIRONMENT = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Tests start Python a thousand times: what each compiled anew would be a sixth of all the work."""


def run(*command: str) -> int:
    """One module of this Python, in the project's folder; its exit code."""
    print("+", *command, flush=True)
    return subprocess.run([sys.executable, "-m", *command], cwd=ROOT, env=ENVIRONMENT, check=False).returncode


def words_of(arguments: list[str]) -> str | None:
    """What `-k` was given."""
    for at, argument in enumerate(arguments):
        if argument.startswith("-k"):
            return argument[2:] or "".join(arguments[at + 1 : at + 2])
    return None


def text_of_names(text: str) -> str:
    """A file of tests without its docstring, imports and the tests' bodies, which no test's name comes from."""
    text = re.sub(r'\A"""(?s:.*?)"""', "", text)
    text = re.sub(r"^(?:from|import) [^(\n]*(?:\((?s:.*?)^\))?", "", text, flags=re.MULTILINE)
    return re.sub(r"^((?:async )?def test_\w+).*\n(?:[ \t)].*\n|\n)*", r"\1\n", text, flags=re.MULTILINE)


def files_with(expression: str) -> list[str] | None:
    """The files of tests whose path, or what names its tests, holds a word of a `-k` expression. None where that can't
    be told."""
    words = [word for word in re.findall(r"[^\s()]+", expression.lower()) if word not in ("and", "or", "not")]
    if "not " in expression or not words:
        return None
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    named = [(path, f"{path.relative_to(ROOT)}\n{text_of_names(path.read_text())}".lower()) for path in paths]
    return [str(path.relative_to(ROOT)) for path, text in named if any(word in text for word in words)]


def run_selected(arguments: list[str], expression: str) -> int:
    """The tests of a `-k` expression; pytest's exit code."""
    files = files_with(expression)
    if files is None:
        return run("pytest", *arguments)
    found = run("pytest", *arguments, *files) if files else NOTHING_COLLECTED
    if found == NOTHING_COLLECTED:
        print(
            f"No test is called so. Where names are computed, this loads every file: python -m pytest -k '{expression}'"
        )
    return found


def main(arguments: list[str]) -> int:
    words, places = words_of(arguments), [argument for argument in arguments if argument.startswith("tests/")]
    if places:
        return run("pytest", *arguments)
    if words is not None:
        return run_selected(arguments, words)
    for check in CHECKS:
        if run(*check):
            return 1
    # More workers than there are cores: many tests wait for a window, a browser or a process rather than work.
    return run("pytest", "-n", str((os.cpu_count() or 1) + 2), "--dist", "loadfile", *arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
