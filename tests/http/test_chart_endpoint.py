"""`GET /api/charts/{name}/`: the charts as the console draws them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hatchway.api.http.app import make_app
from tests.support.fakes import Browser, sign_in, virtual_engine

pytestmark = pytest.mark.virtual_time


async def test_a_chart_is_drawn_for_the_console(home: Path) -> None:
    """`GET /api/charts/{name}/` gives each chart with its layout to any session; an unknown name is 404."""
    async with virtual_engine(home) as engine:
        await look(Browser(make_app(engine)))


async def look(browser: Browser) -> None:
    token = (await sign_in(browser))["token"]
    for name in ("pairing", "session", "instance"):
        reply = await browser.get(f"/api/charts/{name}/", token=token)
        assert (reply.status, reply.json()["name"]) == (200, name)
        assert all(row["points"] for row in reply.json()["rows"])
    reply = await browser.get("/api/charts/lamp/", token=token)
    assert (reply.status, reply.json()["code"]) == (404, "not_found")
    assert (await browser.get("/api/charts/session/")).status == 401
