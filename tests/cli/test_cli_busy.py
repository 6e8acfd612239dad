"""What takes long shows on a terminal that something happens, and leaves programs alone."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from hatchway.engine.base.files import make_private_dir
from hatchway.engine.base.permissions import MASTER
from hatchway.engine.engine import make_own_key_ahead
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.settings.settings import Settings
from tests.support.command import HATCHWAY
from tests.support.fakes import ROOT
from tests.support.terminal import terminal

MAKING = "making an RSA-3072 key"
COLOUR = r"\x1b\[[0-9;]*[349][0-7]"


@pytest.mark.process
@pytest.mark.parametrize("no_color", ["", "1"])
async def test_a_key_in_the_making(home: Path, tmp_path: Path, no_color: str) -> None:
    """On a terminal a bar stands while the key is made, without a colour where NO_COLOR is set, and goes."""
    async with terminal("key", "generate", "a", home=home, folder=tmp_path, NO_COLOR=no_color) as screen:
        assert await screen.wait_end() == 0
    bar, _, rest = screen.text.partition("SHA256:")
    assert MAKING in bar
    assert bar.endswith("\x1b[2K")  # wiped before the result
    assert MAKING not in rest
    assert (re.search(COLOUR, bar) is None) == bool(no_color)


@pytest.mark.process
async def test_none_with_json(home: Path, tmp_path: Path) -> None:
    """Who asks for JSON gets that alone, on a terminal too."""
    async with terminal("key", "generate", "a", "--json", home=home, folder=tmp_path) as screen:
        assert await screen.wait_end() == 0
    assert json.loads(screen.text)["private"] == "a.pem"


@pytest.mark.process
def test_none_off_a_terminal(home: Path, tmp_path: Path) -> None:
    """Into a file or pipe goes no bar."""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / ".packages"), "HATCHWAY_HOME": str(home)}
    done = subprocess.run(
        [*HATCHWAY, "key", "generate", "a"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert MAKING not in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.process
async def test_an_engines_first_start(home: Path) -> None:
    """The first start says that it makes the engine's key; the next one has it."""
    for first in (True, False):
        async with terminal("engine", "start", "--port", "0", home=home) as screen:
            await screen.wait_for("or hatchway engine stop")
            screen.type(b"\x03")
            assert await screen.wait_end() == 0
            assert ("making the engine's own key" in screen.text) == first


def test_the_own_key_of_one_of_a_fleet(home: Path, tmp_path: Path) -> None:
    """Made ahead of the first start, it is authorized where the fleet's engines look."""
    shared = tmp_path / "shared"
    make_private_dir(shared)
    make_own_key_ahead(home, Settings(keys=str(shared)))
    assert (home / "private-key.pem").exists()
    assert not (home / "authorized_keys").exists()
    assert [entry.permissions for entry in AuthorizedKeys(shared / "authorized_keys").entries()] == [(MASTER,)]
