"""Start each thing, warm it up, measure it in rounds; print a table, save JSON, compare with a saved run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from hatchway.engine.journal.logs import set_up_logs
from hatchway.engine.settings.settings import LogSettings
from tests.bench import endpoints, growth, startup, steps, streams, workers
from tests.bench.peers.install import cache_folder, install
from tests.bench.promises import PROMISES
from tests.bench.results import Plan, Results, load
from tests.bench.servers import CLIENT_CORE, missing, pin

PARTS: dict[str, Callable[[Results, Plan], None]] = {
    "steps": steps.measure,
    "growth": growth.measure,
    "startup": startup.measure,
    "streams": streams.measure,
    "endpoints": endpoints.measure,
    "workers": workers.measure,
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"all, or some of: {', '.join(PARTS)}")
    parser.add_argument("--install", action="store_true", help="fetch the peers by pip and npm first")
    parser.add_argument("--cache", type=Path, default=cache_folder(), help="the peers' folder, outside the tree")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each load in each round")
    parser.add_argument("--size", type=float, default=1.0, help="below 1: fewer timers, actors, sessions, streams")
    parser.add_argument("--json", type=Path, help="save the run there; a table goes to standard output")
    parser.add_argument("--compare", type=Path, help="a saved run to stand beside this one")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    return asked


def main() -> int:
    asked = arguments()
    if asked.install:
        install(asked.cache)
    pin(CLIENT_CORE)
    set_up_logs(LogSettings(level="error"))
    results = Results()
    results.missing += missing()
    plan = Plan(asked.rounds, asked.seconds, asked.size, asked.cache)
    for name, measure in PARTS.items():
        if not asked.parts or name in asked.parts:
            print(f"measuring {name} ...", file=sys.stderr, flush=True)
            measure(results, plan)
            if asked.json:  # after each part: an hour's figures must not be lost to the last one's failure
                asked.json.write_text(json.dumps(results.to_json(), indent=1) + "\n")
    before = load(asked.compare) if asked.compare else None
    print(results.table(PROMISES, before))
    if results.missing:
        print(f"\nmissing here, and left out: {', '.join(results.missing)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
