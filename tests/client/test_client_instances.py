"""The Python client starts an instance on a real runtime: by the README's lines, and from async code the same way."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from hatchway.api.client import AsyncClient
from tests.readme import README
from tests.support.containers import LONG, Place, listed, living, new_name, place
from tests.support.fakes import key, key_file
from tests.support.processes import EngineProcess, running_engine

__all__ = ["place"]

AS_ORDINARY_USER = True
pytest_plugins = ["tests.support.ordinary_user"]
pytestmark = [pytest.mark.apptainer, pytest.mark.process]


@pytest.fixture
def engine(place: Place) -> Iterator[EngineProcess]:
    """An engine with the image that the README names."""
    (place.images / "box.sif").rename(place.images / "busybox.sif")
    with running_engine(place.home, HATCHWAY_IMAGE_FOLDERS=str(place.images)) as running:
        yield running


def test_the_readmes_lines(engine: EngineProcess, tmp_path: Path) -> None:
    """Run as they stand: signed in, and what they print is an instance that the runtime lists."""
    (block,) = re.findall(r"^```python client\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
    key_file(tmp_path / "alice.pem")
    script = block.replace("http://127.0.0.1:7420", engine.url)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    name = done.stdout.strip()
    assert name in listed()
    engine.command("instance", "stop", name)
    assert name not in listed()


def environment() -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(filter(None, sys.path))}


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_the_same_from_async_code(engine: EngineProcess, backend: str) -> None:
    """Signed in, started, listed, shown, its log read to the end; stopped and gone when the call returns."""
    name, said = new_name(), b""

    async def use() -> None:
        nonlocal said
        async with AsyncClient(engine.url, key=key().pem()) as client:
            await client.sign_in(lifetime="2h")
            command = ["sh", "-c", f"echo hello; sleep {LONG}"]
            started = await client.start_instance(image="busybox.sif", identity=name, command=command)
            assert started.instance == name
            assert name in listed()
            assert [row["identity"] for row in await client.instances()] == [name]
            assert (await client.instance(name))["state"] == "running"
            async with client.instance_log(name, follow=True) as pieces:
                async for piece in pieces:
                    said += piece
                    if said.endswith(b"\n"):
                        break
            await client.stop_instance(name)
            assert not living()

    anyio.run(use, backend=backend)
    assert said == b"hello\n"
