"""An engine that joins a large fleet: it answers before it has all of the fleet's sessions in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from hatchway.api.http.app import make_app
from hatchway.engine.base.errors import TokenRefused
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.engine import Engine, open_engine
from hatchway.engine.runtime.records import NOBODY
from hatchway.engine.sessions import sessions
from hatchway.engine.settings.settings import Settings
from hatchway.engine.store.protocol import Stored
from hatchway.engine.store.redis import RedisStore
from tests.support.fakes import Browser, key
from tests.support.processes import prepare
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.redis


@asynccontextmanager
async def opened(folder: Path, name: str, server: RedisServer) -> AsyncIterator[Engine]:
    """An engine of the fleet, in this process."""
    settings = Settings(store=server.url, keys=str(folder / "keys"))
    async with open_engine(folder / name, lambda: settings) as engine:
        assert engine.fleet is not None
        await engine.fleet.wait_fresh()
        yield engine


async def token_at(engine: Engine) -> str:
    """The token of a new session of this engine, by pairing."""
    start = engine.sessions.start("pairing", "SHA256:somebody", FIVE, 3600, proof="approval", origin=NOBODY)
    return (await start).token


async def test_it_answers_before_it_has_them_all(
    tmp_path: Path, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session is found when somebody comes with its token, ends at its owner's word and at another's, and is none
    where it has ended. Lists and whatever needs all sessions wait, and say so; then all are here."""
    page, come = RedisStore.page, trio.Event()

    async def late(store: RedisStore, chart: str, cursor: int) -> tuple[int, dict[str, Stored]]:
        await come.wait()
        return await page(store, chart, cursor)

    prepare(tmp_path / "keys")
    async with opened(tmp_path, "a", redis) as a:
        assert a.fleet is not None
        await a.fleet.wait_whole()
        monkeypatch.setattr(RedisStore, "page", late)
        monkeypatch.setattr(sessions, "LIST_PATIENCE", 0.05)
        mine, left, revoked, over = [await token_at(a) for _ in range(4)]
        await a.sessions.end(over, "revoked")
        async with opened(tmp_path, "b", redis) as b:
            assert b.fleet is not None
            browser = Browser(make_app(b))
            assert (await browser.get("/api/auth/inspect/", token=mine)).status == 200
            assert (await browser.get("/api/auth/inspect/", token=over)).status == 401
            assert (await browser.post("/api/auth/logout/", {}, token=left)).status == 204
            name = a.sessions.name_of(revoked)
            assert (await browser.ask("DELETE", f"/api/auth/sessions/{name}/", token=mine)).status == 204
            refused = await browser.get("/api/auth/sessions/", token=mine)
            assert refused.status == 503
            assert b"still reads the fleet's sessions" in refused.body
            assert "retry-after" in refused.headers
            come.set()
            await b.fleet.wait_whole()
            listed = await browser.get("/api/auth/sessions/", token=mine)
            assert [one["session"] for one in listed.json()["sessions"]] == [a.sessions.name_of(mine)]
            assert b.metrics.counts()["session", "active"] == 1
            for token in (left, revoked):
                with pytest.raises(TokenRefused):
                    b.sessions.authenticate(token)


async def test_keys_that_were_taken_out_before(tmp_path: Path, redis: RedisServer) -> None:
    """Their sessions end once the engine has all sessions, and before that let nobody in."""
    prepare(tmp_path / "keys")
    async with opened(tmp_path, "a", redis) as a:
        a.keys.register(key().public, FIVE, "one")
        start = a.sessions.start("key", key().identity, FIVE, 3600, proof="signature", origin=NOBODY)
        token = (await start).token
    lines = (tmp_path / "keys/authorized_keys").read_bytes().splitlines(keepends=True)
    (tmp_path / "keys/authorized_keys").write_bytes(
        b"".join(line for line in lines if not line.rstrip().endswith(b" one"))
    )
    async with opened(tmp_path, "b", redis) as b:
        assert b.fleet is not None
        with pytest.raises(TokenRefused):
            b.sessions.authenticate(token)
        with trio.fail_after(20):
            while await b.fleet.store.live("session") or any(b.runtime.actors("session")):
                await trio.sleep(0.01)
