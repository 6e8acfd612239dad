"""`hatchway chart show NAME`: the tables that the engine runs, in the forms of render.py (section 3)."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


def _complete_chart(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    from hatchway.statecharts.catalogue import CHARTS

    return [CompletionItem(name) for name in CHARTS if name.startswith(begun)]


@click.group(epilog="\b\nExample:\n  hatchway chart show pairing")
def chart() -> None:
    """The charts of pairings, sessions and instances."""


@chart.command(
    "show",
    epilog="""\b
Examples:
  hatchway chart show session
  hatchway chart show pairing --format svg > pairing.svg
  hatchway chart show instance --format xstate | jq .states""",
)
@click.argument("name", shell_complete=_complete_chart)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "mermaid", "svg", "scxml", "xstate", "json"]),
    default="table",
    show_default=True,
    help="The form to print; all come from the rows that the engine runs.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs; the same as --format json.")
def show(name: str, form: str, as_json: bool) -> None:
    """Print the chart NAME: pairing, session or instance."""
    from hatchway.statecharts.catalogue import CHARTS
    from hatchway.statecharts.draw.render import FORMATS

    if name not in CHARTS:
        raise click.BadParameter(f"no chart is named '{name}'; there are {', '.join(CHARTS)}", param_hint="NAME")
    click.echo(FORMATS["json" if as_json else form](CHARTS[name]), nl=False)
