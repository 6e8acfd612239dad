"""What a run needs of this machine, looked for before it begins, and the command that installs what isn't there."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from tests.bench.peers.install import Peers


class Lack(NamedTuple):
    """Something that isn't here: its name, the parts of the bench that need it, and the command that installs it."""

    name: str
    parts: tuple[str, ...]
    command: str


TOOLS = (
    Lack("wrk", ("endpoints", "workers"), "apt-get install wrk"),
    Lack("redis-server", ("fleet",), "apt-get install redis-server"),
    Lack("node", ("steps", "endpoints"), "apt-get install nodejs"),
    Lack("npm", ("steps", "endpoints"), "apt-get install npm"),
)
"""Programs. Without node and npm there are no peers that run on it."""

OF_PEERS = ("node", "npm")

INSTALL = "python -m tests.bench --install"


def lacking(parts: Collection[str], cache: Path | None) -> list[Lack]:
    """What the parts need and this machine lacks. Without a cache no peers are wanted, nor what they run on."""
    needed = [tool for tool in TOOLS if cache is not None or tool.name not in OF_PEERS]
    found = [tool for tool in needed if shutil.which(tool.name) is None]
    if cache is not None:
        for name in Peers.found(cache).missing():
            found.append(Lack(name, ("steps",) if name == "xstate" else ("endpoints",), INSTALL))
    return [lack for lack in found if not set(parts).isdisjoint(lack.parts)]


def in_words(lacks: Collection[Lack]) -> str:
    """What to do about it, a line each."""
    by_command: dict[str, list[str]] = {}
    for lack in lacks:
        by_command.setdefault(lack.command, []).append(lack.name)
    lines = ["this machine lacks what the bench needs (--without-peers leaves the peers out, PART asks for less):"]
    return "\n".join(lines + [f"  {', '.join(names)}: {command}" for command, names in by_command.items()])
