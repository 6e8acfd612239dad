"""Heads go where nobody with rights on the engine's host can take them back: to a target, to a fleet's neighbours."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from hatchway.engine.journal.heads import HEADS, heads_in
from tests.support.command import run as run_command
from tests.support.fleet import fleet
from tests.support.processes import EngineProcess, running_engine, sign_in
from tests.support.redis_server import RedisServer
from tests.support.waits import until

pytestmark = pytest.mark.process


def cut(engine: EngineProcess) -> None:
    """The last records go, with the heads that tell of them, by somebody who may write there."""
    path = engine.home / "log" / "events.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))
    kept = [head for head in heads_in(engine.home / "log") if json.loads(decoded(head))["seq"] <= 3]
    (engine.home / "log" / HEADS).write_text("".join(f"{head}\n" for head in kept))


def decoded(head: str) -> bytes:
    import base64

    payload = head.split(".")[1]
    return base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))


def test_a_setting_sends_them_on(home: Path, tmp_path: Path) -> None:
    """`heads_to`: each goes there, the stop's too; a cut that the host no longer shows is seen by it."""
    kept = tmp_path / "kept"
    with running_engine(home, HATCHWAY_HEADS_TO=f"file://{kept}") as engine:
        with httpx.Client(base_url=engine.url) as client:
            for _ in range(4):
                sign_in(client)
        engine.command("events", "head")
        until(kept.exists, what="a head came")
        with httpx.Client(base_url=engine.url) as client:
            sign_in(client)
        engine.terminate()
        told = [json.loads(line) for line in kept.read_text().splitlines()]
        assert [one["cause"] for one in told] == ["asked", "stop"]
        assert engine.command("events", "check", "--head", told[-1]["head"])
        whole = (engine.home / "log" / "events.jsonl").read_bytes(), (engine.home / "log" / HEADS).read_text()
        cut(engine)
        told_why = json.loads(engine.command("events", "check", "--json", "--head", str(kept), code=1))["fault"]["why"]
        assert "its end is cut off" in told_why
        (engine.home / "log" / "events.jsonl").write_bytes(whole[0])
        (engine.home / "log" / HEADS).write_text(whole[1])
        until(lambda: "journal_head" in engine.log(), what="the log")
        assert told[-1]["head"] in engine.log()


def test_an_address_that_is_none_is_refused() -> None:
    """As the setting is set."""
    assert "a target such as" in run_command("config", "set", "heads_to", "ftp://x", code=1).stderr


@pytest.mark.redis
def test_neighbours_keep_each_others(redis: RedisServer, tmp_path: Path) -> None:
    """Each engine of a fleet has the heads of the other, and with them shows what was cut."""
    with fleet(tmp_path, redis.url, redis.url) as (one, two):
        with httpx.Client(base_url=one.url) as client:
            for _ in range(4):
                sign_in(client)
        head = one.command("events", "head").strip()
        folder = two.home / "log" / "witnessed"
        until(lambda: any(head in path.read_text() for path in folder.iterdir()), what="the other has it")
        (kept,) = folder.iterdir()
        assert kept.stat().st_mode & 0o077 == 0
        assert json.loads(one.command("events", "check", "--json", "--head", str(kept)))["witnessed"] == 5
