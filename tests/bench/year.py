"""A year's journal, made and looked through: `python -m tests.bench.year [--records 10000000]`.

Makes it, and one of a tenth of it, in a folder that goes afterwards (10 million records take 3.5 GiB and some minutes
of a core); says what a check costs of a core and of memory, and how long the past takes to find.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from hatchway.engine.journal.files import last_seq, segments
from hatchway.engine.journal.history import Question, page
from hatchway.engine.journal.overview import Overview, standing_at
from tests.bench.noise import noise
from tests.bench.results import at
from tests.support.fakes import ROOT

MOST_SECONDS, MOST_MIB, MOST_PAGE = 120.0, 32.0, 0.2
"""Of a check's CPU time, of the memory that ten times as many records may take more, and of a page's p99."""

CHECK = """
import json, re, sys, time
from pathlib import Path
from hatchway.engine.journal.check import check_folder
from hatchway.engine.journal.heads import read_keys
home = Path(sys.argv[1])
keys = read_keys((home / "head-keys.json").read_bytes())
began, cpu = time.monotonic(), time.process_time()
found = check_folder(home / "log", keys)
cpu, wall = time.process_time() - cpu, time.monotonic() - began
peak = int(re.search("VmHWM:\\s*([0-9]+)", Path("/proc/self/status").read_text())[1]) / 1024
print(json.dumps({"records": found.records, "sealed": found.sealed, "cpu": cpu, "wall": wall, "MiB": peak}))
"""


def make(home: Path, records: int) -> None:
    """A journal of so many records, three seconds between two on average."""
    maker = [sys.executable, "-m", "tests.support.generated_journal", str(home), str(records)]
    subprocess.run(maker, cwd=ROOT, check=True)


def check(home: Path) -> dict[str, float]:
    """What a check in a process of its own took: CPU and wall seconds, the most memory it had."""
    done = subprocess.run([sys.executable, "-c", CHECK, str(home)], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    told: dict[str, float] = json.loads(done.stdout)
    return told


def pages(folder: Path, count: int = 500) -> list[float]:
    """Seconds that pages by moment take, anywhere in the journal."""
    (first,), (last,) = page(folder, Question(), None, 1).lines, page(folder, Question(), last_seq(folder) - 1, 1).lines
    begin, end = (json.loads(line.data)["time"] for line in (first, last))
    dice, spent = random.Random(0), []
    for _ in range(count):
        moment, began = dice.uniform(begin, end), time.perf_counter()
        page(folder, Question(since=moment), None, 200)
        spent.append(time.perf_counter() - began)
    return spent


def states(folder: Path, count: int = 50) -> list[float]:
    """Seconds that it takes to tell how things stood before a record, the first time first."""
    overview, last = Overview(folder), last_seq(folder)
    dice, spent = random.Random(0), []
    for _ in range(count):
        began = time.perf_counter()
        overview.states_before(dice.randrange(1, last), Counter(), last)
        spent.append(time.perf_counter() - began)
    return spent


def look(home: Path) -> float:
    """Print what the past takes; the p99 of a page by moment."""
    folder = home / "log"
    spent = pages(folder)
    print(f"page by moment, {len(segments(folder))} files: p50 {at(0.5, spent):.3f} s, p99 {at(0.99, spent):.3f} s")
    first, *later = states(folder)
    print(f"states before a record: {first:.1f} s the first time, then p50 {at(0.5, later):.3f} s")
    cpu = time.process_time()
    standing_at(folder, json.loads(page(folder, Question(), last_seq(folder) // 2, 1).lines[0].data)["time"])
    print(f"events at: {time.process_time() - cpu:.1f} s of CPU")
    return at(0.99, spent)


def main() -> int:
    """Exit code 1 where something takes more than it may."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.year", description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        short, long = Path(name) / "short", Path(name) / "long"
        make(short, asked.records // 10)
        make(long, asked.records)
        tenth, whole = check(short), check(long)
        for told in (tenth, whole):
            print(f"{told['records']} records: {told['cpu']:.1f} s CPU, {told['wall']:.1f} s, {told['MiB']:.0f} MiB")
        slowest = look(long)
    print(f"noise of this machine: work took {noise()['waited']:.0%} longer than its CPU time")
    over = whole["cpu"] > MOST_SECONDS * asked.records / 1e7, whole["MiB"] > tenth["MiB"] + MOST_MIB
    return 1 if any(over) or slowest > MOST_PAGE else 0


if __name__ == "__main__":
    sys.exit(main())
