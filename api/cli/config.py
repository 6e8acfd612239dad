"""`hatchway config get | set | unset | list`: the settings, and the stored token's place among them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hatchway.api.cli.groups import json_option

if TYPE_CHECKING:
    from hatchway.engine.base.errors import Refusal

TOKEN = "connection-token"  # noqa: S105 - the setting's name


def _names(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    from hatchway.engine.settings.settings import TABLE

    return [name for name in [*TABLE, TOKEN] if name.startswith(typed)]


name_argument = click.argument("name", shell_complete=_names)


@click.group(
    epilog="""\b
Examples:
  hatchway config list
  hatchway config set session_max_age.key 24h
  hatchway config get url
  hatchway config unset connection-token"""
)
def config() -> None:
    """Read and change the settings in config.toml."""


@config.command("get", epilog="\b\nExample:\n  hatchway config get port")
@name_argument
@json_option
def get(name: str, as_json: bool) -> None:
    """Print the value of setting NAME, wherever it comes from."""
    from hatchway.api.cli.printing import note, print_json, say
    from hatchway.engine.settings.settings import home_folder, show

    home = home_folder()
    if name == TOKEN:
        value: Any = "set" if _token_is_set(home) else None
        shown = value or ""
    else:
        value = _value(home, name)
        shown = _masked(show(name, value))
    if as_json:
        print_json({"name": name, "value": None if value is None else shown})
    elif value is None:
        note(f"{name} is not set")
        raise SystemExit(1)
    else:
        say(*shown.split("\n"))  # a key in PEM has several lines


@config.command(
    "set",
    context_settings={"ignore_unknown_options": True},  # so that -1 is a value, which is refused in words
    epilog="""\b
Examples:
  hatchway config set url https://engine.example
  hatchway config set registries docker.io,ghcr.io     a list
  hatchway config set store -                          asks for the value: a password in it is nobody's to see""",
)
@name_argument
@click.argument("value")
def set_(name: str, value: str) -> None:
    """Write setting NAME into config.toml, keeping its comments. VALUE - is asked for, or read from standard input."""
    from hatchway.api.cli.printing import note
    from hatchway.engine.settings.config_file import set_value
    from hatchway.engine.settings.settings import home_folder

    if name == TOKEN:
        raise click.UsageError("connection-token is stored by: hatchway login")
    if value == "-":
        value = _typed(name)
    elif _masked(value) != value:
        note(
            "everybody on this host can see that password in the list of processes: give - for it, and it is asked for"
        )
    set_value(home_folder(), name, value)
    _tell_effect(name)


def _typed(name: str) -> str:
    if sys.stdin.isatty():
        return str(click.prompt(name, hide_input=True, err=True))
    return sys.stdin.read().rstrip("\n")


@config.command("unset", epilog="\b\nExample:\n  hatchway config unset connection-token")
@name_argument
def unset(name: str) -> None:
    """Take setting NAME out of config.toml.

    The name connection-token forgets the stored token.
    """
    from hatchway.api.cli.printing import note
    from hatchway.engine.settings.config_file import unset_value
    from hatchway.engine.settings.settings import home_folder

    home = home_folder()
    if name == TOKEN:
        was_set = _token_is_set(home)
        (home / TOKEN).unlink(missing_ok=True)
    else:
        was_set = unset_value(home, name)
    if not was_set:
        note(f"{name} was not set")
    elif name != TOKEN:
        _tell_effect(name)


@config.command("list", epilog="\b\nExample:\n  hatchway config list --json")
@json_option
def list_(as_json: bool) -> None:
    """Show every setting, and where its value comes from."""
    from hatchway.api.cli.printing import print_json, print_table, say
    from hatchway.engine.settings.settings import TABLE, home_folder, show

    home = home_folder()
    refused: list[Refusal] = []
    values, sources = _values(home, refused.append)
    shown = {name: _masked(show(name, values[name])) for name in TABLE}
    rows = [(name, shown[name], sources[name], row.effect) for name, row in TABLE.items()]
    rows.append((TOKEN, "set" if _token_is_set(home) else "", "file" if _token_is_set(home) else "default", "at once"))
    if as_json:
        print_json([dict(zip(("name", "value", "source", "effect"), row, strict=True)) for row in rows])
    else:
        print_table(("SETTING", "VALUE", "FROM", "TAKES EFFECT"), rows, "")
    for refusal in refused:
        say(refusal.detail, fg="red", err=True)
    if refused:
        raise SystemExit(1)


def _masked(text: str) -> str:
    """An address without the password in it."""
    return re.sub(r"(?<=://)[^/@]*@", "***@", text)


def _values(home: Path, refused: Callable[[Refusal], None]) -> tuple[dict[str, Any], dict[str, str]]:
    """Every setting's value, and where it comes from. A value that is refused is replaced by the default."""
    from hatchway.engine.settings.settings import TABLE
    from hatchway.engine.settings.sources import read_config, read_environment

    values, sources = {name: row.default for name, row in TABLE.items()}, dict.fromkeys(TABLE, "default")
    for source, given in (
        ("config.toml", read_config(home, refused)),
        ("environment", read_environment(os.environ, refused)),
    ):
        values |= given
        sources |= dict.fromkeys(given, source)
    return values, sources


def _value(home: Path, name: str) -> Any:
    from hatchway.engine.settings.settings import value_of
    from hatchway.engine.settings.sources import load_settings

    return value_of(load_settings(home, os.environ, {}), name)


def _token_is_set(home: Path) -> bool:
    return (home / TOKEN).exists()


def _tell_effect(name: str) -> None:
    """Say what is left to do, where an engine runs that does not use the new value yet."""
    from hatchway.api.client.operator import runs
    from hatchway.engine.settings.settings import TABLE, home_folder, setting

    if name not in TABLE or not runs(home_folder()):
        return
    effect = setting(name).effect
    if effect == "reload":
        click.echo("the running engine takes it up with: hatchway engine reload", err=True)
    elif effect == "restart":
        click.echo("takes effect at the engine's next start", err=True)
