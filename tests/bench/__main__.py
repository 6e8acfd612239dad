"""Start each thing, warm it up, measure it in rounds, beside its yardstick; print a table and what was promised."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from statistics import median

try:
    from hatchway.engine.journal.logs import set_up_logs
    from hatchway.engine.settings.settings import LogSettings
    from tests.bench import endpoints, fleet, growth, history, startup, steps, streams, workers
    from tests.bench.needs import cores_in_words, in_words, lacking
    from tests.bench.noise import noise
    from tests.bench.peers.install import cache_folder, install
    from tests.bench.promises import PROMISES
    from tests.bench.results import Plan, Results, load
    from tests.bench.servers import CLIENT_CORE, CORES, pin
except ModuleNotFoundError as error:
    print(f"this Python lacks what the bench needs: {error.name}: pip install -e '.[dev]'", file=sys.stderr)
    sys.exit(2)

PARTS: dict[str, Callable[[Results, Plan], None]] = {
    "steps": steps.measure,
    "growth": growth.measure,
    "fleet": fleet.measure,
    "startup": startup.measure,
    "streams": streams.measure,
    "endpoints": endpoints.measure,
    "workers": workers.measure,
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"all, or some of: {', '.join(PARTS)}")
    parser.add_argument("--install", action="store_true", help="fetch the peers by pip and npm first")
    parser.add_argument("--without-peers", action="store_true", help="measure nothing that pip and npm would fetch")
    parser.add_argument("--cache", type=Path, default=cache_folder(), help="the peers' folder, outside the tree")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each load in each round")
    parser.add_argument("--size", type=float, default=1.0, help="below 1: fewer timers, actors, sessions, streams")
    parser.add_argument("--json", type=Path, help="save the run there; a table goes to standard output")
    parser.add_argument("--beside", type=Path, metavar="JSON", help="a saved run to stand beside this one")
    parser.add_argument("--keep", action="store_true", help="save the run as this release's, in tests/bench/history")
    parser.add_argument("--compare", action="store_true", help="measure nothing; draw what the releases measured")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    return asked


def main() -> int:
    """Exit code 1 where a promise was missed, 2 where something is lacking that the run needs."""
    asked = arguments()
    if asked.compare:
        print(history.drawn(history.releases(), PROMISES))
        return 0
    if asked.install:
        install(asked.cache)
    cache, parts = None if asked.without_peers else asked.cache, asked.parts or list(PARTS)
    if lacks := lacking(parts, cache, asked.size):
        print(in_words(lacks), file=sys.stderr)
        return 2
    beside = load(asked.beside) if asked.beside else None
    results = run(parts, Plan(asked.rounds, asked.seconds, asked.size, cache), asked.json)
    if asked.keep:
        print(f"kept as {history.keep(results)}", file=sys.stderr)
    print(results.table(PROMISES, beside))
    waited, spread = results.noise["waited"], results.noise["spread"]
    print(f"\nnoise of this machine: work took {waited:.0%} longer than its CPU time, which differed by {spread:.0%}")
    for sentence in cores_in_words(parts, len(CORES)):
        print(sentence)
    if results.verdicts(PROMISES, "unsettled"):
        print("unsettled: the rounds lie further apart than their median and what was promised; try a quieter machine")
    return 1 if results.verdicts(PROMISES, "missed") else 0


def run(parts: Collection[str], plan: Plan, saved: Path | None) -> Results:
    """Measure these parts; the machine's noise before, between and after them."""
    pin(CLIENT_CORE)
    set_up_logs(LogSettings(level="error"))
    results, told = Results(), [noise()]
    for name, measure in PARTS.items():
        if name in parts:
            print(f"measuring {name} ...", file=sys.stderr, flush=True)
            measure(results, plan)
            told.append(noise())
            results.noise = {kind: median(one[kind] for one in told) for kind in told[0]}
            if saved:  # after each part: an hour's figures must not be lost to the last one's failure
                saved.write_text(json.dumps(results.to_json(), indent=1) + "\n")
    return results


if __name__ == "__main__":
    sys.exit(main())
