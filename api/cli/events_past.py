"""`hatchway events at` and `hatchway events of`: how things stood at a moment, and what became of an actor."""

from __future__ import annotations

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
  hatchway events of my-instance --json | jq .event""",
)
@click.argument("actor", metavar="ACTOR")
@json_option
def of(actor: str, as_json: bool) -> None:
    """Show what became of ACTOR, oldest first.

    ACTOR is the name of a session, a pairing or an instance.
    """
    from hatchway.api.cli.events import journal_folder, people_printer
    from hatchway.api.cli.printing import print_json_text
    from hatchway.engine.journal.history import MOST, Question, page

    folder, after, told = journal_folder(), 0, 0
    tell = people_printer()
    while True:
        found = page(folder, Question(actor=actor), after, MOST)
        for line in found.lines:
            told += 1
            if as_json:
                print_json_text(line.data.decode())
            else:
                tell(line.data)
        if found.next is None:
            break
        after = found.next
    if not told:
        from hatchway.api.cli.failures import Failed

        raise Failed(f"the journal has no record of '{actor}'", ("see who there was with: hatchway events",))
