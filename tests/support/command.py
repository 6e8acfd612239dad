"""The command, called in this process or as one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from click.testing import CliRunner, Result

from hatchway.api.cli import cli
from tests.support.fakes import ROOT


def run(*arguments: str, code: int = 0, **more: Any) -> Result:
    """One command in this process; its exit code must be `code`."""
    result = CliRunner().invoke(cli, arguments, prog_name="hatchway", **more)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """One command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", "from hatchway.api.cli import main; main()", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )
