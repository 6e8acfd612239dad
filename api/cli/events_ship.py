"""`hatchway events ship`: hands records on to a target, in a process of its own (see `api.ship`)."""

from __future__ import annotations

import sys
from collections.abc import Set
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hatchway.api.cli.events import CHARTS

if TYPE_CHECKING:
    from hatchway.api.ship.records import Choice
    from hatchway.api.ship.targets import Target

UNIT = """\
[Unit]
Description=Hatchway: records to {target}
After=network-online.target
Wants=network-online.target

[Service]
ExecStart={command}
Environment=HATCHWAY_HOME={home}
Restart=always
RestartSec=5
UMask=0077
NoNewPrivileges=yes
LimitCORE=0

[Install]
WantedBy=default.target
"""


@click.command(
    "ship",
    epilog="""\b
Targets:
  syslog+tls://HOST[:6514]      RFC 5424 over TLS         syslog+tcp://HOST[:601]   in clear
  otlp+https://HOST[/v1/logs]   OpenTelemetry logs        https://HOST/PATH         Standard Webhooks
  file:///PATH                  lines of JSON

\b
Examples:
  hatchway events ship syslog+tls://logs.example.net
  hatchway events ship https://hooks.example.net/in --secret hook.secret --new-address
  hatchway events ship otlp+https://collector.example.net --kind refusal --chart session
  hatchway events ship syslog+tls://logs.example.net --unit > ~/.config/systemd/user/hatchway-syslog.service""",
)
@click.argument("target", metavar="TARGET")
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(["transition", "refusal", "notice"]), help="Only these."
)
@click.option("--chart", "charts", multiple=True, type=click.Choice(CHARTS), help="Only records of these charts.")
@click.option("--event", "events", multiple=True, help="Only these events: start, or session.start.")
@click.option("--new-address", is_flag=True, help="Only sign-ins from an address that is new for their identity.")
@click.option("--ca", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Whom to trust, PEM.")
@click.option(
    "--cert",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Certificate and key to show to the target, PEM.",
)
@click.option(
    "--secret", type=click.Path(dir_okay=False, path_type=Path), help="File of a webhook's secret; made if absent."
)
@click.option("--from-now", is_flag=True, help="Begin with what happens from now on. Default: with all there is.")
@click.option("--once", is_flag=True, help="End when all that is there was handed on.")
@click.option("--unit", is_flag=True, help="Print a systemd unit that runs this.")
def ship(
    target: str,
    kinds: tuple[str, ...],
    charts: tuple[str, ...],
    events: tuple[str, ...],
    new_address: bool,
    ca: Path | None,
    cert: Path | None,
    secret: Path | None,
    from_now: bool,
    once: bool,
    unit: bool,
) -> None:
    """Hand records on to TARGET.

    In order and at least once each, from where it left off, until it is ended.
    """
    from hatchway.api.ship.records import Choice
    from hatchway.api.ship.targets import Options, target_of
    from hatchway.engine.base.clock import SystemClock

    made = target_of(target, Options(SystemClock(), ca, _secret(secret) if secret else b"", cert))
    if unit:
        _print_unit(target, {path for path in (ca, cert, secret) if path is not None})
        return
    _run(target, Choice(kinds, charts, events, new_address), made, from_now=from_now, once=once)


def _run(name: str, choice: Choice, target: Target, *, from_now: bool, once: bool) -> None:
    import signal
    from threading import Event

    from hatchway.api.ship.shipper import Shipper
    from hatchway.engine.base.clock import SystemClock
    from hatchway.engine.base.file_locks import LockHeld, locked
    from hatchway.engine.base.files import make_private_dir
    from hatchway.engine.journal.files import last_seq
    from hatchway.engine.journal.logs import set_up_logs
    from hatchway.engine.journal.shipments import path_of
    from hatchway.engine.settings.settings import LogSettings, home_folder

    home, stop, clock = home_folder(), Event(), SystemClock()
    set_up_logs(LogSettings())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    path = path_of(home, name, choice.text)
    make_private_dir(path.parent)
    try:
        with locked(path.with_suffix(".lock"), wait=False):
            shipper = Shipper(home, name, target, choice, clock)
            if from_now:
                shipper.begin_now(last_seq(home / "log"))
            shipper.run(stop, once=once)
    except LockHeld:
        from hatchway.api.cli.failures import Failed

        raise Failed("records are handed on to this target already, by another process") from None


def _secret(path: Path) -> bytes:
    from hatchway.api.cli.printing import note
    from hatchway.api.ship.targets import read_secret

    if not path.exists():
        note(f"a secret is made in {path}: give it to whoever receives the webhooks")
    return read_secret(path)


def _print_unit(target: str, paths: Set[Path]) -> None:
    """Print a unit that runs this command. Systemd starts it in another folder, so `paths` are made absolute in it."""
    from hatchway.api.cli.unit import own_command, quoted
    from hatchway.engine.journal.shipments import shown
    from hatchway.engine.settings.settings import home_folder

    def absolute(argument: str) -> str:
        option, sign, value = argument.partition("=") if argument.startswith("--") else ("", "", argument)
        return f"{option}{sign}{Path(value).absolute()}" if Path(value) in paths else argument

    asked = [absolute(argument) for argument in sys.argv[1:] if argument != "--unit"]
    command = " ".join(map(quoted, (*own_command(), *asked)))
    click.echo(UNIT.format(target=shown(target).replace("%", "%%"), command=command, home=home_folder()), nl=False)
