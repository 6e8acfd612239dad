"""A browser that is signed in, at an engine with a real runtime."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from hatchway.api.http.app import make_app
from hatchway.engine.engine import open_engine
from hatchway.engine.settings.settings import Settings
from tests.support.containers import Place
from tests.support.fakes import Browser, Reply, sign_in
from tests.support.processes import prepare

PATH = "/api/platform/singularity/instance/"


class InstanceClient:
    """A browser that is signed in, at an engine with a real runtime."""

    def __init__(self, browser: Browser, token: str) -> None:
        self._browser, self._token = browser, token

    async def ask(self, method: str, path: str = "", value: Any = None, **more: Any) -> Reply:
        return await self._browser.ask(method, PATH + path, value, token=self._token, **more)

    async def follow(self, reply: Reply, name: str) -> None:
        """The instance's log into `reply`, as it is written."""
        await self._browser.talk(reply, "GET", f"{PATH}{name}/log/?follow=true", token=self._token)

    async def start(self, reply: Reply | None = None, **fields: Any) -> Reply:
        reply = reply or Reply()
        await self._browser.talk(reply, "POST", PATH, {"image": "box.sif", **fields}, token=self._token)
        return reply

    async def show(self, name: str) -> Any:
        return (await self.ask("GET", f"{name}/")).json()

    async def until(self, state: str, name: str, *, seconds: float = 30) -> Any:
        with trio.fail_after(seconds):
            while (shown := await self.show(name)).get("state") != state:
                await trio.sleep(0.05)
        return shown


@asynccontextmanager
async def signed_in(place: Place, **settings: Any) -> AsyncIterator[InstanceClient]:
    prepare(place.home)
    usual = {"image_folders": (str(place.images),), "volume_roots": (str(place.volumes),)}
    known = Settings(**usual | settings)
    async with open_engine(place.home, lambda: known) as engine:
        browser = Browser(make_app(engine))
        yield InstanceClient(browser, (await sign_in(browser))["token"])
