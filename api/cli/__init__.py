"""The command `hatchway`: parse, call, print. Adding a command takes one file and one line.

Write `api/cli/NAME.py` with a `click` command or group, and name it in COMMANDS (or in the table of the group it
belongs to, such as `api.cli.engine.COMMANDS`). One that speaks with an engine by its address has `@url_option()`: on
all others `--url` is refused. Import whatever is heavy (httpcore, trio, cryptography, quart, rich) inside functions: a
table's modules are all imported to print its help. Let refusals pass: this file tells them.
"""

from __future__ import annotations

import io
import os
import sys

from hatchway.api.host.first_process import hold_signals, leave_first_process

hold_signals()

import click  # noqa: E402 - loaded once no signal can be lost any more

from hatchway.api.cli.groups import RootGroup, keep_url  # noqa: E402
from hatchway.engine.base.memory import short_lived  # noqa: E402

COMMANDS = {
    "open": "hatchway.api.cli.open:open_command",
    "login": "hatchway.api.cli.sign_in:login",
    "logout": "hatchway.api.cli.sign_in:logout",
    "pair": "hatchway.api.cli.sign_in:pair",
    "key": "hatchway.api.cli.keys:key",
    "engine": "hatchway.api.cli.engine:engine",
    "config": "hatchway.api.cli.config:config",
    "license": "hatchway.api.cli.license:license_group",
    "session": "hatchway.api.cli.sessions:session",
    "instance": "hatchway.api.cli.instances:instance",
    "chart": "hatchway.api.cli.charts:chart",
    "events": "hatchway.api.cli.events:events",
    "test-engine": "hatchway.api.cli.test_engine:test_engine",
    "completion": "hatchway.api.cli.completion:completion",
    "man": "hatchway.api.cli.man:man",
    "help": "hatchway.api.cli.handbook:help_command",
}
"""Command name to `module:object`, in the order of the help."""


def _tell_version(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    if asked:
        from importlib.metadata import PackageNotFoundError, version

        try:
            click.echo(f"hatchway {version('hatchway')}")
        except PackageNotFoundError:
            click.echo("hatchway, from a checkout that is not installed")
        context.exit()


@click.group(
    cls=RootGroup,
    commands_at=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  hatchway open HOST                         from a laptop to a console on a host behind SSH
  hatchway engine start                      run an engine on this host
  hatchway engine pair                       let a browser in by a code
  hatchway login --url http://127.0.0.1:7420 sign in with a private key
  hatchway session list                      who is signed in
  hatchway help                              the handbook's topics

The engine's folder is ~/.hatchway, or what HATCHWAY_HOME names.""",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_tell_version, help="Show the version."
)
@click.option(
    "--url",
    callback=keep_url,
    help="The engine's address, for this command: http://, https://, or ssh://[USER@]HOST[:PORT].",
)
def cli(url: str | None) -> None:
    """Sign-in and sessions for an engine on a remote host."""


def main() -> None:
    """The command's entry point."""
    _open_closed_streams()
    leave_first_process()
    for stream in (sys.stdout, sys.stderr):
        # A terminal that has no such letter, as a Latin-1 one has no Greek, gets its number, not a traceback.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with short_lived():
        cli(prog_name="hatchway")


def _open_closed_streams() -> None:
    """Have /dev/null where a standard stream is closed: else a file of ours would get its number, and be written what
    is meant for the stream."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115 - as long as we live
