"""The whole HTTP side of one engine: the front, and behind it Quart, which is not loaded before it is needed."""

from __future__ import annotations

import sys
from importlib import import_module

import structlog
import trio

from api.http.door import Fault
from api.http.doors import DOORS
from api.http.front import App, Front, Receive, Scope, Send, send_answer
from api.http.problems import problem_answer
from engine.engine import Engine

MOUNT = "api.http.quart_mount"

log = structlog.get_logger(__name__)


def make_app(engine: Engine) -> Front:
    """The whole HTTP side of one engine, as an ASGI app."""
    front = Front(engine, DOORS)
    front.rest = Rest(front)
    return front


class Rest:
    """The doors that the front does not answer itself, on Quart: a quarter of a start's time and a sixth of its memory,
    which an engine that nobody's browser comes to never pays."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._app: App | None = None
        self._loading = trio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            try:
                async with self._loading:
                    self._app = self._app or await self._load()
            except Exception:  # an installation that was taken from under a running engine
                log.exception("quart_not_loaded")
                await send_answer(send, problem_answer(Fault("the engine can't load a part of itself: restart it")))
                return
        await self._app(scope, receive, send)

    async def _load(self) -> App:
        if MOUNT not in sys.modules:
            # In a thread, so that who signs in meanwhile waits for turns of 5 ms, and not for all of it.
            await trio.to_thread.run_sync(import_module, MOUNT)
        app: App = sys.modules[MOUNT].mount(self._front, DOORS)
        return app
