"""Coverage-guided fuzzing of every parser: `python -m tests.fuzz SECONDS FOLDER`; a crash is written there."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

INSTRUMENTED = [
    *("hatchway.api.http", "hatchway.api.client.wire", "hatchway.api.client.agent"),
    *("hatchway.engine.access", "hatchway.engine.keys", "hatchway.engine.pairings", "hatchway.engine.settings"),
    *("hatchway.engine.instances.confinement", "hatchway.engine.instances.request"),
    *("hatchway.engine.base.durations", "hatchway.engine.base.permissions"),
    *("tomllib", "jwt"),
]
"""Modules and packages whose branches guide the fuzzer."""


def main(seconds: str, folder: str) -> None:
    """Fuzz until the time is over (exit code 0) or a parser raises what it does not document (77)."""
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=INSTRUMENTED):
        targets = importlib.import_module("tests.support.fuzz_targets")
        importlib.import_module("tomllib")  # which is else loaded when a file of settings is read
    unknown = [name for name in INSTRUMENTED if name not in sys.modules]
    if unknown:
        raise SystemExit(f"nothing of these names was loaded, so nothing of them guides the fuzzer: {unknown}")
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
