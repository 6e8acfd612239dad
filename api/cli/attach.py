"""`hatchway engine attach`: the operator socket on standard input and output, for `hatchway open` at the other end.

The first line tells what is here; after it, each line is the operator socket's own. The command ends with either side.
"""

from __future__ import annotations

import json
import os
import select
import sys
from pathlib import Path

import click


@click.command(
    epilog="""\b
Examples:
  hatchway engine attach                 the operator socket's lines on standard input and output
  hatchway engine attach --start         as `hatchway open HOST` runs it by ssh"""
)
@click.option("--start", is_flag=True, help="Start an engine first where none runs; by a setting, or without a port.")
@click.option("--listen", type=click.Choice(["tcp", "unix", "both"]), default="unix", help="What it listens on then.")
def attach(start: bool, listen: str) -> None:
    """Speak with the engine by lines, for `hatchway open`."""
    from hatchway.api.client.operator import ATTACH_PROTOCOL, operator_line, runs
    from hatchway.engine.base.errors import Refusal
    from hatchway.engine.base.version import installed_version
    from hatchway.engine.settings.settings import home_folder

    try:
        home = home_folder()
        told = {"protocol": ATTACH_PROTOCOL, "version": installed_version(), "home": str(home), "started": False}
        if start and not runs(home):
            _start(home, listen)
            told["started"] = True
        with operator_line(home) as line:
            _say({"event": "attached"} | told)
            line.socket.settimeout(None)
            _relay(line.fileno())
    except Refusal as refused:
        _say({"error": {"code": refused.code, "detail": refused.detail}})
        raise SystemExit(1) from None
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _say({"error": {"code": "file_refused", "detail": f"{where}{error.strerror or error}"}})
        raise SystemExit(1) from None


def _start(home: Path, listen: str) -> None:
    """An engine that outlives the connection. What `listen` says stands behind the setting of that name."""
    from hatchway.api.client.operator import runs
    from hatchway.api.host.detached import start_detached
    from hatchway.engine.settings.sources import read_config, read_environment

    is_set = "listen" in read_config(home) | read_environment(os.environ)
    # Another user's engine may have the default port; whoever attaches asks where this one listens.
    flags = () if is_set else ("--listen", listen) if listen == "unix" else ("--listen", listen, "--port", "0")
    start_detached(home, flags, runs)


def _say(message: dict[str, object]) -> None:
    os.write(sys.stdout.fileno(), json.dumps(message).encode() + b"\n")


def _relay(engine: int) -> None:
    """Pass bytes both ways until one side ends."""
    to_us, from_us = sys.stdin.fileno(), sys.stdout.fileno()
    while True:
        ready, _, _ = select.select([to_us, engine], [], [])
        for source, target in ((to_us, engine), (engine, from_us)):
            if source in ready:
                data = os.read(source, 65536)
                if not data:
                    return
                while data:
                    data = data[os.write(target, data) :]
