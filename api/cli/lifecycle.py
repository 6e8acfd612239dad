"""`hatchway engine start | stop | status | reload`: the life of this host's engine."""

from __future__ import annotations

import os
import time
from typing import Any

import click

from hatchway.api.cli.groups import json_option

STOP_WAIT = 20.0
"""Seconds that `engine stop` waits for the end of the engine."""

PROBE_WAIT = 0.1
"""Seconds in which an engine has found out whether its store takes changes, on a disk that is not busy."""


@click.command(
    epilog="""\b
Examples:
  hatchway engine start
  hatchway engine start --port 0                         any free port; `engine status` tells which
  hatchway engine start --host 0.0.0.0 --tls auto        with a self-signed certificate
  hatchway engine start --detach                         returns; the engine goes on
  hatchway engine start --workers 4                      more cores for inspect and sign-in
  hatchway engine start --host 0.0.0.0 --tls-cert /etc/engine.pem --tls-key /etc/engine.key"""
)
@click.option("--host", help="Address to listen on. Default 127.0.0.1; any other wants TLS.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on. Default 7420; 0 is any free one.")
@click.option(
    "--listen",
    type=click.Choice(["tcp", "unix", "both"]),
    help="unix: no port, HTTP on http.sock in the engine's folder, for its own user. Default tcp.",
)
@click.option("--tls", type=click.Choice(["off", "auto"]), help="auto: make a self-signed certificate.")
@click.option("--tls-cert", type=click.Path(dir_okay=False), help="Certificate chain, PEM.")
@click.option("--tls-key", type=click.Path(dir_okay=False), help="The certificate's key, PEM.")
@click.option("--workers", type=click.IntRange(1, 256), help="Worker processes that share the port. Default 1: none.")
@click.option("--detach", is_flag=True, help="Return once it answers; it goes on without this terminal or login.")
@click.option("--insecure-http", is_flag=True, default=None, help="Plain HTTP on an address others reach.")
def start(detach: bool, **flags: Any) -> None:
    """Run the engine, until Ctrl-C or `hatchway engine stop`."""
    if detach:
        _detach(flags)
        return
    from hatchway.engine.base.memory import loading

    with loading():
        from hatchway.engine.settings.settings import Settings, check_listening, home_folder
        from hatchway.engine.settings.sources import load_settings

    given = {name: _absolute(flags[name]) if name in ("tls_cert", "tls_key") else flags[name] for name in flags}
    home = home_folder()

    def load() -> Settings:
        settings = load_settings(home, os.environ, given)
        check_listening(settings)
        return settings

    settings = load()
    with loading():
        import trio

        from hatchway.api.cli.busy import busy
        from hatchway.api.host.run import run_engine
        from hatchway.engine.engine import make_own_key_ahead

    if not (home / "private-key.pem").exists():
        with busy("making the engine's own key, once"):
            make_own_key_ahead(home, settings)
    trio.run(run_engine, home, load)


def _detach(flags: dict[str, Any]) -> None:
    from hatchway.api.client.operator import ask, runs
    from hatchway.api.host.detached import LOG, start_detached
    from hatchway.engine.base.errors import EngineUnavailable
    from hatchway.engine.settings.settings import home_folder

    home = home_folder()
    if runs(home):
        raise EngineUnavailable(f"an engine runs on {home} already")
    flags |= {name: _absolute(flags[name]) for name in ("tls_cert", "tls_key")}
    given = [(f"--{name.replace('_', '-')}", value) for name, value in flags.items() if value is not None]
    words = [part for name, value in given for part in ((name,) if value is True else (name, str(value)))]
    start_detached(home, tuple(words), runs)
    told = ask(home, "status")
    click.echo(f"started at {told['url'] or told['socket']}; it writes to {home / LOG}")


def _absolute(path: str | None) -> str | None:
    from hatchway.api.cli.host import given_path

    return None if path is None else given_path(path)


@click.command(epilog="\b\nExample:\n  hatchway engine stop")
def stop() -> None:
    """Stop the running engine, and wait until it is gone. Sessions outlive it."""
    from hatchway.api.client.operator import ask
    from hatchway.engine.base.errors import EngineUnavailable
    from hatchway.engine.base.file_locks import LockHeld, locked
    from hatchway.engine.settings.settings import home_folder

    home = home_folder()
    ask(home, "stop")
    until = time.monotonic() + STOP_WAIT
    while time.monotonic() < until:
        try:
            with locked(home / "engine.lock", wait=False):
                click.echo("stopped")
                return
        except LockHeld:
            time.sleep(0.05)
    raise EngineUnavailable(f"the engine on {home} was asked to stop and is still there")


@click.command(epilog="\b\nExamples:\n  hatchway engine status\n  hatchway engine status --json | jq -r .url")
@json_option
def status(as_json: bool) -> None:
    """Show the running engine: address, uptime, what is live."""
    from hatchway.api.cli.printing import print_facts, print_json
    from hatchway.api.client.operator import ask
    from hatchway.engine.settings.settings import home_folder

    told = ask(home_folder(), "status")
    if told.get("ready"):
        # The question has an idle engine try whether its store takes changes: a second one hears how that went.
        time.sleep(PROBE_WAIT)
        told = ask(home_folder(), "status")
    told.pop("ok", None)
    if as_json:
        print_json(told)
    else:
        if told.get("not_ready") is None:
            told.pop("not_ready", None)  # an engine of before does not tell it
        print_facts({name.replace("_", " "): _shown(name, value) for name, value in told.items()})


def _shown(name: str, value: Any) -> object:
    from hatchway.api.cli.printing import moment, size, span

    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith(("_at", "_expiry")) and isinstance(value, (int, float)):
        return moment(value)
    if name == "uptime":
        return span(value)
    if name.endswith("_bytes"):
        return size(value)
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else value


@click.command(epilog="\b\nExample:\n  hatchway config set max_instances 8 && hatchway engine reload")
def reload() -> None:
    """Have the running engine read its settings anew.

    Keys, license and certificate too; SIGHUP does the same.
    """
    from hatchway.api.cli.printing import note
    from hatchway.api.client.operator import ask
    from hatchway.engine.settings.settings import home_folder

    told = ask(home_folder(), "reload")
    click.echo("reloaded")
    for name in told.get("restart_needed_for", ()):
        note(f"{name} takes effect at the next start")
