"""`hatchway events check` and `hatchway events head`: whether the journal is what the engine wrote, and for whom."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hatchway.api.cli.groups import json_option

if TYPE_CHECKING:
    from hatchway.engine.journal.findings import BadLine, Findings


@click.command(
    "check",
    epilog="""\b
Examples:
  hatchway events check
  hatchway events check --head witnessed-head.txt
  hatchway events check --since 2h --json
  hatchway events check --keys jwks.json copy/events-*.jsonl copy/events.jsonl""",
)
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--since", metavar="T", help="Begin in the file that holds that time: 2h ago, or a date and time.")
@click.option("--head", "witness", metavar="HEAD", help="A head that somebody else has kept: as text, or its file.")
@click.option(
    "--keys",
    "keys_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The engine's public keys (/.well-known/jwks.json), to check elsewhere. Default: this host's.",
)
@json_option
def check(
    files: tuple[Path, ...], since: str | None, witness: str | None, keys_file: Path | None, as_json: bool
) -> None:
    """Check the journal in FILE, or else this host's.

    Looked at are each line's hash and number, each step by its chart, and each head.
    """
    from hatchway.api.cli.events import journal_folder
    from hatchway.api.cli.printing import print_json
    from hatchway.engine.journal.check import Check, open_all
    from hatchway.engine.journal.files import segments
    from hatchway.engine.journal.findings import BadLine
    from hatchway.engine.journal.heads import HeadRefused, heads_in
    from hatchway.engine.journal.history import segments_since

    folder, keys = journal_folder(), _keys(keys_file)
    head = None if witness is None else _head(witness)
    moment = None if since is None else _moment(since)

    def paths_now() -> list[Path]:
        return segments(folder) if moment is None else segments_since(folder, moment)

    def checked(paths: list[Path]) -> Findings:
        heads = heads_in(paths[-1].parent)
        return Check(heads, head, keys).run(open_all(paths), whole=not files and moment is None)

    paths = list(files) or paths_now()
    if not paths:
        from hatchway.api.cli.failures import Failed

        raise Failed(f"there is no journal in {folder}: an engine makes one when it starts")
    try:
        try:
            found = checked(paths)
        except (BadLine, FileNotFoundError):
            if files or (anew := paths_now()) == paths:
                raise
            found = checked(anew)  # an engine has set files aside, or removed them, meanwhile
    except BadLine as fault:
        _tell_fault(fault, as_json=as_json)
        raise SystemExit(1) from None
    except HeadRefused as refused:
        if as_json:
            print_json({"ok": False, "fault": {"file": None, "line": None, "seq": None, "why": refused.detail}})
        raise
    _tell(found, as_json=as_json)


def _moment(since: str) -> float:
    from hatchway.api.cli.moments import moment_of

    return moment_of(since, "--since")


def _keys(path: Path | None) -> dict[str, Any] | None:
    """The keys that heads are signed by; None where this host has none, as before its first engine's start."""
    from hatchway.engine.base.files import read_private
    from hatchway.engine.journal.heads import KEYS, read_keys
    from hatchway.engine.settings.settings import home_folder

    try:
        return read_keys(path.read_bytes() if path else read_private(home_folder() / KEYS))
    except FileNotFoundError:
        return None


def _head(text: str) -> str:
    """A head, or the last one in the file of that name, whatever a log has put around it."""
    import re

    form = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]+")
    found = [text] if form.fullmatch(text) else form.findall(Path(text).read_text(errors="replace"))
    if not found:
        raise click.BadParameter("there is no head in it: `hatchway events head` prints one", param_hint="--head")
    return str(found[-1])


def _tell_fault(fault: BadLine, *, as_json: bool) -> None:
    from hatchway.api.cli.printing import print_json, say

    if as_json:
        told = {"file": str(fault.path), "line": fault.number, "seq": fault.seq, "why": fault.why}
        print_json({"ok": False, "fault": told})
    say(str(fault), fg="red", err=True)


def _tell(found: Findings, *, as_json: bool) -> None:
    import msgspec

    from hatchway.api.cli.printing import moment, print_facts, print_json

    if as_json:
        print_json({"ok": True, **msgspec.to_builtins(found)})
        return
    span = f"{moment(found.since)} to {moment(found.until)}" if found.since and found.until else "none"
    steps = ", ".join(f"{count} {chart}" for chart, count in found.steps.items() if count) or "none"
    facts = {
        "records": f"{found.records} ({found.first} to {found.last})",
        "time": span,
        "actors": found.actors,
        "steps": steps,
        "refusals": found.refusals,
        "sealed": f"up to record {found.sealed}, {moment(found.sealed_at or 0)}" if found.sealed else "no head",
        "after it": f"{found.unsealed} records",
        "witnessed": f"up to record {found.witnessed}, {moment(found.witnessed_at or 0)}" if found.witnessed else "",
        "begun before": ", ".join(f"{count} {chart}" for chart, count in found.unknown.items()),
        "made room": f"{found.sifted} refusals and renewals" if found.sifted else "",
        "not written": f"{found.lost} records" if found.lost else "",
        "cut lines": found.torn or "",
        "other charts": ", ".join(f"{count} steps by {tables}" for tables, count in found.skipped.items()),
    }
    print_facts({name: fact for name, fact in facts.items() if fact != ""})


@click.command(
    "head",
    epilog="""\b
Examples:
  hatchway events head
  hatchway events head | ssh witness 'cat >> hatchway-heads'""",
)
@json_option
def head(as_json: bool) -> None:
    """Print a head, for somebody else to keep.

    It is a signature over the journal as it stands.
    """
    from hatchway.api.cli.events import journal_folder
    from hatchway.api.cli.printing import print_json, say
    from hatchway.api.client.operator import ask
    from hatchway.engine.base.errors import EngineUnavailable
    from hatchway.engine.journal.heads import heads_in
    from hatchway.engine.settings.settings import home_folder

    try:
        signed = ask(home_folder(), "head")["head"]
    except EngineUnavailable:
        kept = heads_in(journal_folder())
        signed = kept[-1] if kept else None
    if signed is None:
        raise click.ClickException("there is no head yet: an engine signs the first within a minute of its start")
    if as_json:
        from hatchway.engine.journal.heads import claims

        print_json({"head": signed, **claims(signed)})
    else:
        say(signed)
