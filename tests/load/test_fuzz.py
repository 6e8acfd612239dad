"""Fuzzing of every parser, by hypothesis and by atheris; each crash that was ever found is tried again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.fakes import ROOT, effort
from tests.support.fuzz_targets import TARGETS, private_key, public_key, run, seeds

SECONDS = 20
"""For atheris; with what hypothesis and schemathesis take, a minute."""

EXAMPLES = 100
"""For hypothesis, of each parser."""

SEEDS = seeds()


def test_every_crash_once_found() -> None:
    """Each input that ever made a parser raise what it does not document."""
    for path in sorted((ROOT / "tests/data/crashes").iterdir()):
        run(path.read_bytes())


def test_every_seed() -> None:
    """The sound inputs that fuzzing begins with, each cut short and each doubled."""
    for seed in SEEDS:
        for data in (seed, seed[: len(seed) // 2], seed + seed[1:]):
            run(data)


@pytest.mark.fuzz
@pytest.mark.parametrize("number", range(len(TARGETS)), ids=[target.__name__ for target in TARGETS])
def test_by_hypothesis(number: int) -> None:
    """Pieces of sound inputs, texts and bytes in any order."""
    own = [seed[1:] for seed in SEEDS if seed[0] == number]
    cuts = st.sampled_from(own).flatmap(
        lambda seed: st.tuples(st.integers(0, len(seed)), st.integers(0, len(seed))).map(
            lambda c: seed[min(c) : max(c)]
        )
    )
    texts = st.text(st.characters(), max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass"))
    pieces = st.one_of(cuts, texts, st.binary(max_size=40), st.sampled_from(own))

    examples = EXAMPLES // 8 if TARGETS[number] in (private_key, public_key) else EXAMPLES  # a key's proofs take long

    @settings(max_examples=int(examples * effort()), suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(pieces, max_size=4).map(b"".join))
    def fuzz(data: bytes) -> None:
        run(bytes([number]) + data)

    fuzz()


@pytest.mark.fuzz
def test_by_atheris(tmp_path: Path) -> None:
    """Coverage-guided, all parsers in one run. A crash goes to tests/data/crashes, and stays tried for ever."""
    command = [sys.executable, "-m", "tests.fuzz", str(int(SECONDS * effort())), str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
    crashes = {path.name: path.read_bytes()[:4096] for path in tmp_path.glob("*-*") if path.is_file()}
    assert (ran.returncode, crashes) == (0, {}), ran.stderr[-6000:]
    assert len(list((tmp_path / "corpus").iterdir())) > len(SEEDS), "it found no new way through any parser"
