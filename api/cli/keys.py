"""`hatchway key ...`: who may sign in. None of these needs a running engine; one that runs is told (section 4.6)."""

from __future__ import annotations

import click

from hatchway.api.cli.groups import LazyGroup

COMMANDS = {
    "list": "hatchway.api.cli.key_list:list_",
    "generate": "hatchway.api.cli.key_making:generate",
    "register": "hatchway.api.cli.key_grants:register",
    "edit": "hatchway.api.cli.key_grants:edit",
    "unregister": "hatchway.api.cli.key_grants:unregister",
    "rotate-engine": "hatchway.api.cli.key_making:rotate_engine",
    "rotate-token": "hatchway.api.cli.key_making:rotate_token",
}


@click.group(
    cls=LazyGroup,
    commands_at=COMMANDS,
    epilog="""\b
Examples:
  hatchway key generate laptop
  hatchway key register laptop.pub --permissions SHELL,RUNTIME
  hatchway key list""",
)
def key() -> None:
    """Make keys, and say which may sign in here."""
