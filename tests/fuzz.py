"""Coverage-guided fuzzing of every parser: `python -m tests.fuzz SECONDS FOLDER`; a crash is written there."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

INSTRUMENTED = [
    "hatchway.api.http",
    "hatchway.api.client.wire",
    "hatchway.engine.trust",
    "hatchway.engine.platform",
    "hatchway.engine.base.durations",
    "hatchway.engine.settings.sources",
]


def main(seconds: str, folder: str) -> None:
    """Fuzz until the time is over (exit code 0) or a parser raises what it does not document (77)."""
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=[*INSTRUMENTED, "hatchway.engine.settings.kinds", "tomllib", "jwt"]):
        targets = importlib.import_module("tests.support.fuzz_targets")
    corpus = Path(folder) / "corpus"
    corpus.mkdir(exist_ok=True)
    for number, seed in enumerate(targets.seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = [
        f"-max_total_time={seconds}",
        f"-artifact_prefix={folder}/",
        "-max_len=4096",
        "-timeout=10",
        "-verbosity=0",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], targets.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:3])
