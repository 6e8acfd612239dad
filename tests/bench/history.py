"""What releases have measured, one file each: kept beside the code, and drawn as a table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hatchway.engine.base.version import installed_version
from tests.bench.results import Promise, Results

FOLDER = Path(__file__).parent / "history"

BARS = "▁▂▃▄▅▆▇█"


def keep(results: Results, folder: Path = FOLDER) -> Path:
    """Save a run as that of this release, in the place of an earlier one."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{installed_version()}.json"
    path.write_text(json.dumps(results.to_json(), indent=1) + "\n")
    return path


def releases(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """The runs by release, the oldest first."""
    paths = sorted(folder.glob("*.json"), key=lambda path: [int(part) for part in re.findall(r"\d+", path.stem)])
    return {path.stem: json.loads(path.read_text()) for path in paths}


def drawn(runs: Mapping[str, dict[str, Any]], promises: Iterable[Promise]) -> str:
    """Each promised ratio through the releases, with a bar for each: the tallest is the largest."""
    rows = [["what", "promised", *runs, ""], ["---"] * (3 + len(runs))]
    for promise in promises:
        medians = [run["figures"].get(promise.figure, {}).get("median") for run in runs.values()]
        shown = ["" if median is None else f"{median:.3g}" for median in medians]
        rows.append([promise.figure, f"{promise.kind} {promise.bound:g}", *shown, bars(medians)])
    rows.append(["noise", "", *(f"{run['noise']['waited']:.0%}" for run in runs.values()), ""])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def bars(values: Iterable[float | None]) -> str:
    """A bar for each value, by its share of the largest; none for one that was not measured."""
    values = list(values)
    most = max((value for value in values if value is not None), default=0.0)
    heights = [None if value is None else round(value / most * (len(BARS) - 1)) if most else 0 for value in values]
    return "".join(" " if height is None else BARS[height] for height in heights)
