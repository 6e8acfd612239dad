"""Our short serve on Hypercorn's trio classes: accepts, keeps deadlines, and ends well (decisions, HTTP manners)."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.trio.lifespan import Lifespan
from hypercorn.typing import ConnectionState
from hypercorn.utils import LifespanFailureError

from hatchway.api.server.connection import Connection
from hatchway.api.server.context import Context, Headers, ServerConfig, ServerLimits
from hatchway.api.server.deadlines import sweep
from hatchway.api.server.lane import Lane
from hatchway.api.server.listeners import ACCEPTED_AT_ONCE, Refusals, TlsContext, accept, bound, open_sockets
from hatchway.api.server.lobby import Lobby
from hatchway.api.server.pinned import check_hypercorn
from hatchway.engine.base.clock import Clock, SystemClock
from hatchway.engine.base.errors import EngineUnavailable
from hatchway.engine.settings.settings import Settings

__all__ = ["Lane", "ServerLimits", "TlsContext", "limits_of", "open_sockets", "serve"]

FAREWELL = 0.2
"""Seconds a cancelled answer has to clean up, before its connection is cut off."""


def limits_of(settings: Settings) -> ServerLimits:
    """HTTP manners as the settings have them."""
    limits = settings.limits
    return ServerLimits(
        header_bytes=limits.header_bytes,
        header_seconds=limits.header_seconds,
        body_seconds=limits.body_seconds,
        idle_seconds=limits.idle_seconds,
        write_seconds=limits.write_seconds,
        max_connections=settings.max_connections,
    )


async def serve(
    app: Any,
    sockets: Sequence[socket.socket],
    *,
    shutdown: trio.Event,
    limits: Callable[[], ServerLimits] = ServerLimits,
    tls: TlsContext | None = None,
    lane: Lane | None = None,
    clock: Clock | None = None,
    headers: Headers = (),
    shared: bool = False,
    task_status: trio.TaskStatus[list[tuple[str, int]]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve an ASGI app on listening sockets (which are closed at the end) until `shutdown` is set; then end well.

    Ending: nobody is accepted any more, idle connections close at once, answers have `shutdown_seconds` to come to
    their end (an app that holds streams watches the same event), then they are cancelled and their connections cut.
    `lane` is asked first for each plain HTTP/1.1 request (`api.server.lane`); without one, h11 and the app have all.
    `headers` are those of every answer beside the date.
    With `shared`, other processes accept on the same sockets: connections are taken one by one, by whoever has time.
    `task_status` gets the (host, port) of each socket. Raises EngineUnavailable.
    """
    check_hypercorn()
    context, config = Context(limits, lane), ServerConfig(limits, clock or SystemClock(), headers)
    at_once = 1 if shared else ACCEPTED_AT_ONCE
    with _closed(sockets), _failed_start():
        async with _lifespan(app, config) as state, trio.open_nursery() as nursery:
            nursery.start_soon(sweep, context.queues, context.refresh, lambda: limits().look_seconds)

            def begin(sock: socket.socket) -> None:
                secured = tls() if tls is not None else None
                nursery.start_soon(Connection(app, config, context, ConnectionState(state), sock, secured).run)

            lobby = Lobby(context, begin)
            nursery.start_soon(lobby.run)

            try:
                async with trio.open_nursery() as accepting:
                    refusals = Refusals(context, config)
                    for listener in sockets:
                        listener.setblocking(False)
                        accepting.start_soon(accept, listener, tls, context, nursery, lobby, refusals, at_once)
                    task_status.started([bound(listener) for listener in sockets])
                    await shutdown.wait()
                    accepting.cancel_scope.cancel()
                _close(sockets)
                await _end(context)
            finally:
                for connection in list(context.connections):
                    connection.cut()
            nursery.cancel_scope.cancel()


@contextmanager
def _closed(sockets: Sequence[socket.socket]) -> Iterator[None]:
    try:
        yield
    finally:
        _close(sockets)


@contextmanager
def _failed_start() -> Iterator[None]:
    """An app that did not start is our own error, whatever else came with it."""
    try:
        yield
    except BaseExceptionGroup as group:
        failure = next((error for error in _leaves(group) if isinstance(error, LifespanFailureError)), None)
        if failure is None:
            raise
        raise EngineUnavailable(f"the app did not start: {failure}") from group


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


async def _end(context: Context) -> None:
    """Idle connections at once, the others when they are done, or late."""
    await context.stop()
    with trio.move_on_after(context.limits().shutdown_seconds):
        await context.wait_empty()
    for connection in list(context.connections):
        connection.cancel()
    with trio.move_on_after(FAREWELL):
        await context.wait_empty()


def _close(sockets: Sequence[socket.socket]) -> None:
    for sock in sockets:
        if sock.fileno() >= 0:
            trio.lowlevel.notify_closing(sock)
            sock.close()


@asynccontextmanager
async def _lifespan(app: Any, config: ServerConfig) -> AsyncIterator[dict[str, Any]]:
    """The app's startup and shutdown around the serving, for apps that know them (ASGI lifespan 2.0)."""
    state: dict[str, Any] = {}
    lifespan = Lifespan(ASGIWrapper(app), config, state)
    async with trio.open_nursery() as nursery:
        await nursery.start(lifespan.handle_lifespan)
        await lifespan.wait_for_startup()
        await trio.lowlevel.checkpoint()  # here a failed startup comes out
        yield state
        if not lifespan.shutdown.is_set():
            await lifespan.wait_for_shutdown()
        nursery.cancel_scope.cancel()
