"""`hatchway key generate | rotate-engine | rotate-token`: new keys, for people and for the engine."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

from hatchway.api.cli.groups import json_option
from hatchway.api.cli.key_changes import key_administration, tell_engine

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@click.command(epilog="\b\nExamples:\n  hatchway key generate\n  hatchway key generate laptop")
@click.argument("name", default="rsa")
@json_option
def generate(name: str, as_json: bool) -> None:
    """Make an RSA-3072 key, here.

    NAME.pem is the private half, NAME.pub the public one; without NAME they are rsa.pem and rsa.pub.
    """
    from hatchway.api.cli.busy import busy
    from hatchway.api.cli.printing import print_json, say
    from hatchway.engine.base.errors import KeyRefused
    from hatchway.engine.base.files import write_private
    from hatchway.engine.keys.keys import generate_key

    if not NAME.fullmatch(name):
        raise click.BadParameter("a letter or digit, then up to 63 letters, digits, dots, underscores or hyphens")
    private, public = Path(f"{name}.pem"), Path(f"{name}.pub")
    for path in (private, public):
        if path.is_symlink() or path.exists():
            raise KeyRefused(f"{path} is there already and is not overwritten: give another name")
    with busy("making an RSA-3072 key", quiet=as_json):
        made = generate_key()
    write_private(private, made.pem(), overwrite=False)
    try:
        _write_new(public, made.public.pem())
    except BaseException:
        private.unlink()
        raise
    if as_json:
        print_json({"identity": made.identity, "private": str(private), "public": str(public)})
        return
    say(made.identity, f"private key  {private}", f"public key   {public}")
    say("let it sign in, on the engine's host:", f"  hatchway key register {public}", err=True)


def _write_new(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        with open(fd, "wb") as file:
            file.write(data)
    except BaseException:
        path.unlink()
        raise


@click.command(epilog="\b\nExample:\n  hatchway key rotate-engine")
@json_option
def rotate_engine(as_json: bool) -> None:
    """Replace the engine's own key. Sessions of the old one end."""
    from hatchway.api.cli.printing import print_json, say
    from hatchway.engine.keys.rotation import rotate_engine_key
    from hatchway.engine.settings.settings import home_folder

    old, new = rotate_engine_key(home_folder(), key_administration().edit)
    ended = tell_engine(removed=(old,), added=(new,), reload=True)
    if as_json:
        print_json({"old": old, "identity": new, "sessions_ended": ended})
    else:
        say(f"new key  {new}", f"old key  {old}, unregistered", f"sessions ended  {ended}")


@click.command(epilog="\b\nExample:\n  hatchway key rotate-token")
@click.option("--force", is_flag=True, help="Even if a key before this one still verifies tokens; those end.")
def rotate_token(force: bool) -> None:
    """Replace the key that signs tokens. Tokens of the old one stay good until their own end."""
    from hatchway.engine.base.clock import SystemClock

    key_administration().rotate_token(SystemClock(), force=force)
    tell_engine(removed=(), reload=True)
    click.echo("new token key; the old one verifies its tokens until the last of them has ended")
    if force:
        click.echo("the one before that verifies none any more")
