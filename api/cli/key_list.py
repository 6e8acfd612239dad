"""`hatchway key list`: what each authorized key may do, and when it was used."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hatchway.api.cli.groups import json_option
from hatchway.api.cli.key_changes import key_administration
from hatchway.api.cli.key_flags import described, expiry_words, moment_words, only_words

if TYPE_CHECKING:
    from hatchway.engine.keys.key_lines import KeyGrant

Use = tuple[float | None, float | None]
"""When a key was registered, and last used, in epoch seconds."""


@click.command("list", epilog="\b\nExample:\n  hatchway key list --json")
@json_option
def list_(as_json: bool) -> None:
    """List the authorized keys.

    Shown is what each may do, until when, when it was registered and last used.
    """
    from hatchway.api.cli.printing import note, print_json, print_table

    keys = key_administration()
    lines = keys.lines()
    uses = _key_uses()
    listed = [(line.entry, uses.get(line.entry.identity, (None, None))) for line in lines if line.entry]
    for line in lines:
        if line.fault:
            note(f"{keys.where} line {line.number} grants nothing: {line.fault}")
    if as_json:
        print_json([_facts(entry, use) for entry, use in listed])
        return
    now = time.time()
    print_table(
        ("IDENTITY", "PERMISSIONS", "BITS", "COMMENT", "EXPIRES", "ONLY", "REGISTERED", "LAST USED"),
        [_row(entry, use, now) for entry, use in listed],
        "no authorized keys; the first start of the engine makes one, and `hatchway key register` adds others",
    )


def _facts(entry: KeyGrant, use: Use) -> dict[str, Any]:
    """A key for programs."""
    return {
        "identity": entry.identity,
        "permissions": list(entry.permissions),
        "bits": entry.key.bits,
        "comment": entry.comment,
        **described(entry.options),
        **dict(zip(("registered_at", "used_at"), (at if at is None else int(at) for at in use), strict=True)),
    }


def _row(entry: KeyGrant, use: Use, now: float) -> tuple[object, ...]:
    """A key for people. Scripts cut the first four columns out of it, as 0.1.0 had no more."""
    held, ends = ",".join(entry.permissions), expiry_words(entry.options, now)
    return (
        *(entry.identity, held, entry.key.bits, entry.comment),
        *(ends, only_words(entry.options), *map(moment_words, use)),
    )


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
