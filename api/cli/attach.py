"""`hatchway engine attach`: the operator socket on standard input and output, for `hatchway open` at the other end.

The first line tells what is here; after it, each line is the operator socket's own. The command ends with either side.
"""

from __future__ import annotations

import json
import os
import select
import sys

import click

PROTOCOL = 1
"""What `hatchway open` and this command understand of each other; raised where an older end could not go on."""


@click.command(epilog="\b\nExample:\n  ssh HOST hatchway engine attach")
def attach() -> None:
    """Speak the operator socket's lines on standard input and output, as `hatchway open` does over ssh."""
    from hatchway.api.client.operator import operator_line
    from hatchway.engine.base.errors import Refusal
    from hatchway.engine.base.version import installed_version
    from hatchway.engine.settings.settings import home_folder

    try:
        home = home_folder()
        _say({"event": "attached", "protocol": PROTOCOL, "version": installed_version(), "home": str(home)})
        with operator_line(home) as line:
            line.socket.settimeout(None)
            _relay(line.fileno())
    except Refusal as refused:
        _say({"error": {"code": refused.code, "detail": refused.detail}})
        raise SystemExit(1) from None


def _say(message: dict[str, object]) -> None:
    os.write(sys.stdout.fileno(), json.dumps(message).encode() + b"\n")


def _relay(engine: int) -> None:
    """Bytes both ways until one side ends. What a peer is slow to take waits in the kernel, and then here."""
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
