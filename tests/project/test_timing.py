"""Promises on time stay promises: what measures them excuses other people's work, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.timing import Share, kept
from tests.support.waits import until


def test_one_try_is_enough_and_none_is_not() -> None:
    """After the first that keeps the promise none is made; where none does, all are told."""
    tries = iter([3.0, 2.0, 0.5, 9.0])
    kept(1, lambda: next(tries))
    assert list(tries) == [9.0]
    with pytest.raises(AssertionError, match=r"not under 1: 1\.000, 1\.000"):
        kept(1, lambda: 1.0, tries=2)


def test_the_share_of_a_core() -> None:
    """Two that want one core have half of it each, where the kernel counts."""
    only = {min(os.sched_getaffinity(0))}
    burn = [sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {only})\nwhile True: pass"]
    burners = [subprocess.Popen(burn) for _ in range(2)]
    try:
        share = Share(*(one.pid for one in burners))
        if Path("/proc/self/schedstat").exists():
            until(lambda: share.now() < 0.7, what="they share a core")
    finally:
        for one in burners:
            one.kill()
            one.wait()
