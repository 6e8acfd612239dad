"""The pytest plugin in projects of others: plain, trio and asyncio tests, the handbook's own, and broken promises."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.readme import CHAPTERS
from tests.support.processes import running_engine


def run(folder: Path, text: str, *options: str, trio: bool = True) -> str:
    """What pytest says of a file of somebody's tests."""
    (folder / "pytest.ini").write_text(f"[pytest]\ntrio_mode = {str(trio).lower()}\n")
    (folder / "test_theirs.py").write_text(text)
    left_out = ("-p", "no:cacheprovider", "-p", "no:schemathesis")
    command = [sys.executable, "-m", "pytest", "-q", "--strict-markers", *left_out, *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr


def test_the_handbooks_tests_pass(tmp_path: Path) -> None:
    """As they stand in the chapter."""
    blocks = re.findall(r"^```python testing\n(.*?)^```", CHAPTERS["testing"].read_text(), re.DOTALL | re.MULTILINE)
    told = run(tmp_path, "\n\n".join(blocks))
    assert re.search(r"^5 passed", told, re.MULTILINE), told


ASYNCIO = """
import asyncio
import httpx
import pytest

pytestmark = pytest.mark.anyio

@pytest.fixture
def anyio_backend():
    return "asyncio"

async def test_a_window(hatchway_engine):
    code = await hatchway_engine.pair(answer="late")
    async with httpx.AsyncClient(base_url=hatchway_engine.url, timeout=None) as http:
        claim = asyncio.create_task(http.post("/api/auth/pair/request/", json={"code": code}))
        while hatchway_engine.records[-1].target != "claimed":
            await asyncio.sleep(0.01)
        await hatchway_engine.advance(30)
        assert "pairing expired on approval" in (await claim).text

async def test_the_rest(hatchway_engine):
    key = await hatchway_engine.key(["SHELL"], "two")
    session = await hatchway_engine.sign_in("5m", "two")
    assert session.permissions == ("SHELL",)
    assert session.expires_at - hatchway_engine.now == 300
    assert await hatchway_engine.revoke("two") == 1
    await hatchway_engine.unregister(key.identity)
    hatchway_engine.faults.set(slow=5)
    assert hatchway_engine.faults.now.slow == 5
"""


def test_asyncio_tests(tmp_path: Path) -> None:
    """They hold a process, and await what takes time."""
    told = run(tmp_path, ASYNCIO, trio=False)
    assert re.search(r"^2 passed", told, re.MULTILINE), told


BROKEN = """
import pytest

async def test_watched(hatchway_engine):
    hatchway_engine.watchers.broken.append("it did what it must not")

@pytest.mark.hatchway_engine(watch=False)
async def test_not_watched(hatchway_engine):
    hatchway_engine.watchers.broken.append("it did what it must not")

def test_a_process(hatchway_engine):
    assert not hatchway_engine.records[1:]

@pytest.mark.hatchway_engine(wacht=False)
def test_mistyped(hatchway_engine):
    pass
"""


def test_a_broken_promise_fails_the_test(tmp_path: Path) -> None:
    """Unless the test says that it wants none watched."""
    told = run(tmp_path, BROKEN)
    assert "BrokenPromise: it did what it must not" in told
    assert "FAILED test_theirs.py::test_watched" in told
    assert "takes watch=True or watch=False alone" in told
    assert re.search(r"^1 failed, 2 passed, 1 error", told, re.MULTILINE), told


AT_HOME = """
from hatchway.api.client import Client

def test_a_client(hatchway_engine):
    hatchway_engine.sign_in()
    with Client(hatchway_engine.url, key=hatchway_engine.key_file) as client:
        client.sign_in()
"""


def test_a_developers_own_engine_is_not_asked(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one has run on this account, a client believes no other on loopback: under the fixture it knows of none."""
    with running_engine(home):
        monkeypatch.setenv("HATCHWAY_HOME", str(home))
        told = run(tmp_path, AT_HOME)
    assert re.search(r"^1 passed", told, re.MULTILINE), told


def test_other_peoples_tests_load_nothing() -> None:
    """pytest finds the plugin at every start: it imports no engine, and no trio, before a test asks for them."""
    probe = (
        "import sys, hatchway.api.testing.pytest_plugin;"
        "print([name for name in ('trio', 'httpx', 'msgspec', 'hatchway.engine.engine') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", probe], text=True).strip() == "[]"
