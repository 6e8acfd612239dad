"""`hatchway events`: what happened, read from the log files of this host; the engine need not run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from hatchway.api.cli.groups import LazyGroup
from hatchway.api.cli.moments import end_of, moment_of

COMMANDS = {
    "check": "hatchway.api.cli.events_check:check",
    "head": "hatchway.api.cli.events_check:head",
    "at": "hatchway.api.cli.events_past:at",
    "of": "hatchway.api.cli.events_past:of",
    "ship": "hatchway.api.cli.events_ship:ship",
}

CHARTS = ("pairing", "session", "instance", "engine", "key")
"""What records are of: the charts, the engine itself and its keys."""

LOOK_INTERVAL = 0.2
"""Seconds between two looks at a file that is followed."""


@click.group(
    cls=LazyGroup,
    commands_at=COMMANDS,
    invoke_without_command=True,
    epilog="""\b
Examples:
  hatchway events --since 1h
  hatchway events --since 21:30 --until 22:00
  hatchway events check
  hatchway events --follow --chart pairing
  hatchway events --json | jq 'select(.kind == "refusal")'""",
)
@click.option("--follow", "-f", is_flag=True, help="Go on as things happen, until Ctrl-C.")
@click.option(
    "--chart",
    type=click.Choice(CHARTS),
    help="Only the records of this chart, of the engine itself, or of its keys.",
)
@click.option("--since", metavar="TIME", help="Only from then on: 30m (ago), 21:30, 2026-11-28T21:30.")
@click.option("--until", metavar="TIME", help="Only up to then, a day's end where only the day is given.")
@click.option("--json", "as_json", is_flag=True, help="Print the records as they are, one JSON object a line.")
@click.pass_context
def events(
    context: click.Context, follow: bool, chart: str | None, since: str | None, until: str | None, as_json: bool
) -> None:
    """Show what happened: transitions and refusals. With a command, check it."""
    if context.invoked_subcommand is not None:
        if follow or chart or since or until or as_json:
            raise click.UsageError(f"options go after the command: hatchway events {context.invoked_subcommand} ...")
        return
    if follow and until is not None:
        raise click.UsageError("give --follow or --until, not both")
    import msgspec

    from hatchway.api.cli.interruptions import until_ctrl_c
    from hatchway.api.cli.printing import note, print_json_text

    folder = journal_folder()
    earliest = -math.inf if since is None else moment_of(since, "--since")
    latest = math.inf if until is None else end_of(until, "--until", earliest)
    if latest < earliest:
        raise click.UsageError("--until is before --since")
    decode = msgspec.json.Decoder().decode
    tell, told = people_printer(), False
    with until_ctrl_c(follow):
        for data in _lines(folder, follow):
            record = decode(data)
            if earliest <= record["time"] <= latest and chart in (None, record["chart"]):
                if as_json:
                    print_json_text(data.decode())
                else:
                    tell(data)
                told = True
    if not told and not follow:
        note("no such records" if chart or since or until else "no records yet: an engine makes them as it runs")


def journal_folder() -> Path:
    """Where this host's journal lies. Raises FileRefused where others may read it."""
    from hatchway.engine.base.files import check_private_dir
    from hatchway.engine.settings.settings import home_folder

    folder = home_folder() / "log"
    if folder.exists():
        check_private_dir(folder)
    return folder


def _lines(folder: Path, follow: bool) -> Iterator[bytes]:
    """The records' JSON, oldest first; with `follow` for ever."""
    from hatchway.engine.journal.files import read_after

    seq = 0
    while True:
        for lines in read_after(folder, seq):
            seq = lines[-1].seq
            yield from (line.data for line in lines)
        if not follow:
            return
        time.sleep(LOOK_INTERVAL)


def people_printer() -> Callable[[bytes], None]:
    """Prints a record's JSON in one line for people; a new day gets a line of its own."""
    import msgspec

    day = ""

    def tell(data: bytes) -> None:
        nonlocal day
        record = msgspec.json.decode(data)
        local = time.localtime(record["time"])
        if (today := time.strftime("%A, %d %B %Y", local)) != day:
            day = today
            click.secho(today, bold=True)
        click.echo(_line(record, time.strftime("%H:%M:%S", local)))

    return tell


_DETAILS = ("actor", "identity", "comment", "address", "label", "cause")
"""Fields of a record that its line for people ends with."""


def _line(record: dict[str, Any], when: str) -> str:
    from hatchway.engine.base.text import printable

    colour = {"transition": "cyan", "refusal": "yellow", "notice": "blue"}.get(record["kind"])
    what = click.style(printable(f"{record['chart']:<9}{record['event']:<17}"), fg=colour)
    if record["kind"] == "transition":
        change = printable(f"{record['source']} -> {record['target']}")
    else:
        change = "refused" if record["kind"] == "refusal" else ""
    details = [printable(str(record[name])) for name in _DETAILS if record.get(name)]
    if "count" in record:
        details.append(f"{record['count']} times")
    return f"{click.style(when, dim=True)}  {what} {change:<21} {click.style('  '.join(details), dim=True)}".rstrip()
