"""Completion in the shells themselves: each loads its script, and TAB finds commands, options and settings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hatchway.api.cli import cli
from tests.support.fakes import ROOT
from tests.support.terminal import terminal

CASES = {
    "hatchway eng": {"engine"},
    "hatchway key rot": {"rotate-engine", "rotate-token"},
    "hatchway config get session_": {"session_max_age.key", "session_max_age.pairing"},
    "hatchway login --li": {"--lifetime"},
    "hatchway help t": {"testing", "tls", "tokens", "troubleshooting"},
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH with the command on it; the shells' scripts lie beside it."""
    command = tmp_path / "hatchway"
    command.write_text(
        f"#!/bin/sh\nPYTHONPATH={ROOT}/.packages exec {sys.executable} "
        "-c 'from hatchway.api.cli import main; main()' \"$@\"\n"
    )
    command.chmod(0o755)
    for shell in ("bash", "zsh", "fish"):
        (tmp_path / shell).write_text(CliRunner().invoke(cli, ["completion", shell]).stdout)
    return f"{tmp_path}:{os.environ['PATH']}"


def said(shell: str, script: str, path: str, home: Path) -> str:
    environment = {"PATH": path, "HOME": str(home), "HATCHWAY_HOME": str(home)}
    done = subprocess.run(
        [shell, "-c", script], env=environment, text=True, capture_output=True, timeout=60, check=True
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("line", CASES)
def test_bash(line: str, path: str, tmp_path: Path) -> None:
    """The function that the script gives to `complete` answers as bash asks it."""
    script = (
        f"source {tmp_path}/bash; COMP_WORDS=({line}); COMP_CWORD={len(line.split()) - 1}; "
        'complete -p hatchway >/dev/null; _hatchway_completion hatchway; echo "${COMPREPLY[@]}"'
    )
    assert set(said("bash", script, path, tmp_path).split()) == CASES[line]


@pytest.mark.shells
@pytest.mark.parametrize("line", CASES)
def test_fish(line: str, path: str, tmp_path: Path) -> None:
    """`complete -C` lists what TAB would, each with the first line of its help."""
    found = said("fish", f"source {tmp_path}/fish; complete -C '{line}'", path, tmp_path).splitlines()
    assert {row.partition("\t")[0] for row in found} == CASES[line]


@pytest.mark.shells
@pytest.mark.parametrize(("typed", "rest"), [("hatchway key rotate-t", "oken"), ("hatchway login --li", "fetime")])
async def test_zsh(typed: str, rest: str, path: str, tmp_path: Path) -> None:
    """Typed at a prompt with compinit on, TAB writes the rest of the word."""
    load = f"autoload -Uz compinit && compinit -u -d {tmp_path}/dump && source {tmp_path}/zsh; echo re''ady\n"
    async with terminal("-f", "-i", home=tmp_path, program=["zsh"], PATH=path, HOME=str(tmp_path)) as shell:
        shell.type(load.encode())
        await shell.wait_for("ready")
        shell.type(f"{typed}\t".encode())
        await shell.wait_for(typed + rest)
