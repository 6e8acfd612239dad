"""`hatchway open HOST`: one command from this machine to a signed-in console on a host behind SSH."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from hatchway.api.cli.groups import json_option
from hatchway.api.cli.interruptions import ended_like_by_ctrl_c, undisturbed
from hatchway.api.cli.open_terminal import OpenTerminal, Steps
from hatchway.api.cli.pairing import operator_screen, permissions_option
from hatchway.api.cli.sign_in import lifetime_option

if TYPE_CHECKING:
    from hatchway.api.client.ssh.attached import NoCommand
    from hatchway.api.client.ssh.connection import SshConnection
    from hatchway.api.open.tunnel import Tunnel

AT_THIS_MACHINE = (
    "run it in a terminal of this machine, since it asks you there before a browser is signed in;"
    " programs sign in by a key: hatchway login --url ssh://{host} --key FILE"
)
"""What to do where `open` has no terminal."""


NO_CONNECTION = re.compile(r"-[46AaCgKkMNnqsTtvXxYy]*[fGOQVW]")
"""Options of ssh that put it into the background, or have it make no connection."""


class Choices(NamedTuple):
    """The command's flags that concern the host."""

    install: str
    python: str | None
    upgrade: bool
    stop: bool


def read_ssh_options(context: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    """Options that leave a connection in this command's hands."""
    for word in words:
        if NO_CONNECTION.match(word):
            raise click.BadParameter(f"ssh's {word} is not for a connection that stays here: leave it out")
    return words


def read_host(context: click.Context, parameter: click.Parameter, host: str) -> str:
    """Nothing that ssh could take for an option."""
    if host.startswith("-") or not host.strip() or not host.isprintable():
        raise click.BadParameter("a host is wanted, and ssh's own options after it: hatchway open HOST -- -p 2222")
    return host


@click.command(
    "open",
    epilog="""\b
Examples:
  hatchway open lab                            a Host of ~/.ssh/config, or USER@HOST
  hatchway open lab --permissions RUNTIME --lifetime 8h
  hatchway open lab --no-browser               prints the link, and a QR code of it
  hatchway open lab --stop                     Ctrl-C stops the engine too, if nobody else uses it
  hatchway open me@10.0.0.7 -- -p 2222 -J gate""",
)
@click.argument("host", metavar="[USER@]HOST", callback=read_host)
@click.argument("ssh_options", metavar="[-- SSH OPTIONS]", nargs=-1, type=click.UNPROCESSED, callback=read_ssh_options)
@permissions_option
@lifetime_option
@click.option("--no-browser", is_flag=True, help="Print the link and its QR code, and open no browser.")
@click.option("--local-port", type=click.IntRange(0, 65535), default=0, help="This machine's end. Default: a free one.")
@click.option(
    "--install",
    type=click.Choice(["ask", "yes", "no"]),
    default="ask",
    help="Whether to install Hatchway on a host without it, in ~/.hatchway/runtime. Default: ask.",
)
@click.option("--python", metavar="PATH", help="The Python 3.11 to 3.13 of the host to install with.")
@click.option("--upgrade", is_flag=True, help="Replace the version in the host's ~/.hatchway/runtime by this one.")
@click.option("--stop", is_flag=True, help="At the end stop the engine too, if nobody else uses it.")
@json_option
def open_command(
    host: str,
    ssh_options: tuple[str, ...],
    permissions: tuple[str, ...] | None,
    lifetime: str | None,
    no_browser: bool,
    local_port: int,
    as_json: bool,
    **choices: Any,
) -> None:
    """Open the console of an engine on a host behind SSH.

    It is started there if need be, a port is forwarded, and a browser signed in once you say yes. The tunnel stays
    open until Ctrl-C, and is dialled again where the network was lost.
    """
    from hatchway.api.cli.host import Here
    from hatchway.api.client.ssh.attached import Wanted
    from hatchway.api.client.ssh.connection import SshTarget
    from hatchway.api.open.near_end import NearEnd
    from hatchway.api.open.tunnel import Tunnel
    from hatchway.engine.base.durations import lifetime as lifetime_of

    settings = Here.settings_alone()
    wanted = Wanted(SshTarget(host, ssh_options, settings.ssh), settings.remote_command)
    steps = Steps(as_json)
    with operator_screen(AT_THIS_MACHINE.format(host=host)) as (answers, screen), ended_like_by_ctrl_c():
        near = NearEnd(local_port)
        tunnel = Tunnel(wanted, near)
        try:
            asked = {"permissions": permissions, "lifetime": lifetime_of(lifetime)[0]}
            terminal = OpenTerminal(answers, screen, tunnel, as_json, browser=not no_browser)
            _open(tunnel, steps, terminal, Choices(**choices), asked)
        finally:
            with undisturbed():
                tunnel.drop()
                near.close()


def _open(tunnel: Tunnel, steps: Steps, terminal: OpenTerminal, choices: Choices, asked: dict[str, Any]) -> None:
    signed_in = False
    try:
        _reach(tunnel, steps, terminal, choices)
        tunnel.attached.line.send(op="pair", **asked)
        signed_in = terminal.follow_over_ssh()
        if not signed_in:
            raise SystemExit(1)
        steps.say("signed in. The tunnel stays open; Ctrl-C closes it.", event="held", url=tunnel.url)
        tunnel.hold(steps.told)
    except KeyboardInterrupt:
        steps.say("\nclosed" if signed_in else "\nwithdrawn", event="closed")
        if not signed_in:
            raise SystemExit(1) from None
        if choices.stop:
            _stop(tunnel, steps)
    finally:
        if not signed_in:
            _undo(tunnel, steps)


def _reach(tunnel: Tunnel, steps: Steps, terminal: OpenTerminal, choices: Choices) -> None:
    """Connect, attach and forward, and show each as a step."""
    from hatchway.engine.base.text import counted
    from hatchway.engine.base.version import installed_version

    host = tunnel.wanted.host.target
    connection = tunnel.connect()
    _attach(tunnel, connection, steps, terminal, choices)
    hello, sessions = tunnel.attached.hello, tunnel.status["sessions"]
    verb = "was started" if hello.started else "runs"
    facts = {"version": hello.version, "sessions": sessions, "started": hello.started}
    steps.step(
        f"{host}: engine {hello.version} {verb}, {counted(sessions, 'session')}", event="attached", host=host, **facts
    )
    if hello.version != installed_version():
        steps.say(f"{host} has version {hello.version}, this machine {installed_version()}: going on", event="versions")
    tunnel.forward()
    steps.step(f"forwarding {tunnel.url}", event="forwarding", url=tunnel.url)


def _attach(tunnel: Tunnel, connection: SshConnection, steps: Steps, terminal: OpenTerminal, choices: Choices) -> None:
    """Attached to an engine that runs. Hatchway is installed where there is none, or another version is wanted."""
    from hatchway.api.client.ssh.attached import NoCommand

    try:
        tunnel.attach("--start", upgrade=choices.upgrade)
    except NoCommand as missing:
        _install(connection, missing, steps, terminal, choices)
        tunnel.attach("--start", upgrade=choices.upgrade)
    if choices.upgrade:
        _run_the_new(tunnel, connection, steps)


def _install(
    connection: SshConnection, missing: NoCommand, steps: Steps, terminal: OpenTerminal, choices: Choices
) -> None:
    import tempfile
    from pathlib import Path

    from hatchway.api.client.ssh.faults import SshFault
    from hatchway.api.open.install import fetch_wheels, find_python, install
    from hatchway.engine.base.version import installed_version

    host, version = connection.host.target, installed_version()
    if choices.install == "no":
        raise SshFault(f"{missing.detail}: install it there, or let this command do so (--install yes)")
    python = find_python(connection, choices.python)
    place = f"~/.hatchway/runtime/{version}"
    if choices.install == "ask" and not terminal.confirm(
        f"{missing.detail}. Install {version} in {place} there, with {python.path}? [y/N] "
    ):
        raise SshFault(f"{host}: nothing was installed; a hatchway elsewhere is named by the setting remote_command")
    with tempfile.TemporaryDirectory(prefix="hatchway-wheels-") as folder:
        wheels: Path | None = Path(folder)
        try:
            fetch_wheels(Path(folder), python)
        except SshFault as fault:
            steps.say(f"{fault.detail}; the host's own pip is asked", event="no_wheels")
            wheels = None
        else:
            steps.step(f"wheels for Python 3.{python.minor}, {python.machine}", event="fetched")
        install(connection, python, wheels)
    steps.step(f"installed {version} in {place}", event="installed", version=version, python=python.path)


def _run_the_new(tunnel: Tunnel, connection: SshConnection, steps: Steps) -> None:
    """The engine that runs is of the version that was installed, and no other version is left, unless it is in use."""
    from hatchway.api.open.install import remove_others
    from hatchway.engine.base.version import installed_version

    if tunnel.status["version"] != installed_version():
        in_use = tunnel.stop_engine(own_sessions=0)
        if in_use is not None:
            steps.say(f"version {tunnel.status['version']} goes on running: {in_use}", event="not_upgraded", why=in_use)
            return
        tunnel.attach("--start", upgrade=True)
    remove_others(connection)


def _stop(tunnel: Tunnel, steps: Steps) -> None:
    if _stopped(tunnel, steps, own_sessions=1):
        steps.say(f"the engine on {tunnel.wanted.host.target} was stopped", event="stopped")


def _stopped(tunnel: Tunnel, steps: Steps, own_sessions: int) -> bool:
    """Whether the engine was stopped; if it was not, it is said why."""
    in_use = tunnel.stop_engine(own_sessions=own_sessions)
    if in_use is not None:
        steps.say(f"the engine on {tunnel.wanted.host.target} goes on: {in_use}", event="not_stopped", why=in_use)
    return in_use is None


def _undo(tunnel: Tunnel, steps: Steps) -> None:
    """Stop the engine again that this command has started, unless somebody else uses it by now."""
    from hatchway.api.client.wire import ClientFault
    from hatchway.engine.base.errors import Refusal

    if tunnel.is_attached and tunnel.attached.hello.started:
        # Where the connection is lost, the engine stays, and the next `open` finds it.
        with undisturbed(), suppress(ClientFault, Refusal, OSError):
            _stopped(tunnel, steps, own_sessions=0)
