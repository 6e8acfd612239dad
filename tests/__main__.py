"""`python -m tests`: format, lint, types, then every test. What follows is handed to pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CHECKS = (
    ("ruff", "format", "--check", "."),
    ("ruff", "check", "."),
    ("mypy",),
)


def main() -> int:
    root = Path(__file__).parents[1]
    for check in CHECKS:
        print("+", *check, flush=True)
        if subprocess.run([sys.executable, "-m", *check], cwd=root, check=False).returncode:
            return 1
    # One worker more than there are cores: many tests wait for a window or a browser rather than work.
    spread = ["-n", str((os.cpu_count() or 1) + 1), "--dist", "loadfile"]
    print("+ pytest", *spread, flush=True)
    tests = [sys.executable, "-m", "pytest", *spread, *sys.argv[1:]]
    return subprocess.run(tests, cwd=root, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
