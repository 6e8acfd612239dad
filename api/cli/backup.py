"""`hatchway engine backup`: a copy of the engine's folder, to be put back while the engine is stopped."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(epilog="\b\nExample:\n  hatchway engine backup /srv/backup/hatchway-monday")
@click.argument("folder", type=click.Path(path_type=Path))
def backup(folder: Path) -> None:
    """Copy the engine's folder to FOLDER.

    The engine may run meanwhile. To put the copy back, stop it and move FOLDER to the place of its own. The copy holds
    private keys.
    """
    from hatchway.api.cli.printing import say
    from hatchway.engine.settings.settings import home_folder
    from hatchway.engine.store.backup import back_up

    back_up(home_folder(), folder)
    say(f"copied to {folder}")
