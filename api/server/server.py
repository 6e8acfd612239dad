"""Serves one ASGI app on listening sockets: accepts connections, keeps deadlines, and ends in order."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import trio

from hatchway.api.server.apps import App
from hatchway.api.server.connection import Connection
from hatchway.api.server.context import Context, Headers, ServerLimits
from hatchway.api.server.deadlines import sweep
from hatchway.api.server.listeners import ACCEPTED_AT_ONCE, Acceptor, TlsContext, bound, open_sockets
from hatchway.api.server.plain_requests import FastPath
from hatchway.api.server.silent import SilentConnections
from hatchway.engine.base.clock import Clock, SystemClock
from hatchway.engine.settings.settings import Settings

__all__ = ["FastPath", "ServerLimits", "TlsContext", "limits_of", "open_sockets", "serve"]

CLEAN_UP_WITHIN = 0.2
"""Seconds that a cancelled app has to clean up before its connection is cut off."""


def limits_of(settings: Settings) -> ServerLimits:
    """The limits by the settings."""
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
    app: App,
    sockets: Sequence[socket.socket],
    *,
    shutdown: trio.Event,
    limits: Callable[[], ServerLimits] = ServerLimits,
    tls: TlsContext | None = None,
    fast_path: FastPath | None = None,
    clock: Clock | None = None,
    headers: Headers = (),
    sleep_until: Callable[[float], Awaitable[None]] = trio.sleep_until,
    shared: bool = False,
    task_status: trio.TaskStatus[list[tuple[str, int]]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve an ASGI app on listening sockets (which are closed at the end) until `shutdown` is set; then end well.

    Ending: nobody is accepted any more, idle connections close at once, answers have `shutdown_seconds` to come to
    their end (an app that holds streams watches the same event), then they are cancelled and their connections cut. The
    app is asked for HTTP alone: it gets no lifespan. `fast_path` is asked first for each plain HTTP/1.1 request
    (`api.server.plain_requests`); without one, h11 and the app have all. With `shared`, other processes accept on the
    same sockets: connections are taken one by one, by whoever has time. `task_status` gets the (host, port) of each
    socket. `headers` are those of every answer of the app beside the date; `sleep_until` is how the task sleeps that
    makes the date and keeps the deadlines. Raises EngineUnavailable.
    """
    if tls is not None:
        from hatchway.api.server.pinned import check_hypercorn  # its HTTP/2 is spoken over TLS alone

        check_hypercorn()
    context = Context(limits, fast_path, clock or SystemClock(), headers)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sweep, context.queues, context.refresh, sleep_until)
            silent = SilentConnections(context, partial(_begin, app, context, tls, nursery))
            nursery.start_soon(silent.run)
            acceptor = Acceptor(context, silent, tls, nursery, at_once=1 if shared else ACCEPTED_AT_ONCE)
            try:
                await acceptor.run(sockets, shutdown, lambda: task_status.started([bound(sock) for sock in sockets]))
                _close(sockets)
                await _end(context)
            finally:
                for connection in list(context.connections):
                    connection.cut()
            nursery.cancel_scope.cancel()
    finally:
        _close(sockets)


def _begin(app: App, context: Context, tls: TlsContext | None, nursery: trio.Nursery, sock: socket.socket) -> None:
    # A Unix socket has no network that TLS would have to guard.
    secured = tls() if tls is not None and sock.family != socket.AF_UNIX else None
    nursery.start_soon(Connection(app, context, sock, secured).run)


async def _end(context: Context) -> None:
    """End idle connections at once, the others when their responses are sent, or when their time is over."""
    context.stop()
    with trio.move_on_after(context.limits().shutdown_seconds):
        await context.wait_empty()
    for connection in list(context.connections):
        connection.cancel()
    with trio.move_on_after(CLEAN_UP_WITHIN):
        await context.wait_empty()


def _close(sockets: Sequence[socket.socket]) -> None:
    for sock in sockets:
        if sock.fileno() >= 0:
            trio.lowlevel.notify_closing(sock)
            sock.close()
