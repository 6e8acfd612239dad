"""The manual page says what the help says, and formats without a warning."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator

import click
import pytest

from hatchway.api.cli import cli
from tests.support.command import run


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            below = click.Context(found, info_name=name, parent=context)
            yield below.command_path, found
            yield from commands(found, below)


def test_every_command_and_option_is_in_it() -> None:
    """Each command has its section, with every option and every example line of its help."""
    page = run("man").output
    sections = dict(re.findall(r"^\.SS \\fB(.+?)\\fR.*?\n(.*?)(?=^\.SS|\Z)", page, re.DOTALL | re.MULTILINE))
    found = dict(commands(cli, click.Context(cli, info_name="hatchway")))
    assert len(found) > 30
    for path, command in found.items():
        section = sections[path.replace("-", r"\-")].replace(r"\-", "-").replace(r"\e", "\\")
        assert all(option in section for parameter in command.params for option in parameter.opts if option[0] == "-")
        assert all(line in section for line in (command.epilog or "").strip("\b\n").splitlines() if line.strip("\b"))


def test_no_line_begins_a_request_of_roff() -> None:
    """What begins with a dot or a quote is one of the page's own requests: no help text is taken for one."""
    for line in run("man").output.splitlines():
        assert not line.startswith("'")
        assert not line.startswith(".") or re.match(r"\.(TH|SH|SS|PP|TP|nf|fi)\b", line), line


@pytest.mark.man
def test_man_formats_it_without_a_warning() -> None:
    """`hatchway man | man -l -`."""
    done = subprocess.run(
        ["man", "--warnings", "-l", "-"],
        input=run("man").output,
        env=os.environ | {"MANWIDTH": "100", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "hatchway engine pair" in done.stdout
