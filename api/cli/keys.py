"""`hatchway key ...`: who may sign in. None of these needs a running engine; one that runs is told (section 4.6)."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hatchway.api.cli.groups import json_option
from hatchway.api.cli.key_flags import described, expiry_words, moment_words, only_words, option_flags
from hatchway.api.cli.pairing import permissions_option

if TYPE_CHECKING:
    from hatchway.engine.fleet.key_administration import KeyAdministration
    from hatchway.engine.keys.key_edits import Registered
    from hatchway.engine.keys.keys import PublicKey
    from hatchway.engine.settings.settings import Settings

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@click.group(
    epilog="""\b
Examples:
  hatchway key generate laptop
  hatchway key register laptop.pub --permissions SHELL,RUNTIME
  hatchway key list"""
)
def key() -> None:
    """Make keys, and say which may sign in here."""


def _settings() -> Settings:
    from hatchway.engine.settings.settings import home_folder
    from hatchway.engine.settings.sources import load_settings

    return load_settings(home_folder(), os.environ, {})


def _key_administration() -> KeyAdministration:
    """Where authorized_keys and the token key are."""
    from hatchway.engine.fleet.key_administration import open_key_administration
    from hatchway.engine.settings.settings import home_folder

    return open_key_administration(home_folder(), _settings())


@key.command("list", epilog="\b\nExample:\n  hatchway key list --json")
@json_option
def list_(as_json: bool) -> None:
    """List the authorized keys.

    Shown is what each may do, until when, when it was registered and last used.
    """
    from hatchway.api.cli.printing import note, print_json, print_table

    keys = _key_administration()
    lines = keys.lines()
    entries = [line.entry for line in lines if line.entry]
    uses = _key_uses()
    rows = [
        {
            "identity": entry.identity,
            "permissions": list(entry.permissions),
            "bits": entry.key.bits,
            "comment": entry.comment,
        }
        | described(entry.options)
        | dict(zip(("registered_at", "used_at"), uses.get(entry.identity, (None, None)), strict=True))
        for entry in entries
    ]
    for line in lines:
        if line.fault:
            note(f"{keys.where} line {line.number} grants nothing: {line.fault}")
    if as_json:
        print_json(rows)
        return
    print_table(
        ("IDENTITY", "PERMISSIONS", "BITS", "EXPIRES", "ONLY", "REGISTERED", "LAST USED", "COMMENT"),
        [
            (
                entry.identity,
                ",".join(entry.permissions),
                entry.key.bits,
                expiry_words(entry.options, time.time()),
                only_words(entry.options),
                *map(moment_words, uses.get(entry.identity, (None, None))),
                entry.comment,
            )
            for entry in entries
        ],
        "no authorized keys; the first start of the engine makes one, and `hatchway key register` adds others",
    )


@key.command("generate", epilog="\b\nExamples:\n  hatchway key generate\n  hatchway key generate laptop")
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


@key.command(
    "register",
    epilog="""\b
Examples:
  hatchway key register rsa.pub
  hatchway key register ~/.ssh/id_rsa.pub --permissions RUNTIME:READ --comment dashboard
  hatchway key register ci.pub --expires 90d --from 10.0.0.0/8 --instances 4 --lifetime 8h
  hatchway key register --agent                   the RSA key that the SSH agent holds
  hatchway key register --agent alice@laptop      the one of that comment""",
)
@click.argument("public_key_file", type=click.Path(dir_okay=False), required=False)
@click.option(
    "--agent",
    is_flag=False,
    flag_value="",
    metavar="[FINGERPRINT | COMMENT]",
    help="A key that the SSH agent holds, in place of a file.",
)
@permissions_option
@click.option("--comment", default="", help="A name for the key; `key unregister` takes it too.")
@option_flags
@json_option
def register(
    public_key_file: str | None,
    agent: str | None,
    permissions: tuple[str, ...] | None,
    comment: str,
    options: dict[str, str],
    as_json: bool,
) -> None:
    """Authorize a public key, or change what it may do.

    The file holds one key: SPKI or PKCS#1 PEM, or an OpenSSH line.
    """
    from hatchway.engine.base.permissions import FIVE
    from hatchway.engine.keys import key_edits
    from hatchway.engine.keys.key_lines import lines_with, refused_type

    public, fallback = _given_key(public_key_file, agent)
    if public.kind not in _settings().key_types:
        raise refused_type(public.kind)

    def change(data: bytes) -> tuple[bytes, Registered]:
        entries = [line.entry for line in lines_with(data, public) if line.entry]
        known = next((entry for entry in entries if entry.identity == public.identity), None)
        name = comment or (known.comment if known else "") or public.comment or fallback
        return key_edits.register(data, public, permissions or FIVE, name, options)

    done = _key_administration().edit(change)
    _tell_engine(removed=(), added=(public.identity,))
    _tell_registered(done, as_json)


@key.command(
    "edit",
    epilog="""\b
Examples:
  hatchway key edit dashboard --expires 90d --from 10.0.0.0/8
  hatchway key edit SHA256:2hFqN... --expires none --permissions SHELL""",
)
@click.argument("key_identity")
@permissions_option
@click.option("--comment", default="", help="Another name for the key.")
@option_flags
@json_option
def edit(
    key_identity: str, permissions: tuple[str, ...] | None, comment: str, options: dict[str, str], as_json: bool
) -> None:
    """Change what an authorized key may do.

    What is not named stays as it is. The key's sessions go by the narrower of what they began with and what the key
    holds now.
    """
    from hatchway.engine.keys import key_edits

    if permissions is None and not comment and not options:
        raise click.UsageError(
            "say what to change: --permissions, --comment, --expires, --from, --instances, --lifetime"
        )
    change = partial(key_edits.edit, selector=key_identity, permissions=permissions, comment=comment, options=options)
    done = _key_administration().edit(change)
    _tell_engine(removed=(), added=(done.entry.identity,))
    _tell_registered(done, as_json)


def _tell_registered(done: Registered, as_json: bool) -> None:
    from hatchway.api.cli.printing import print_json, say

    entry = done.entry
    held = ", ".join(entry.permissions)
    if as_json:
        told: dict[str, Any] = {
            "identity": entry.identity,
            "permissions": list(entry.permissions),
            "outcome": done.outcome,
        }
        print_json(told | described(entry.options))
        return
    if done.outcome == "added":
        say(f"registered {entry.identity}", f"permissions  {held}")
    elif done.outcome == "replaced":
        before = "" if done.before == entry.permissions else f", before: {', '.join(done.before or ('none',))}"
        say(f"changed {entry.identity}", f"permissions  {held}{before}")
    else:
        say(f"{entry.identity} is registered already", f"permissions  {held}")
    if entry.options is not None:
        say(f"expires      {expiry_words(entry.options, time.time()) or 'never'}")
        say(f"only         {only_words(entry.options) or 'as it may'}")


def _given_key(path: str | None, agent: str | None) -> tuple[PublicKey, str]:
    """The key to register, of a file or an agent, and its comment where it has none of its own."""
    from hatchway.engine.base.files import read_small
    from hatchway.engine.keys.key_files import one_line
    from hatchway.engine.keys.keys import KEY_TYPES, parse_openssh, read_public_key

    if (path is None) == (agent is None):
        raise click.UsageError("give the file of a public key, or --agent for a key that the SSH agent holds")
    if path is not None:
        return read_public_key(read_small(Path(path)), KEY_TYPES), _stem(path)
    from hatchway.api.client.signers import only_key

    key = only_key(agent or "")
    return parse_openssh(f"{key.line} {one_line(key.comment)}"), "agent"


def _stem(path: str) -> str:
    """A file's name without its ending, as text whatever its bytes are."""
    return os.fsencode(Path(path).stem).decode(errors="replace")


@key.command(
    "unregister",
    epilog="""\b
Examples:
  hatchway key unregister SHA256:2hFqN...      the identity, or a unique beginning of it
  hatchway key unregister dashboard            a unique comment""",
)
@click.argument("key_identity")
@click.option("--force", is_flag=True, help="The engine's own key too.")
@json_option
def unregister(key_identity: str, force: bool, as_json: bool) -> None:
    """Remove an authorized key, and end its sessions at once."""
    from hatchway.api.cli.printing import print_json, say
    from hatchway.engine.keys import key_edits

    change = partial(key_edits.unregister, selector=key_identity, force=force, own=_own_identity())
    identity, _ = _key_administration().edit(change)
    ended = _tell_engine(removed=(identity,))
    if as_json:
        print_json({"identity": identity, "sessions_ended": ended})
    else:
        say(f"unregistered {identity}", f"sessions ended  {ended}")


def _own_identity() -> str | None:
    from hatchway.engine.base.errors import Refusal
    from hatchway.engine.base.files import read_private
    from hatchway.engine.keys.keys import read_private_key
    from hatchway.engine.settings.settings import home_folder

    try:
        return read_private_key(read_private(home_folder() / "private-key.pem")).identity
    except (FileNotFoundError, Refusal):
        return None


@key.command("rotate-engine", epilog="\b\nExample:\n  hatchway key rotate-engine")
@json_option
def rotate_engine(as_json: bool) -> None:
    """Replace the engine's own key. Sessions of the old one end."""
    from hatchway.api.cli.printing import print_json, say
    from hatchway.engine.keys.rotation import rotate_engine_key
    from hatchway.engine.settings.settings import home_folder

    old, new = rotate_engine_key(home_folder(), _key_administration().edit)
    ended = _tell_engine(removed=(old,), added=(new,), reload=True)
    if as_json:
        print_json({"old": old, "identity": new, "sessions_ended": ended})
    else:
        say(f"new key  {new}", f"old key  {old}, unregistered", f"sessions ended  {ended}")


@key.command("rotate-token", epilog="\b\nExample:\n  hatchway key rotate-token")
@click.option("--force", is_flag=True, help="Even if a key before this one still verifies tokens; those end.")
def rotate_token(force: bool) -> None:
    """Replace the key that signs tokens. Tokens of the old one stay good until their own end."""
    from hatchway.engine.base.clock import SystemClock

    _key_administration().rotate_token(SystemClock(), force=force)
    _tell_engine(removed=(), reload=True)
    click.echo("new token key; the old one verifies its tokens until the last of them has ended")


def _tell_engine(removed: tuple[str, ...], added: tuple[str, ...] = (), reload: bool = False) -> int:
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


Use = tuple[float | None, float | None]
"""When a key was registered, and last used, in epoch seconds."""


def _key_uses() -> dict[str, Use]:
    """Of every key that anything is known of, by the engine that runs here, or its store."""
    from hatchway.api.cli.printing import note
    from hatchway.engine.base.errors import EngineUnavailable
    from hatchway.engine.settings.settings import home_folder

    home = home_folder()
    with suppress(EngineUnavailable, FileNotFoundError):
        return _running_engine_s_uses(home)
    if not (home / "engine.db").exists():
        return {}
    from hatchway.api.cli.offline import stored_uses

    try:
        return {name: (use.registered_at, use.used_at) for name, use in stored_uses(home).items()}
    except EngineUnavailable as lost:
        note(f"when keys were registered and used is not known now: {lost.detail}")
        return {}


def _running_engine_s_uses(home: Path) -> dict[str, Use]:
    from hatchway.api.client.operator import ask

    found: dict[str, Use] = {}
    after = ""
    while True:
        told = ask(home, "key_uses", after=after)
        found |= {name: (registered, used) for name, (registered, used) in told["uses"].items()}
        after = told.get("next", "")
        if not after:
            return found


def _tell_running_engine(home: Path, removed: tuple[str, ...], added: tuple[str, ...], reload: bool) -> int:
    from hatchway.api.client.operator import ask

    ended = int(ask(home, "keys_changed", removed=removed, added=added)["sessions_ended"])
    if reload:
        ask(home, "reload")
    return ended
