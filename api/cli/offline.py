"""What a command does to the store itself while no engine runs."""

from __future__ import annotations

import os
from pathlib import Path

import trio

from hatchway.engine.engine import open_engine
from hatchway.engine.journal.logs import set_up_logs
from hatchway.engine.settings.settings import LogSettings
from hatchway.engine.settings.sources import load_settings


def end_sessions_of(home: Path, identities: set[str]) -> int:
    """End every stored session of these identities; how many there were. Raises EngineUnavailable if one is running."""
    set_up_logs(LogSettings(level="warning"))  # standard output is the command's

    async def end() -> int:
        async with open_engine(home, lambda: load_settings(home, os.environ, {}), run=False) as engine:
            # A key that is out of authorized_keys already has lost its sessions as the store was opened.
            return engine.orphans_ended + await engine.sessions.end_all_of(identities)

    return trio.run(end)
