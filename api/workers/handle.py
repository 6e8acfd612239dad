"""The engine's side of one worker process: it answers the worker's messages and takes its counts."""

from __future__ import annotations

import socket
from collections.abc import Awaitable
from typing import Any

import structlog
import trio

from hatchway.api.http.endpoint import Route
from hatchway.api.http.endpoints.auth import session_fields
from hatchway.api.http.gateway import Gateway
from hatchway.api.http.request import Request, Response, json_response
from hatchway.api.workers.channel import Channel
from hatchway.api.workers.messages import (
    CheckHead,
    Configure,
    Configured,
    HandleRequest,
    RequestCounts,
    Responded,
    SessionStarted,
    StartSession,
    ToEngine,
)
from hatchway.engine.base.errors import Refusal
from hatchway.engine.engine import Engine
from hatchway.engine.sessions.versions import VersionCounters

log = structlog.get_logger(__name__)

EXIT_WITHIN = 2.0
"""Seconds in which a worker must end once its channel is closed."""


class WorkerHandle:
    """The engine's side of one worker process; `channel` leads to that process."""

    def __init__(
        self, engine: Engine, gateway: Gateway, counters: VersionCounters, process: trio.Process, sock: socket.socket
    ) -> None:
        self._engine, self._gateway, self._counters, self._process = engine, gateway, counters, process
        self.channel: Channel[ToEngine] = Channel(sock, ToEngine)
        self.pid = process.pid
        self._taken_up: list[trio.Event] = []

    def configure(self, told: Configure, taken_up: trio.Event | None = None) -> trio.Event:
        """Send the worker settings and keys; the event is set when it has taken them up."""
        taken_up = trio.Event() if taken_up is None else taken_up
        self._taken_up.append(taken_up)
        self.channel.post(told)
        return taken_up

    async def run(self) -> int:
        """Answer the worker, which is configured, until it ends. Returns its exit code. When this is cancelled, the
        worker is ended."""
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self.channel.write)
                self._nursery.start_soon(self._listen)
            with trio.move_on_after(EXIT_WITHIN):
                await self._process.wait()
        finally:
            self.channel.close()
            self._process.kill()
            with trio.CancelScope(shield=True):
                code = await self._process.wait()
        return code

    async def _listen(self) -> None:
        """Read the worker's messages until it ends; then cancel what is done for it."""
        try:
            await self.channel.read(self._hear)
        except Exception:
            log.exception("worker_not_understood", pid=self.pid)  # the worker is ended, and started anew
        self._nursery.cancel_scope.cancel()

    def _hear(self, message: ToEngine) -> None:
        self._engine.keys.look_anew()
        match message:
            case HandleRequest():
                self._respond(message)
            case CheckHead():
                self._nursery.start_soon(self._check_head, message)
            case StartSession():
                self._nursery.start_soon(self._start_session, message)
            case RequestCounts(rows):
                for row in rows:
                    self._engine.metrics.answered_by_worker(row.method, row.path, row.status, row.buckets, row.seconds)
            case Configured():
                if self._taken_up:
                    self._taken_up.pop(0).set()

    def _respond(self, asked: HandleRequest) -> None:
        response = self._gateway.backend.respond(self._route(asked.request), asked.request)
        if not isinstance(response, Response):
            self._nursery.start_soon(self._respond_later, asked, response)
        elif response.depends_on is None:
            self.channel.post(Responded(asked.number, response))
        else:
            # The snapshot is as old as the response: no task has run since that was made.
            until = self._engine.sessions.keep_for_worker(response.depends_on)
            snapshot = self._counters.snapshot(response.depends_on.session) if until else None
            self.channel.post(Responded(asked.number, response._replace(depends_on=None), snapshot, until))

    async def _respond_later(self, asked: HandleRequest, waiting: Awaitable[Response]) -> None:
        self.channel.post(Responded(asked.number, (await waiting)._replace(depends_on=None)))

    async def _check_head(self, asked: CheckHead) -> None:
        response = await self._gateway.backend.check_head(self._route(asked.request), asked.request)
        self.channel.post(Responded(asked.number, response))

    def _route(self, request: Request) -> Route:
        route = self._gateway.find(request.method, request.path)
        assert route is not None, "engine and workers have the same table"
        return route

    async def _start_session(self, asked: StartSession) -> None:
        body: Any = None
        try:
            signed_in = await self._engine.key_sign_in.start_verified(
                asked.challenge, asked.identity, asked.lifetime, asked.origin, asked.device
            )
            body = json_response(session_fields(signed_in)).body
        except Refusal:
            pass  # the worker sends the whole request next, which is refused in the usual way
        except Exception:
            log.exception("session_not_started")
        self.channel.post(SessionStarted(asked.number, body))
