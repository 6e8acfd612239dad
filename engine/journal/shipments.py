"""How far records have been handed on: one small file for each target, written by its process, told in `/metrics`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from hatchway.engine.base import files
from hatchway.engine.base.errors import FileRefused

FOLDER = "ship"
"""Name of the folder, within the engine's, that holds a file for each target."""


class Shipment(msgspec.Struct, frozen=True):
    """One target: up to which record it has everything that was chosen for it, and what went wrong last.

    `time` is that record's, `sent` counts what was handed on, `missed` what had left the journal before. Times in epoch
    seconds.
    """

    target: str
    seq: int = 0
    time: float = 0.0
    sent: int = 0
    missed: int = 0
    failures: int = 0
    error: str | None = None
    error_at: float | None = None


def shown(target: str) -> str:
    """A target without what may be secret in it: credentials, query."""
    parts = urlsplit(target)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def path_of(home: Path, target: str, choice: str) -> Path:
    """Where the position of a target is kept, for that choice of records."""
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", shown(target)).strip("-")[:80]
    return home / FOLDER / f"{name}-{sha256(f'{target} {choice}'.encode()).hexdigest()[:8]}.json"


def read(path: Path) -> Shipment | None:
    """What a file tells; None where there is none, or none that can be read."""
    try:
        return msgspec.json.decode(files.read_private(path), type=Shipment)
    except (OSError, FileRefused, msgspec.DecodeError):
        return None


def write(path: Path, shipment: Shipment) -> None:
    """Raises FileRefused."""
    files.write_private(path, msgspec.json.encode(shipment))


def all_of(home: Path) -> Iterator[Shipment]:
    """The shipment of every target."""
    for path in sorted((home / FOLDER).glob("*.json")):
        found = read(path)
        if found is not None:
            yield found
