"""Attack an engine for a while; what its other clients meet: `python -m tests.attack [--seconds N] [NAME ...]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.attack.attacks import ATTACKS
from tests.attack.scan import MIB, Figures, scan


def row(name: str, figures: Figures) -> str:
    """One line of the table."""
    return (
        f"{name:10} {figures.inspect:10.1f} ms {figures.sign_in:10.1f} ms"
        f" {figures.memory / MIB:8.0f} MiB {figures.failed:6} of {figures.answers}"
    )


def main() -> int:
    """Exit code 1 where a promise did not hold."""
    lines = "\n".join(f"  {name}: {attack.__doc__} ({count})" for name, (attack, count) in ATTACKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.attack",
        description=__doc__,
        epilog=lines,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *ATTACKS], default=[])
    parser.add_argument("--seconds", type=float, default=60.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = scan(Path(folder) / "hatchway", asked.names or list(ATTACKS), asked.seconds)
    print(f"{'':10} {'inspect p99':>13} {'sign-in p99':>13} {'memory':>12} {'failed':>6}")
    print(row("alone", found.idle), row("attacked", found.attacked), sep="\n")
    print(f"records of before that were lost: {found.lost}")
    for words in found.broken():
        print(f"BROKEN: {words}")
    return 1 if found.broken() else 0


if __name__ == "__main__":
    sys.exit(main())
