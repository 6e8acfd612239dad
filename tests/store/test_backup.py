"""A backup that was taken as the handbook says makes an engine that knows its keys and sessions."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.support.processes import running_engine, sign_in

INSPECT = "/api/auth/inspect/"


@pytest.mark.process
def test_a_backup_of_a_running_engine(home: Path, tmp_path: Path) -> None:
    """All but `engine.db*` copied, the database by SQLite's own backup: put back, it takes the token of before."""
    copy = tmp_path / "copy"
    with running_engine(home) as engine, httpx.Client(base_url=engine.url) as client:
        bearer = {"Authorization": f"Bearer {sign_in(client)['token']}"}
        shutil.copytree(home, copy, ignore=shutil.ignore_patterns("engine.db*", "*.sock"))
        copy.chmod(0o700)
        (copy / "engine.db").touch(0o600)
        with closing(sqlite3.connect(home / "engine.db")) as live, closing(sqlite3.connect(copy / "engine.db")) as made:
            live.backup(made)  # what `.backup` calls
        before = client.get(INSPECT, headers=bearer).json()
    with running_engine(copy) as engine, httpx.Client(base_url=engine.url) as client:
        assert client.get(INSPECT, headers=bearer).json() == before
