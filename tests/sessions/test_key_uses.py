"""When a key was registered and last used: kept in the store, written seldom, told to those who may see all keys."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio

from hatchway.api.http.app import make_app
from hatchway.engine.base.clock import TrioClock
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.engine import Engine
from hatchway.engine.keys.key_edits import edit
from hatchway.engine.store.protocol import Change
from tests.support.command import run
from tests.support.fakes import Browser, jump, key, sign_in, virtual_engine
from tests.support.fleet import fleet, signed_in
from tests.support.live_engine import command, live_engine, told
from tests.support.processes import EngineProcess
from tests.support.redis_server import RedisServer

EPOCH = 1_800_000_000


async def times(engine: Engine, *name: str) -> tuple[float | None, float | None]:
    """Of the key of this name, the usual one if none is given, by what is known now."""
    use = (await engine.key_uses.all()).get(key(*name).identity)
    return (None, None) if use is None else (use.registered_at, use.used_at)


@pytest.mark.virtual_time
async def test_a_use_is_written_once_a_minute_and_known_at_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a key is used: a write a minute at most, and the last use survives an engine that stops."""
    async with virtual_engine(home, clock := TrioClock()) as engine:
        written: list[float] = []
        commit = engine.store.commit

        async def counted(change: Change) -> None:
            if (change.chart, change.actor) == ("key", key("late").identity):
                written.append(trio.current_time())
            await commit(change)

        monkeypatch.setattr(engine.store, "commit", counted)
        engine.keys.register(key("late").public, FIVE)
        await trio.sleep(1.5)  # an engine sees a new key within a second
        assert await times(engine, "late") == (EPOCH + written[0], None)
        browser = Browser(make_app(engine))
        token = (await sign_in(browser, key("late")))["token"]
        assert (await times(engine, "late"))[1] == engine.clock.wall()
        for _ in range(600):
            await trio.sleep(1)
            assert (await browser.get("/api/auth/inspect/", token=token)).status == 200
        assert 10 <= len(written) <= 12
        assert all(later - one >= 60 for one, later in pairwise(written[1:]))
        used = engine.clock.wall()
        engine.stopping.set()
        await trio.sleep(1)
    async with virtual_engine(home, clock) as engine:
        await jump(1)
        assert await times(engine, "late") == (EPOCH + written[0], used)


@pytest.mark.virtual_time
async def test_keys_of_an_engine_that_noted_nothing(home: Path) -> None:
    """0.1.0 noted no key: of its keys it stays unknown when they were registered; a new key's time is known. It is so
    too where the store was moved away."""
    clock = TrioClock()
    async with virtual_engine(home, clock):
        await jump(2)
    with closing(sqlite3.connect(home / "engine.db")) as database, database:
        assert database.execute("DELETE FROM actors WHERE chart = 'key'").rowcount == 2
    for _ in range(2):
        async with virtual_engine(home, clock) as engine:
            await sign_in(Browser(make_app(engine)))
            await jump(2)
            assert await times(engine) == (None, engine.clock.wall() - 2)
            engine.keys.register(key("new").public, ("SHELL",))
            await jump(2)
            known = await engine.key_uses.all()
            assert known[key("own").identity].registered_at is None
            assert known[key("new").identity].registered_at is not None


@pytest.mark.virtual_time
async def test_a_key_is_known_from_its_first_use(home: Path) -> None:
    """It may sign in before the engine has noted that it came."""
    async with virtual_engine(home) as engine:
        await engine.key_uses.take_up()
        engine.keys.register(key("new").public, ("SHELL",))
        await sign_in(Browser(make_app(engine)), key("new"))
        used = engine.clock.wall()
        await engine.key_uses.write(everything=True)
        await jump(2)
        use = (await engine.key_uses.all())[key("new").identity]
        assert (use.registered_at, use.used_at) == (used, used)


@pytest.mark.virtual_time
async def test_master_lists_keys_in_pages(browser: Browser, engine: Engine) -> None:
    """What each may do and when it was used, in the order of identities; to nobody else."""
    for number in range(5):
        engine.keys.register(key(f"key {number}").public, ("SHELL",), f"key {number}")
    engine.keys.edit(lambda data: edit(data, "key 3", options={"instances": "4"}))
    await trio.sleep(1.5)
    assert (await browser.get("/api/auth/keys/", token=(await sign_in(browser))["token"])).status == 403
    token, rows, after = (await sign_in(browser, key("own")))["token"], [], ""
    while True:
        page = (await browser.get(f"/api/auth/keys/?limit=2&after={after}", token=token)).json()
        assert len(page["keys"]) <= 2
        rows += page["keys"]
        if "next" not in page:
            break
        after = page["next"]
    assert [row["identity"] for row in rows] == sorted(row["identity"] for row in rows)
    assert len(rows) == 7
    mine = next(row for row in rows if row["comment"] == "key 3")
    assert mine == {
        "identity": key("key 3").identity,
        "comment": "key 3",
        "permissions": ["SHELL"],
        "bits": 2048,
        "expires_at": None,
        "from": None,
        "instances": 4,
        "lifetime": None,
        "registered_at": mine["registered_at"],
        "used_at": None,
    }
    assert EPOCH <= mine["registered_at"] <= EPOCH + 2


@pytest.mark.process
async def test_key_list_tells_with_an_engine_and_without(home: Path, tmp_path: Path) -> None:
    """Registered at once, used at the sign-in; after the engine has ended its store tells; taken out and registered
    again, a key is new. authorized_keys holds nothing of it."""
    (tmp_path / "two.pub").write_bytes(key("two").public.pem())
    register = ("key", "register", str(tmp_path / "two.pub"))

    async def row() -> dict[str, Any]:
        return next(one for one in await told(home, "key", "list") if one["identity"] == key("two").identity)

    async with live_engine(home) as at:
        await told(home, *register)
        first = await row()
        assert abs(first["registered_at"] - at.engine.clock.wall()) < 30
        assert first["used_at"] is None
        browser = Browser(make_app(at.engine), host=at.url.partition("//")[2])
        await sign_in(browser, key("two"))
        assert (await row())["used_at"] >= first["registered_at"]
        at.engine.stopping.set()
        await trio.sleep(0.5)
    after = await row()
    assert (after["registered_at"], after["used_at"]) == (first["registered_at"], after["used_at"])
    assert after["used_at"] is not None
    assert b"REGISTERED" in (await command(home, "key", "list")).stdout
    await command(home, "key", "unregister", "two")
    await told(home, *register)
    again = await row()
    assert again["registered_at"] > first["registered_at"]
    assert again["used_at"] is None
    assert "regist" not in (home / "authorized_keys").read_text()


@pytest.mark.process
@pytest.mark.redis
def test_a_fleet_has_one_memory_of_its_keys(redis: RedisServer, tmp_path: Path) -> None:
    """A use at one engine is told at the other, and is the later of all."""

    def used(engine: EngineProcess) -> float:
        rows = json.loads(engine.command("key", "list", "--json"))
        return float(next(row["used_at"] or 0 for row in rows if row["identity"] == key().identity))

    with fleet(tmp_path, redis.url, redis.url) as (one, other):
        signed_in(one)
        at = used(one)
        assert at > 0
        one.terminate()
        assert used(other) == at
        time.sleep(max(0.0, at + 1 - time.time()))  # a use is told by the second
        signed_in(other)
        assert used(other) > at


@pytest.mark.usefixtures("command_folder")
def test_without_an_engine_that_ever_ran() -> None:
    """There is no store yet: the list has no times."""
    Path("two.pub").write_bytes(key("two").public.pem())
    run("key", "register", "two.pub")
    (row,) = json.loads(run("key", "list", "--json").stdout)
    assert (row["registered_at"], row["used_at"]) == (None, None)
