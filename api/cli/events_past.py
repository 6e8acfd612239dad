"""`hatchway events at` and `hatchway events of`: how things stood at a moment, and who did what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import time as now

import click

from hatchway.api.cli.groups import json_option

AROUND = 5
"""Records that are shown before a moment, and after it."""


@click.command(
    "at",
    epilog="""\b
Examples:
  hatchway events at 2h
  hatchway events at 2026-11-28T03:15
  hatchway events at 2026-11-28T02:15Z --json""",
)
@click.argument("time", metavar="TIME")
@json_option
def at(time: str, as_json: bool) -> None:
    """Show what was so at TIME, and what happened around it.

    TIME is a while ago, such as 2h, or a date and time. Shown is how many actors were in which state.
    """
    from hatchway.api.cli.events import journal_folder, people_printer
    from hatchway.api.cli.moments import moment_of
    from hatchway.api.cli.printing import moment, print_json, print_table, say
    from hatchway.engine.journal.history import Question, page
    from hatchway.engine.journal.overview import standing_at

    when, folder = moment_of(time, "TIME"), journal_folder()
    if when > now():
        raise click.BadParameter(f"'{time}' is still to come", param_hint="TIME")
    states, last = standing_at(folder, when)
    around = page(folder, Question(), max(0, last - AROUND), 2 * AROUND).lines if last else []
    if as_json:
        told: dict[str, dict[str, int]] = {}
        for (chart, state), count in sorted(states.items()):
            told.setdefault(chart, {})[state] = count
        print_json({"time": when, "seq": last, "states": told})
        return
    say(moment(when))
    rows = [(chart, state, count) for (chart, state), count in sorted(states.items())]
    print_table(("chart", "state", "actors"), rows, "no actor was in any state that is not final")
    tell = people_printer()
    for line in around:
        tell(line.data)


@click.command(
    "of",
    epilog="""\b
Examples:
  hatchway events of 19a7c0d3f2aVfV2lqkMe0cx
  hatchway events of 192.0.2.66
  hatchway events of alice@laptop
  hatchway events of my-instance --json | jq .event""",
)
@click.argument("who", metavar="WHO")
@json_option
def of(who: str, as_json: bool) -> None:
    """Show what WHO did and what became of it, oldest first.

    WHO is the name of a session, a pairing or an instance, a key by its identity or comment, or an address. All that
    became of the sessions of a key or an address is shown too.
    """
    from hatchway.api.cli.events import journal_folder, people_printer
    from hatchway.api.cli.printing import print_json_text

    tell, told = people_printer(), 0
    for data in _of(who, journal_folder()):
        told += 1
        if as_json:
            print_json_text(data.decode())
        else:
            tell(data)
    if not told:
        from hatchway.api.cli.failures import Failed

        raise Failed(f"the journal has no record of '{who}'", ("see who there was with: hatchway events",))


def _of(who: str, folder: Path) -> Iterator[bytes]:
    """The records that name somebody, or one of the actors that he moved."""
    import msgspec

    from hatchway.engine.journal.files import read_after
    from hatchway.engine.runtime.records import Record

    decode, names = msgspec.json.Decoder(Record).decode, {who}
    for lines in read_after(folder, 0):
        for line in lines:
            record = decode(line.data)
            if names.isdisjoint((record.actor, record.identity, record.address, record.comment)):
                continue
            if record.kind == "transition" or record.chart == "key":
                names.add(record.actor)
            yield line.data
