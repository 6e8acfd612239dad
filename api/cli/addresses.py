"""`hatchway engine address ...`: where the running engine answers for a while, beside the setting `addresses`."""

from __future__ import annotations

from typing import Any

import click

from hatchway.api.cli.groups import json_option


def read_address(context: click.Context, parameter: click.Parameter, text: str) -> str:
    """HOST:PORT as the Host header has it."""
    from hatchway.engine.settings.kinds import address

    try:
        return address(text)
    except ValueError as fault:
        raise click.BadParameter(str(fault)) from None


def read_span(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Seconds in a duration such as 8h."""
    from hatchway.engine.settings.kinds import duration

    try:
        return None if text is None else int(duration(60, 8760 * 3600).read(text))
    except ValueError as fault:
        raise click.BadParameter(str(fault)) from None


argument = click.argument("address", metavar="HOST:PORT", callback=read_address)


@click.group(
    epilog="""\b
Examples:
  hatchway engine address add 127.0.0.1:9000 --for 8h     for `ssh -L 9000:127.0.0.1:7420 HOST`
  hatchway engine address list
  hatchway engine address remove 127.0.0.1:9000"""
)
def address() -> None:
    """Where the engine answers for a while, as tunnels need."""


@address.command(epilog="\b\nExample:\n  hatchway engine address add 127.0.0.1:9000 --for 8h")
@argument
@click.option("--for", "seconds", metavar="DURATION", callback=read_span, help="1m to 8760h. Default: until it stops.")
def add(address: str, seconds: int | None) -> None:
    """Have the running engine answer at HOST:PORT too."""
    from hatchway.api.cli.printing import say, span

    _ask("address_add", address=address, seconds=seconds)
    say(f"{address} counts {'until the engine stops' if seconds is None else f'for {span(seconds)}'}")


@address.command("list", epilog="\b\nExample:\n  hatchway engine address list --json")
@json_option
def list_command(as_json: bool) -> None:
    """Show what was added, and what tunnels hold."""
    from hatchway.api.cli.printing import print_json, print_table

    rows = _ask("address_list")["addresses"]
    if as_json:
        print_json(rows)
    else:
        print_table(("ADDRESS", "BY", "HOLDS"), [(row["address"], row["by"], _holds(row)) for row in rows], "none")


@address.command(epilog="\b\nExample:\n  hatchway engine address remove 127.0.0.1:9000")
@argument
def remove(address: str) -> None:
    """Take an address away that was added by hand."""
    from hatchway.api.cli.printing import say

    _ask("address_remove", address=address)
    say(f"{address} counts no more")


def _holds(row: dict[str, Any]) -> str:
    from hatchway.api.cli.printing import span

    if row["by"] == "tunnel":
        return "while its tunnel is open"
    return "until the engine stops" if row["seconds"] is None else span(row["seconds"])


def _ask(op: str, **fields: Any) -> dict[str, Any]:
    from hatchway.api.client.operator import ask
    from hatchway.engine.settings.settings import home_folder

    return ask(home_folder(), op, **fields)
