"""A claim names tests that fail without it: a fault is planted for it, and its test must notice."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.faults import planted
from tests.project.test_cases import table
from tests.readme import CHAPTERS
from tests.support.fakes import ROOT, effort
from tests.support.planted_faults import FAULTS

PROMISES = re.findall(r"^- (.*)$", CHAPTERS["security"].read_text(), re.MULTILINE)


def test_each_promise_on_security_has_a_fault() -> None:
    """The test that must notice it is of a file that the promise names."""
    for promise in PROMISES:
        faults = [fault for fault in FAULTS if promise.startswith(fault.promise)]
        assert faults, f"plant a fault that breaks it, in tests/support/planted_faults.py: {promise}"
        for fault in faults:
            assert f"`{fault.test.partition('::')[0]}.py`" in promise, f"{promise} does not name {fault.test}"


def test_each_fault_is_of_a_promise_or_a_case() -> None:
    """What it changes stands in the code, the case's row names its test, and the changed text is a program."""
    for fault in FAULTS:
        promised = any(promise.startswith(fault.promise) for promise in PROMISES)
        assert promised or fault.test in table()[fault.promise], fault
        compile(planted(fault), fault.file, "exec")


def test_each_fault_is_noticed() -> None:
    """By the test that is named for it: some by chance; with HATCHWAY_EFFORT=10 all, also those in started programs."""
    quick = [] if effort() >= 10 else ["--quick", "8"]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.faults", *quick], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, "\n".join(line for line in ran.stdout.splitlines() if "oticed" in line) + ran.stderr
