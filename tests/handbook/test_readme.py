"""README and handbook keep their word: their drawn parts are current, and every command in them runs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from hatchway.api.cli import cli
from hatchway.engine.keys.keys import generate_key
from tests.readme import CHAPTERS, PAGES, README, drawn, manual
from tests.support.fakes import ROOT, key_file
from tests.support.ports import free_port
from tests.support.processes import START_SECONDS
from tests.support.project_files import copy_project

NOTHING_COMPILED = {"PIP_NO_COMPILE": "0"}
"""What is imported will be: a tenth of it. (pip takes the value for that of the opposite, `compile`.)"""

TEXT = manual()
BLOCKS = re.findall(r"^```(\w+)(?: (\w+))?\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_drawn_parts_are_current(page: Path) -> None:
    """Charts, endpoints, problems, records and settings are those that the engine runs."""
    text = page.read_text()
    assert drawn(text) == text, "draw them anew: python -m tests.readme"


def test_each_part_is_drawn() -> None:
    """No table that is drawn has fallen out of the pages; none stands in them twice, but for the endpoints."""
    marks = re.findall(r"^<!-- (\w+) -->$", TEXT, re.MULTILINE)
    assert sorted(marks) == [
        *("alerts", "calls", "charts", "client_errors", "endpoints", "endpoints", "notices", "problems", "profile"),
        *("record", "settings"),
    ]


def test_the_readme_is_one_page() -> None:
    """At most 300 lines; it leads to every chapter, and each link in README and handbook leads to a file."""
    assert len(README.read_text().splitlines()) <= 300
    assert set(re.findall(r"\(api/handbook/([a-z-]+)\.md\)", README.read_text())) == set(CHAPTERS)
    for page in PAGES:
        for target in re.findall(r"\]\(([^):]+)\)", page.read_text()):
            assert (page.parent / target).exists(), (page.name, target)


def test_the_gate_sets_up_as_the_readme_says() -> None:
    """The one command that sets up and passes the tests is what the gate runs, word for word."""
    (command,) = [block for kind, name, block in BLOCKS if name == "tests"]
    steps = [step.strip() for step in command.split("&&")]
    gate = (ROOT / ".ci/run").read_text().replace('"$python"', "python3").replace(" --quiet", "")
    assert all(step in gate for step in steps), steps


def test_commands_that_are_shown_exist() -> None:
    """Each `hatchway ...` between back-ticks or in a block is a command with those options."""
    shown = set(re.findall(r"(?<![\w/.-])(?<!from )hatchway ([a-z][a-z-]*(?: [a-z][a-z-]+)?)", TEXT))
    for words in sorted(shown):
        done = CliRunner().invoke(cli, [*words.split(), "--help"])
        assert done.exit_code == 0, f"hatchway {words}: {done.output}"


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A newcomer's environment: an empty home, and the commands of this virtual environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HATCHWAY_")}
    return kept | {"HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def wait_ready(engine: subprocess.Popen[bytes], port: int, seconds: float) -> None:
    """Until the engine answers."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert engine.poll() is None, "the engine ended"
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz"):
            return
        time.sleep(0.1)
    pytest.fail("the engine does not answer")


@pytest.fixture
def setting(request: pytest.FixtureRequest) -> dict[str, str]:
    """What is set besides: nothing, worker processes, or the fleet's store."""
    if request.param == "redis":
        return {"HATCHWAY_STORE": request.getfixturevalue("redis").url}
    return {"HATCHWAY_WORKERS": str(request.param)}


@pytest.fixture
def running(port: int, environ: dict[str, str], tmp_path: Path, setting: dict[str, str]) -> Iterator[None]:
    """`hatchway engine start`, as the README's first command leaves it, on a port of the test's."""
    environ = environ | setting
    program = [
        sys.executable,
        "-c",
        "from hatchway.api.cli import main; main()",
        "engine",
        "start",
        "--port",
        str(port),
    ]
    with (tmp_path / "engine.log").open("wb") as log:
        engine = subprocess.Popen(program, cwd=ROOT, env=environ, stdout=log, stderr=log)
    try:
        wait_ready(engine, port, START_SECONDS)
        yield
    finally:
        engine.terminate()
        assert engine.wait(20) == 0


def key_with_plus_and_slash() -> bytes:
    """A private key whose fingerprint holds both: what a careless client mangles in a query."""
    made = generate_key(2048)
    while not {"+", "/"} <= set(made.identity):
        made = generate_key(2048)
    return made.pem()


@pytest.mark.process
@pytest.mark.tools
@pytest.mark.usefixtures("running")
@pytest.mark.parametrize(
    ("awkward", "setting"),
    [(False, 1), (True, 2), pytest.param(False, "redis", marks=pytest.mark.redis)],
    ids=["openssl's key", "+ and / in the fingerprint, two workers", "Redis"],
    indirect=["setting"],
)
def test_every_block_runs(port: int, environ: dict[str, str], tmp_path: Path, awkward: bool) -> None:
    """All transcripts, in the pages' order, in one shell: keys made by us and by openssl, both algorithms, logout."""
    work = tmp_path / "work"
    work.mkdir()
    script = "\n".join(block for kind, name, block in BLOCKS if kind == "sh" and not name).replace("7420", str(port))
    if awkward:
        key_file(work / "bob.pem", key_with_plus_and_slash())
        script = script.replace("openssl genrsa -out bob.pem 3072\n", "")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=work,
        env=environ | {"HATCHWAY_URL": f"http://127.0.0.1:{port}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "401" in done.stdout.splitlines(), "the session answered after its logout"
    answers = [json.loads(text) for text in re.findall(r"^\{\n.*?^\}$", done.stdout, re.DOTALL | re.MULTILINE)]
    assert any(answer.get("valid") is True for answer in answers)
    made = [
        "alice.pem",
        "alice.pub",
        "bob-pkcs1.pem",
        "bob.pem",
        "bob.pub",
        "carol.pem",
        "carol.pub",
        "hatchway.service",
    ]
    assert sorted(path.name for path in work.iterdir()) == made


@pytest.mark.process
@pytest.mark.tools
def test_the_first_command(environ: dict[str, str], port: int, tmp_path: Path) -> None:
    """From a bare copy of the project's files, one command sets up and starts an engine that answers."""
    (command,) = [block.strip() for kind, name, block in BLOCKS if name == "setup"]
    copy = tmp_path / "hatchway"
    copy_project(copy)
    # The shell becomes the engine, so that the signal reaches it.
    command = command.replace("&& .venv/bin/hatchway", "&& exec .venv/bin/hatchway")
    more = {"HATCHWAY_PORT": str(port), **NOTHING_COMPILED}
    engine = subprocess.Popen(["bash", "-c", command], cwd=copy, env=environ | more)
    try:
        wait_ready(engine, port, 240)
    finally:
        engine.terminate()
        engine.wait(20)
