"""Plants a fault for each promise of the handbook's chapter on security; the test that holds the promise must notice.

`python -m tests.faults` plants all of them, with `--quick N` so many by chance whose tests start no process; with
words, those whose promise begins with one of the words. Nothing of this tree is changed: a forked interpreter imports
the fault, or it stands in a copy of the tree.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.changed_modules import outcome, preload
from tests.support.fakes import ROOT
from tests.support.planted_faults import FAULTS, PlantedFault
from tests.support.project_files import copy_project

LONGEST = 30
"""Seconds that a test may take with a fault in the code: one that hangs has noticed."""

NOTICED = (1, -signal.SIGALRM)
"""How pytest ends where a test failed, or hung. Where the code can't even be imported, it ends in another way."""

OPTIONS = ("-q", "-n0", "-p", "no:cacheprovider")


def place_of(test: str) -> str:
    """pytest's name of `file::function`."""
    name, _, function = test.partition("::")
    (path,) = (ROOT / "tests").rglob(f"{name}.py")
    return f"{path.relative_to(ROOT)}::{function}"


def planted(fault: PlantedFault) -> str:
    """The file's text with the fault in it. Raises SystemExit where the text that it changes is not there once."""
    text = (ROOT / fault.file).read_text()
    if text.count(fault.old) != 1:
        raise SystemExit(f"{fault.file} must hold this once, and does {text.count(fault.old)} times: {fault.old!r}")
    return text.replace(fault.old, fault.new)


def in_forks(faults: Sequence[PlantedFault]) -> list[PlantedFault]:
    """Those that their tests do not notice; each is imported by a fork of this process."""
    if not faults:
        return []
    files = {fault: planted(fault) for fault in faults}
    preload([*OPTIONS, *sorted({place_of(fault.test) for fault in faults})])
    return [
        fault
        for fault, text in files.items()
        if not _told(fault, outcome(fault.file, text, [*OPTIONS, place_of(fault.test)], LONGEST) in NOTICED)
    ]


def in_copies(faults: Sequence[PlantedFault]) -> list[PlantedFault]:
    """Those that their tests do not notice; each stands in a copy of the tree, for every process that a test starts."""
    return [fault for fault in faults if not _told(fault, _noticed_in_a_copy(fault))]


def _noticed_in_a_copy(fault: PlantedFault) -> bool:
    with tempfile.TemporaryDirectory(prefix="hatchway-faults-") as folder:
        tree = Path(folder) / "tree"
        copy_project(tree)
        for package in ("api", "engine", "statecharts"):
            (tree / ".packages" / "hatchway" / package).symlink_to(Path("..", "..", package))
        before = _run(tree, fault.test)
        if before.returncode or " passed" not in before.stdout:
            raise SystemExit(f"{fault.test} does not pass here without a fault:\n{before.stdout[-2000:]}")
        (tree / fault.file).write_text(planted(fault))
        return _run(tree, fault.test).returncode == 1


def _run(tree: Path, test: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-x", *OPTIONS, place_of(test)]
    env = {**os.environ, "PYTHONPATH": str(tree / ".packages")}
    return subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, check=False)


def _told(fault: PlantedFault, noticed: bool) -> bool:
    print(f"{'noticed' if noticed else 'NOT NOTICED'}: {fault.promise} ({fault.file}) by {fault.test}", flush=True)
    return noticed


def main(arguments: list[str]) -> int:
    """The exit code says whether a fault was not noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("words", nargs="*", help="how a promise begins")
    parser.add_argument("--quick", type=int, metavar="N", help="so many by chance, whose tests start no process")
    asked = parser.parse_args(arguments)
    chosen = [one for one in FAULTS if not asked.words or one.promise.startswith(tuple(asked.words))]
    forked = [one for one in chosen if not one.processes]
    missed = in_forks(random.sample(forked, min(asked.quick, len(forked))) if asked.quick else forked)
    if not asked.quick:
        missed += in_copies([one for one in chosen if one.processes])
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
