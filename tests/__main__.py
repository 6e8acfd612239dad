"""`python -m tests`: format, lint, types, then every test. What follows is handed to pytest.

Where that selects tests (`-k WORDS`, or a file) the selected ones alone are run, at once and here: no checks
before them, no other processes, and only files are loaded that hold one of the words.
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


def run(*command: str) -> int:
    """One module of this Python, in the project's folder; its exit code."""
    print("+", *command, flush=True)
    return subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode


def words_of(arguments: list[str]) -> str | None:
    """What `-k` was given."""
    for at, argument in enumerate(arguments):
        if argument.startswith("-k"):
            return argument[2:] or "".join(arguments[at + 1 : at + 2])
    return None


def files_with(expression: str) -> list[str]:
    """The files of tests whose path or text holds a word of a `-k` expression. Empty where that can't be told."""
    words = [word for word in re.findall(r"[^\s()]+", expression.lower()) if word not in ("and", "or", "not")]
    if "not " in expression or not words:
        return []
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    named = [(path, f"{path.relative_to(ROOT)}\n{path.read_text()}".lower()) for path in paths]
    return [str(path.relative_to(ROOT)) for path, text in named if any(word in text for word in words)]


def main(arguments: list[str]) -> int:
    words, places = words_of(arguments), [argument for argument in arguments if argument.startswith("tests/")]
    if words is not None or places:
        files = [] if places or words is None else files_with(words)
        found = run("pytest", *arguments, *files)
        # A name that is only computed (a parameter out of a data file) stands in no text: then all files are loaded.
        return run("pytest", *arguments) if files and found == NOTHING_COLLECTED else found
    for check in CHECKS:
        if run(*check):
            return 1
    # One worker more than there are cores: many tests wait for a window or a browser rather than work.
    return run("pytest", "-n", str((os.cpu_count() or 1) + 1), "--dist", "loadfile", *arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
