"""The attacks of `python -m tests.attack`, for a short while: memory stays bounded, everybody else is answered."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attack.attacks import ATTACKS
from tests.attack.scan import MIB, scan
from tests.support.fakes import effort

pytestmark = pytest.mark.process

SECONDS = 6.0 * effort()


@pytest.fixture(autouse=True)
def cores() -> Iterator[None]:
    """The scan keeps its own process on one core; who comes after it has all again."""
    before = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, before)


def test_attacks_on_memory_and_places(tmp_path: Path) -> None:
    """All at once: answers that are not taken, bodies without a token, floods of frames, silent connections. The
    engine takes at most 40 MiB more, every inspection and sign-in beside them succeeds, and no record is lost."""
    names = ["windows", "frames", "bodies", "unread", "places", "handshakes"]
    found = scan(tmp_path / "hatchway", names, SECONDS)
    assert (found.attacked.memory - found.idle.memory) / MIB < 40
    assert (found.attacked.failed, found.lost) == (0, 0)
    assert found.attacked.answers > SECONDS


def test_each_attack_says_what_it_does() -> None:
    """The tool's help lists every attack with the fault that it belongs to."""
    assert all(
        attack.__doc__ and attack.__doc__[:2] in ("12", "13", "14", "15", "16") for attack, _ in ATTACKS.values()
    )
