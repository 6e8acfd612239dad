"""`hatchway session list | revoke`: who is signed in, and ending it."""

from __future__ import annotations

from typing import Any

import click

from hatchway.api.cli.groups import json_option, url_option


@click.group(
    epilog="""\b
Examples:
  hatchway session list
  hatchway session revoke 9tZ0bq1xVqVnJ3dE
  hatchway session revoke --key SHA256:2hF..."""
)
def session() -> None:
    """List and end sessions: your own, or all of them with MASTER."""


@session.command("list", epilog="\b\nExample:\n  hatchway session list --json")
@url_option()
@json_option
def list_(as_json: bool) -> None:
    """List the live sessions."""
    from hatchway.api.cli.host import Here
    from hatchway.api.cli.printing import print_json, print_table, span

    here = Here()
    with here.client() as client:
        rows = client.sessions()
        own = client.flows.stored.session if client.flows.stored else None
        now = client.flows.engine_time()
    if as_json:
        print_json(rows)
        return
    print_table(  # the columns of 0.1.0 first: scripts cut them out
        ("SESSION", "METHOD", "IDENTITY", "PERMISSIONS", "EXPIRES IN", "", "LABEL", "LAST USED", "WITH", "COMMENT"),
        [
            (
                row.get("session"),
                row.get("method"),
                row.get("identity"),
                ",".join(row.get("permissions", ())),
                span(row.get("expires_at", 0) - now),
                "this one" if row.get("session") == own else "",
                row.get("label"),
                f"{span(now - row['used_at'])} ago" if "used_at" in row else "",
                row.get("agent"),
                row.get("comment"),
            )
            for row in rows
        ],
        "no live sessions",
    )


@session.command(
    "revoke",
    epilog="""\b
Examples:
  hatchway session revoke 9tZ0bq1xVqVnJ3dE
  hatchway session revoke --all              this one too""",
)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="End every session that `session list` shows.")
@click.option("--key", metavar="ID", help="End the sessions of a key: by identity, the start of it, or comment.")
@url_option()
def revoke(ids: tuple[str, ...], everything: bool, key: str | None) -> None:
    """End sessions at once: every token of them is dead.

    A key that is registered may sign in again: hatchway key unregister takes that too, and ends its sessions.
    """
    if bool(ids) + everything + bool(key) != 1:
        raise click.UsageError("give session IDs, or --all, or --key ID")
    from hatchway.api.cli.host import Here
    from hatchway.api.cli.printing import say
    from hatchway.api.client.wire import Refused
    from hatchway.engine.base.errors import NotFound

    here = Here()
    with here.client() as client:
        chosen = list(ids) or _matching(client.sessions(), key)
        own = client.flows.stored.session if client.flows.stored else None
        if not chosen:
            raise NotFound(f"no live session is of the key '{key}'" if key else "there is no live session")
        # The command's own session is revoked last: without it no other can be.
        missing = []
        for name in sorted(dict.fromkeys(chosen), key=lambda name: name == own):
            try:
                client.revoke(name)
            except Refused as refused:
                if refused.code != NotFound.code:
                    raise
                missing.append(name)
            else:
                say(f"revoked {name}")
    if ids and missing:  # what `session list` has shown may have ended since then
        raise NotFound(f"no such session: {', '.join(missing)}")


def _matching(rows: list[dict[str, Any]], key: str | None) -> list[str]:
    """The names of the sessions of a key, by what `key unregister` takes too; without one of all. Raises UsageError
    where several keys are meant."""
    mine = [row for row in rows if key is None or _is_of(row, key)]
    meant = sorted({row["identity"] for row in mine})
    if key is not None and len(meant) > 1:
        raise click.UsageError(f"'{key}' means several keys: {', '.join(meant)}")
    return [str(row["session"]) for row in mine]


def _is_of(row: dict[str, Any], key: str) -> bool:
    from hatchway.engine.keys.key_edits import goes_by

    return goes_by(row["identity"], row.get("comment") or "", key)
