"""`hatchway engine ...`: the engine of this host. A further command is one line of COMMANDS (see `api.cli`)."""

from __future__ import annotations

import click

from hatchway.api.cli.groups import LazyGroup

COMMANDS = {
    "start": "hatchway.api.cli.lifecycle:start",
    "stop": "hatchway.api.cli.lifecycle:stop",
    "status": "hatchway.api.cli.lifecycle:status",
    "reload": "hatchway.api.cli.lifecycle:reload",
    "ping": "hatchway.api.cli.sign_in:ping",
    "pair": "hatchway.api.cli.pairing:pair",
    "backup": "hatchway.api.cli.backup:backup",
    "address": "hatchway.api.cli.addresses:address",
    "attach": "hatchway.api.cli.attach:attach",
    "unit": "hatchway.api.cli.unit:unit",
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
