"""`hatchway chart show NAME` and `chart check NAME`: the tables that are run, ours and others' (section 3)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from hatchway.api.cli.groups import json_option

if TYPE_CHECKING:
    from hatchway.statecharts.chart import Chart


def _complete_chart(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    from hatchway.statecharts.catalogue import CHARTS

    return [CompletionItem(name) for name in CHARTS if name.startswith(begun)]


@click.group(
    epilog="""\b
Examples:
  hatchway chart show pairing
  hatchway chart check lease.py:CHART"""
)
def chart() -> None:
    """The charts of pairings, sessions, instances, and your own."""


WHERE = """NAME is pairing, session or instance, or FILE.py:CHART: a chart of your own, in a Python file that is run."""


@chart.command(
    "show",
    epilog="""\b
Examples:
  hatchway chart show session
  hatchway chart show pairing --format svg > pairing.svg
  hatchway chart show instance --format xstate | jq .states
  hatchway chart show lease.py:CHART --format mermaid""",
    help=f"Print the chart NAME.\n\n{WHERE}",
)
@click.argument("name", shell_complete=_complete_chart)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "mermaid", "svg", "scxml", "xstate", "json"]),
    default="table",
    show_default=True,
    help="The form to print; all come from the rows that are run.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs; the same as --format json.")
def show(name: str, form: str, as_json: bool) -> None:
    """Print a chart."""
    from hatchway.statecharts.draw.render import FORMATS

    click.echo(FORMATS["json" if as_json else form](_find(name)), nl=False)


@chart.command(
    "check",
    epilog="""\b
Examples:
  hatchway chart check pairing
  hatchway chart check lease.py:CHART
  hatchway chart check lease.py:CHART --json | jq .events""",
    help=(
        "Say what is wrong with the chart NAME, or what it does.\n\nThat is: how each state is reached, where each"
        f" delay leads, and what each event does in each state. {WHERE}"
    ),
)
@click.argument("name", shell_complete=_complete_chart)
@json_option
def check(name: str, as_json: bool) -> None:
    """Check a chart."""
    from hatchway.api.cli.printing import print_json
    from hatchway.statecharts import examine

    found = _find(name)
    if as_json:
        print_json(examine.as_json(found))
    else:
        click.echo(examine.as_text(found), nl=False)


def _find(name: str) -> Chart:
    """The chart of that name, or of somebody's file. Raises BadParameter; ClickException for one that has faults."""
    from hatchway.statecharts.catalogue import CHARTS

    path, colon, variable = name.rpartition(":")
    if colon:
        return _load(Path(path), variable)
    if name not in CHARTS:
        raise click.BadParameter(
            f"no chart is named '{name}'; there are {', '.join(CHARTS)}, and yours, as FILE.py:CHART", param_hint="NAME"
        )
    return CHARTS[name]


def _load(path: Path, variable: str) -> Chart:
    """The chart that a Python file has under that name. The file is run, with its folder to import from."""
    from importlib.util import module_from_spec, spec_from_file_location

    from hatchway.statecharts.chart import Chart, ChartFault

    spec = spec_from_file_location(path.stem, path)
    if path.suffix != ".py" or not path.is_file() or spec is None or spec.loader is None:
        raise click.BadParameter(f"there is no Python file {path}", param_hint="NAME")
    module = module_from_spec(spec)
    sys.path.insert(0, str(path.parent.absolute()))
    sys.modules[path.stem] = module  # as an import would: dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except ChartFault as fault:
        raise click.ClickException(str(fault)) from None
    except (Exception, SystemExit) as error:
        raise click.ClickException(f"{path} can't be run: {type(error).__name__}: {error}") from None
    found = getattr(module, variable, None)
    if not isinstance(found, Chart):
        charts = [name for name, value in vars(module).items() if isinstance(value, Chart)]
        there = f"; it has {', '.join(charts)}" if charts else ""
        raise click.BadParameter(f"{path} has no chart named '{variable}'{there}", param_hint="NAME")
    return found
