"""The watcher of every journal that a test leaves behind: it must check, line by line, head by head."""

from __future__ import annotations

from pathlib import Path

from hatchway.engine.journal.check import check_folder
from hatchway.engine.journal.files import segments
from hatchway.engine.journal.findings import Findings
from hatchway.engine.journal.heads import KEYS, read_keys


def check_journal(home: Path) -> Findings | None:
    """What a check of the journal in that engine's folder finds; None where a test has left none. Raises BadLine."""
    try:
        keys = read_keys((home / KEYS).read_bytes())
        if segments(home / "log"):
            return check_folder(home / "log", keys)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    return None
