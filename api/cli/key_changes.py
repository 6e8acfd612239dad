"""Where the key commands find the authorized keys, and how an engine hears of a change."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from hatchway.engine.fleet.key_administration import KeyAdministration
    from hatchway.engine.settings.settings import Settings


def settings_here() -> Settings:
    """This host's settings."""
    from hatchway.engine.settings.settings import home_folder
    from hatchway.engine.settings.sources import load_settings

    return load_settings(home_folder(), os.environ, {})


def key_administration() -> KeyAdministration:
    """Where authorized_keys and the token key are."""
    from hatchway.engine.fleet.key_administration import open_key_administration
    from hatchway.engine.settings.settings import home_folder

    return open_key_administration(home_folder(), settings_here())


def tell_engine(removed: tuple[str, ...], added: tuple[str, ...] = (), reload: bool = False) -> int:
    """Have the sessions of removed keys ended, by the engine where one runs, else in its store. Returns their
    number."""
    from hatchway.engine.base.errors import EngineUnavailable
    from hatchway.engine.settings.settings import home_folder
    from hatchway.engine.settings.sources import load_settings

    home = home_folder()
    with suppress(EngineUnavailable):
        return _tell_running_engine(home, removed, added, reload)
    from hatchway.api.cli.offline import end_sessions_of, note_keys

    if added and (home / "engine.db").exists():
        note_keys(home, set(added))
    if not removed:
        return 0
    if not (home / "engine.db").exists():
        if load_settings(home, os.environ, {}).keys != "home":
            click.echo("no engine has run here; those that share these keys end the key's sessions", err=True)
        return 0
    try:
        return end_sessions_of(home, set(removed))
    except EngineUnavailable:
        # An engine is just starting or stopping: it ends the sessions when it reads authorized_keys next.
        click.echo("the engine that is starting or stopping here ends the sessions itself", err=True)
        return 0


def _tell_running_engine(home: Path, removed: tuple[str, ...], added: tuple[str, ...], reload: bool) -> int:
    from hatchway.api.client.operator import ask

    ended = int(ask(home, "keys_changed", removed=removed, added=added)["sessions_ended"])
    if reload:
        ask(home, "reload")
    return ended
