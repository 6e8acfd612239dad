"""`hatchway engine unit`: a systemd unit for this host's engine (systemd.service(5))."""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path

import click

from hatchway.engine.base.version import installed_command

TEXT = """\
# {place}
[Unit]
Description=Hatchway engine
{network}
[Service]
Type=notify
ExecStart={command} engine start
ExecReload=/bin/kill -HUP $MAINPID
{environment}Restart=on-failure
RestartSec=5
# A stop that a write holds up for 15 seconds ends by this signal, and is a stop all the same.
SuccessExitStatus=SIGALRM
WatchdogSec=30
TimeoutStopSec=30
# Only the engine is stopped: its instances, and the commands in them, outlive a restart.
KillMode=process
# Limits of instances need a part of the cgroup tree that is ours.
Delegate=yes
# An instance that takes all memory must not take the engine with it.
OOMPolicy=continue
# Keys are in memory: no dump of it, no file that others may read.
LimitCORE=0
UMask=0077
LimitNOFILE=8192
{system}# Not set, since containers could not start under them: NoNewPrivileges and all that imply it
# (SystemCallFilter, Restrict..., Protect{{Clock,Hostname,KernelLogs,KernelModules}}, LockPersonality), PrivateUsers,
# PrivateDevices, PrivateTmp, ProtectHome, ProtectKernelTunables, ProtectControlGroups, ProtectProc.

[Install]
WantedBy={wanted}
"""


@click.command(
    epilog="""\b
Examples:
  hatchway engine unit > ~/.config/systemd/user/hatchway.service
  systemctl --user enable --now hatchway && loginctl enable-linger
  hatchway engine unit --system --user runner | sudo tee /etc/systemd/system/hatchway.service"""
)
@click.option("--system", is_flag=True, help="A unit of the system, not of your own service manager.")
@click.option("--user", help="With --system: the user that the engine runs as. Default: you.")
def unit(system: bool, user: str | None) -> None:
    """Print a systemd unit that runs the engine of this host."""
    from hatchway.engine.settings.settings import home_folder

    if user and not system:
        raise click.UsageError("--user goes with --system: a unit of your own runs as you")
    home = os.environ.get("HATCHWAY_HOME")
    name = user or _own_name()
    if system and (closed := _closed_to(name)) is not None:
        click.echo(
            f"the user {name} may not enter {closed}, where this program is: install it for everybody, such as in"
            " /opt/hatchway, and print the unit by that",
            err=True,
        )
    click.echo(
        TEXT.format(
            place=("/etc/systemd/system" if system else "~/.config/systemd/user") + "/hatchway.service",
            command=" ".join(map(quoted, own_command())),
            environment=f"Environment={quoted(f'HATCHWAY_HOME={home_folder()}')}\n" if home else "",
            system=f"User={quoted(name)}\nProtectSystem=full\n" if system else "",
            network="Wants=network-online.target\nAfter=network-online.target\n" if system else "",
            wanted="multi-user.target" if system else "default.target",
        ),
        nl=False,
    )


def _own_name() -> str:
    """The user's name; one that has none, as in many a container, is known by number (systemd.exec(5))."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _closed_to(name: str) -> str | None:
    """A folder or file on the way to this program that the user of that name may not enter or run, by its mode."""
    try:
        user = pwd.getpwnam(name)
    except KeyError:  # a number alone, or a user that is yet to be made
        return None
    groups = os.getgrouplist(name, user.pw_gid)
    programs = Path(own_command()[0]), Path(sys.executable).resolve()
    for path in (one for program in programs for one in (*reversed(program.parents), program)):
        found = path.stat()
        right = 0o100 if found.st_uid == user.pw_uid else 0o010 if found.st_gid in groups else 0o001
        if user.pw_uid and not found.st_mode & right:
            return str(path)
    return None


def own_command() -> list[str]:
    """The command as it is installed beside this Python, or this Python with our own entry point."""
    installed = installed_command()
    if installed is not None:
        return [str(installed)]
    return [sys.executable, "-c", "from hatchway.api.cli import main; main()"]


def quoted(word: str) -> str:
    """One word of a unit's line: `%` and `$` mean something to systemd, as do quotes and backslashes."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if escaped != word or not word.isascii() or set(word) & set(" ;'\t") else word
