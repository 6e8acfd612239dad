"""`python -m tests`: format, lint, types, then every test. What follows is handed to pytest."""

from __future__ import annotations

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
    print("+ pytest", flush=True)
    return subprocess.run([sys.executable, "-m", "pytest", *sys.argv[1:]], cwd=root, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
