"""`hatchway engine ...`: the engine of this host. A further command is one line of COMMANDS (see `api.cli`)."""

from __future__ import annotations

import click

from api.cli.groups import LazyGroup

COMMANDS = {
    "start": "api.cli.lifecycle:start",
    "stop": "api.cli.lifecycle:stop",
    "status": "api.cli.lifecycle:status",
    "reload": "api.cli.lifecycle:reload",
    "ping": "api.cli.sign_in:ping",
    "pair": "api.cli.pairing:pair",
    "unit": "api.cli.unit:unit",
}


@click.group(
    cls=LazyGroup,
    commands_at=COMMANDS,
    epilog="""\b
Examples:
  hatchway engine start --port 7420
  hatchway engine pair --permissions SHELL,RUNTIME --lifetime 2h
  hatchway engine status --json""",
)
def engine() -> None:
    """Run, watch and open the engine of this host."""
