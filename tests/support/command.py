"""The command, called in this process or as one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from hatchway.api.cli import cli
from tests.support.fakes import ROOT
from tests.support.forked import CapturedCommand, can_fork

HATCHWAY = (sys.executable, "-c", "from hatchway.api.cli import main; main()")
"""The command as an interpreter of its own."""


def run(*arguments: str, code: int = 0, **more: Any) -> Result:
    """One command in this process; its exit code must be `code`."""
    result = CliRunner().invoke(cli, arguments, prog_name="hatchway", **more)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """One command as a process of its own."""
    return completed({**os.environ, **environment}, *arguments)


def completed(
    environ: Mapping[str, str], *arguments: str, typed: str = "", folder: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """The same, with these variables alone; in `folder`, and with `typed` as its standard input."""
    if can_fork(environ):
        done = CapturedCommand(arguments, environ, folder, typed.encode()).completed()
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
    return subprocess.run(
        [*HATCHWAY, *arguments],
        cwd=folder,
        env=environ,
        input=typed,
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )
