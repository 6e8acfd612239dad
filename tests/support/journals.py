"""A journal with the records that feed it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hatchway.engine.base.clock import TrioClock
from hatchway.engine.journal.journal import FileJournal
from hatchway.engine.runtime.records import Origin, Records


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    os.umask(0o077)
    return tmp_path / "log"


class Host:
    """A journal with the records that feed it, as an engine has them; `again` is the next engine's."""

    def __init__(self, folder: Path, clock: TrioClock | None = None) -> None:
        self.clock = clock or TrioClock()
        self.journal = FileJournal(folder, self.clock)
        self.records = Records(self.clock, self.journal, last_seq=self.journal.last_seq)
        self._folder = folder

    def tell(self, count: int = 1) -> None:
        for _ in range(count):
            self.records.transition(
                "pairing", "p1", "issue", "none", "issued", ("print_code",), Origin("operator", "127.0.0.1", "ab-1")
            )

    def again(self) -> Host:
        self.journal.close()
        return Host(self._folder, self.clock)
