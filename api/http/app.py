"""The whole HTTP side of one engine: the gateway, and behind it Quart, which is not loaded before it is needed."""

from __future__ import annotations

import sys
from importlib import import_module

import structlog
import trio

from hatchway.api.http.asgi import App, AsgiApp, Receive, Scope, Send, send_response
from hatchway.api.http.backend import EngineBackend, InternalError
from hatchway.api.http.gateway import Gateway
from hatchway.api.http.problems import problem_response
from hatchway.api.http.table import ENDPOINTS
from hatchway.engine.engine import Engine

MOUNT = "hatchway.api.http.quart_mount"

log = structlog.get_logger(__name__)


def make_app(engine: Engine) -> AsgiApp:
    """The whole HTTP side of one engine, as an ASGI app; its gateway is the parser's of plain requests too."""
    gateway = Gateway(EngineBackend(engine), ENDPOINTS)
    return AsgiApp(gateway, LazyQuart(gateway))


class LazyQuart:
    """Loads Quart with the first request that needs it. It takes a quarter of a start's time and a sixth of the memory,
    which an engine without such requests saves."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._app: App | None = None
        self._loading = trio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            try:
                async with self._loading:
                    self._app = self._app or await self._load()
            except Exception:  # the installation may have been removed or replaced while the engine runs
                log.exception("quart_not_loaded")
                await send_response(
                    send, problem_response(InternalError("the engine can't load a part of itself: restart it"))
                )
                return
        await self._app(scope, receive, send)

    async def _load(self) -> App:
        if MOUNT not in sys.modules:
            # In a thread, so that other requests wait for 5 ms at a time, and not for all of it.
            await trio.to_thread.run_sync(import_module, MOUNT)
        app: App = sys.modules[MOUNT].mount(self._gateway, ENDPOINTS)
        return app
