"""`hatchway key register | edit | unregister`: the lines of authorized_keys."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hatchway.api.cli.groups import json_option
from hatchway.api.cli.key_changes import key_administration, settings_here, tell_engine
from hatchway.api.cli.key_flags import described, expiry_words, only_words, option_flags
from hatchway.api.cli.pairing import new_permissions_option, permissions_option

if TYPE_CHECKING:
    from hatchway.engine.keys.key_edits import Registered
    from hatchway.engine.keys.keys import PublicKey


@click.command(
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
    if public.kind not in settings_here().key_types:
        raise refused_type(public.kind)

    def change(data: bytes) -> tuple[bytes, Registered]:
        entries = [line.entry for line in lines_with(data, public) if line.entry]
        known = next((entry for entry in entries if entry.identity == public.identity), None)
        name = comment or (known.comment if known else "") or public.comment or fallback
        return key_edits.register(data, public, permissions or FIVE, name, options)

    done = key_administration().edit(change)
    tell_engine(removed=(), added=(public.identity,))
    _tell_registered(done, as_json)


@click.command(
    epilog="""\b
Examples:
  hatchway key edit dashboard --expires 90d --from 10.0.0.0/8
  hatchway key edit SHA256:2hFqN... --expires none --permissions SHELL""",
)
@click.argument("key_identity")
@new_permissions_option
@click.option("--comment", default="", help="Another name for the key.")
@option_flags
@json_option
def edit(
    key_identity: str, permissions: tuple[str, ...] | None, comment: str, options: dict[str, str], as_json: bool
) -> None:
    """Change what an authorized key may do.

    What is not named stays as it is, and `none` takes a limit out. The key's sessions go by the narrower of what they
    began with and what the key holds now.
    """
    from hatchway.engine.keys import key_edits

    if permissions is None and not comment and not options:
        raise click.UsageError(
            "say what to change: --permissions, --comment, --expires, --from, --instances, --lifetime"
        )
    change = partial(key_edits.edit, selector=key_identity, permissions=permissions, comment=comment, options=options)
    done = key_administration().edit(change)
    tell_engine(removed=(), added=(done.entry.identity,))
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
        if limits := only_words(entry.options):
            say(f"only         {limits}")


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


@click.command(
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
    identity, _ = key_administration().edit(change)
    ended = tell_engine(removed=(identity,))
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
