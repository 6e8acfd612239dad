"""What a run needs of this machine, looked for before it begins, and the command that installs what isn't there."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from tests.bench.peers.install import Peers
from tests.bench.streams import files_for


class Lack(NamedTuple):
    """Something that isn't here: its name, the parts of the bench that need it, and the command that installs it."""

    name: str
    parts: tuple[str, ...]
    command: str


TOOLS = (
    Lack("wrk", ("endpoints", "workers"), "apt-get install wrk"),
    Lack("taskset", ("endpoints", "workers"), "apt-get install util-linux"),
    Lack("redis-server", ("fleet",), "apt-get install redis-server"),
    Lack("node", ("steps", "endpoints"), "apt-get install nodejs"),
    Lack("npm", ("steps", "endpoints"), "apt-get install npm"),
)
"""Programs. Without node and npm there are no peers that run on it."""

OF_PEERS = ("node", "npm")

INSTALL = "python -m tests.bench --install"


def lacking(parts: Collection[str], cache: Path | None, size: float = 1.0) -> list[Lack]:
    """What the parts need and this machine lacks, at the `size` of a plan. Without a cache no peers are wanted, nor
    what they run on."""
    needed = [tool for tool in TOOLS if cache is not None or tool.name not in OF_PEERS]
    found = [tool for tool in needed if shutil.which(tool.name) is None]
    if cache is not None:
        for name in Peers.found(cache).missing():
            found.append(Lack(name, ("steps",) if name == "xstate" else ("endpoints",), INSTALL))
    files, most = files_for(size), resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most != resource.RLIM_INFINITY and most < files:
        found.append(
            Lack(f"{files:,} open files ({most:,} are allowed)", ("streams",), f"ulimit -Hn {files} (as root)")
        )
    return [lack for lack in found if not set(parts).isdisjoint(lack.parts)]


def in_words(lacks: Collection[Lack]) -> str:
    """What to do about it, a line each."""
    by_command: dict[str, list[str]] = {}
    for lack in lacks:
        by_command.setdefault(lack.command, []).append(lack.name)
    lines = ["this machine lacks what the bench needs (--without-peers leaves the peers out, PART asks for less):"]
    return "\n".join(lines + [f"  {', '.join(names)}: {command}" for command, names in by_command.items()])


def cores_in_words(parts: Collection[str], cores: int) -> list[str]:
    """What a machine with so few cores can't show, a sentence each."""
    words = []
    if cores < 2:
        words.append("this machine has one core, which servers share with their load: only ratios of CPU time hold")
    if cores < 4 and "workers" in parts:
        words.append(
            f"of this machine's cores ({cores}) the load takes one: what workers bring on four or more isn't shown"
        )
    return words
