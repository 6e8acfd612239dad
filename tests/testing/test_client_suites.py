"""One client and its suite in Python, JavaScript and shell, against a test engine; and the same clients, broken."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from hatchway.api.testing.process import EngineProcess
from tests.support.fakes import ROOT

CLIENTS = ROOT / "tests" / "data" / "clients"

LANGUAGES = [
    pytest.param("py", sys.executable),
    pytest.param("mjs", "node", marks=pytest.mark.node),
    pytest.param("sh", "bash", marks=pytest.mark.tools),
]

CHECKS = ["sign_in", "renewal", "expiry", "windows", "revoke", "unavailable"]


class Plant(NamedTuple):
    """How a client is broken: what of each language's is replaced by what, and the check that must fail of it."""

    fails: str
    py: tuple[str, str]
    mjs: tuple[str, str]
    sh: tuple[str, str]


PLANTS = {
    "signs more than the nonce": Plant(
        "sign_in",
        ("sign(nonce.encode()", "sign((nonce + chr(10)).encode()"),
        (".update(nonce)", '.update(nonce + "\\n")'),
        ('printf %s "$nonce"', 'echo "$nonce"'),
    ),
    "never renews": Plant("renewal", ("< 300", "< 3"), ("left < 300", "left < 3"), ("left < 300", "left < 3")),
    "does not sign in again": Plant(
        "expiry",
        ("in (503, 401)", "in (503,)"),
        ("[503, 401]", "[503]"),
        ('401) sign_in; ask "$@" ;;', "401) return 1 ;;"),
    ),
    "takes the first line for the answer": Plant(
        "windows",
        ("splitlines()[-1]", "splitlines()[0]"),
        ("lines.at(-1)", "lines.at(0)"),
        ("${lines##*$'\\n'}", "${lines%%$'\\n'*}"),
    ),
    "gives up on a 503": Plant(
        "unavailable",
        ("in (503, 401)", "in (401,)"),
        ("[503, 401]", "[401]"),
        ('503) pause "${status#* }"; ask "$@" ;;', "503) return 1 ;;"),
    ),
}


def run(program: str, path: Path, engine: EngineProcess) -> tuple[list[str], str, float]:
    """What a suite printed, what it complained of, and the seconds of processor time that it took."""
    told = {"address": engine.url, "control_address": engine.control_url, "key_file": str(engine.key_file)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([program, path, json.dumps(told)], capture_output=True, text=True, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout.splitlines(), done.stderr, seconds


@pytest.mark.parametrize(("language", "program"), LANGUAGES)
def test_a_clients_suite(language: str, program: str, hatchway_engine: EngineProcess) -> None:
    """Hours of sessions and both windows of codes pass in less than 2 s of work."""
    told, complaint, seconds = run(program, CLIENTS / f"client.{language}", hatchway_engine)
    assert told == [*CHECKS, "passed"], complaint
    assert seconds < 2


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize(("language", "program"), LANGUAGES)
def test_a_broken_client(
    plant: str, language: str, program: str, hatchway_engine: EngineProcess, tmp_path: Path
) -> None:
    """Each of five ways to break it is found, by the check that is for it."""
    whole = (CLIENTS / f"client.{language}").read_text()
    right, wrong = getattr(PLANTS[plant], language)
    assert whole.count(right) == 1
    broken = tmp_path / f"client.{language}"
    broken.write_text(whole.replace(right, wrong))
    told, _, _ = run(program, broken, hatchway_engine)
    assert told[-1] == PLANTS[plant].fails


@pytest.mark.parametrize(("language", "begins"), [("py", "def tell"), ("mjs", "const told"), ("sh", "tell()")])
def test_the_suites_are_short(language: str, begins: str) -> None:
    """Forty lines, give or take those that hold a brace or nothing."""
    lines = (CLIENTS / f"client.{language}").read_text().splitlines()
    suite = lines[next(number for number, line in enumerate(lines) if line.startswith(begins)) :]
    assert len([line for line in suite if line.strip("{}; ,()") and not line.startswith("def")]) <= 45
