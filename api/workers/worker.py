"""A worker process: a server on the engine's listening sockets, which ends when the engine ends."""

from __future__ import annotations

import os
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path

import structlog
import trio

from hatchway.api.http.asgi import AsgiApp
from hatchway.api.http.gateway import Gateway
from hatchway.api.http.table import ENDPOINTS as TABLE
from hatchway.api.server.server import limits_of, serve
from hatchway.api.server.tls import Tls, wanted
from hatchway.api.workers.backend import WorkerBackend
from hatchway.api.workers.channel import Channel
from hatchway.api.workers.engine_client import EngineClient, Order, end_without_engine
from hatchway.api.workers.messages import Configure, Configured, RequestCounts, ToWorker
from hatchway.api.workers.relay import Relay
from hatchway.engine.base.errors import Refusal
from hatchway.engine.base.memory import collect_rarely
from hatchway.engine.base.ticks import loop_ticks
from hatchway.engine.journal.logs import set_up_logs, use_log_settings
from hatchway.engine.keys.authorized_keys import AUTHORIZED_KEYS, AuthorizedKeys
from hatchway.engine.sessions.versions import VersionCounters
from hatchway.engine.settings.settings import keys_folder
from hatchway.engine.settings.sources import decode_settings

log = structlog.get_logger(__name__)

COUNTS_INTERVAL = 1.0
"""Seconds between two `RequestCounts`."""

ENDPOINTS = tuple(replace(row, held=False) for row in TABLE)
"""The table for a worker, which relays streams and long waits to the engine: none of its endpoints is `held`."""


class Worker:
    """One worker process, by the `first` settings and keys that the engine has sent.

    `channel` leads to the engine, `counters` are in memory that it shares; other workers listen on the same `sockets`.
    """

    def __init__(
        self, channel: Channel[ToWorker], counters: VersionCounters, sockets: list[socket.socket], first: Configure
    ) -> None:
        self._channel, self._sockets = channel, sockets
        home, settings = Path(os.fsdecode(first.home)), decode_settings(first.settings)
        keys = AuthorizedKeys(keys_folder(home, settings) / AUTHORIZED_KEYS, loop_ticks(), types=self._key_types)
        self._client = EngineClient(counters, keys, channel.post, self._obey, first)
        set_up_logs(settings.log)
        self._tls = Tls(home, settings) if wanted(settings) else None
        self._backend = WorkerBackend(self._client)
        self._app = make_app(self._backend, home)
        self._stopping = trio.Event()
        self._use(first)

    def _use(self, told: Configure) -> None:
        """Take up what the server and the gateway have of the settings."""
        self.limits = limits_of(self._client.settings)
        self._app.gateway.use_bound(told.bound)
        self._app.gateway.use_added(told.added)

    async def run(self) -> None:
        """Serve until the engine sends `Stop`, a signal comes, or the engine is gone."""
        async with trio.open_nursery() as writing:
            writing.start_soon(self._channel.write)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._client.listen, self._channel)
                nursery.start_soon(self._obey_signals)
                nursery.start_soon(self._tell_counts)
                await nursery.start(self._serve, nursery.cancel_scope)
                collect_rarely()
                self._channel.post(Configured())
            self._count()
            self._channel.finish()

    def _obey(self, order: Order) -> None:
        if isinstance(order, Configure):
            self._reload(order)
        else:
            self._stopping.set()

    def _reload(self, told: Configure) -> None:
        self._client.configure(told)
        use_log_settings(self._client.settings.log, people=sys.stderr.isatty())
        try:
            if self._tls is not None:
                self._tls.reload(self._client.settings)
        except Refusal as refused:
            log.warning("worker_reload_refused", why=refused.detail)
        self._use(told)
        self._channel.post(Configured())

    def _key_types(self) -> tuple[str, ...]:
        return self._client.settings.key_types

    async def _serve(self, scope: trio.CancelScope, task_status: trio.TaskStatus[list[tuple[str, int]]]) -> None:
        await serve(
            self._app,
            self._sockets,
            shutdown=self._stopping,
            limits=lambda: self.limits,
            tls=self._tls,
            fast_path=self._app.gateway.handle,
            shared=True,
            task_status=task_status,
        )
        scope.cancel()

    async def _obey_signals(self) -> None:
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            async for _ in signals:
                self._stopping.set()

    async def _tell_counts(self) -> None:
        while True:
            await trio.sleep(COUNTS_INTERVAL)
            self._count()

    def _count(self) -> None:
        rows = self._backend.counts.take()
        if rows:
            self._channel.post(RequestCounts(rows))


def make_app(backend: WorkerBackend, home: Path) -> AsgiApp:
    """The app of a worker: a gateway over the channel to the engine, and the relay for all other requests."""
    return AsgiApp(Gateway(backend, ENDPOINTS), Relay(home))


async def work(sock: socket.socket, counters: VersionCounters, sockets: list[socket.socket]) -> None:
    """Be a worker of the engine at the other end of `sock`."""
    channel: Channel[ToWorker] = Channel(sock, ToWorker)
    first = await channel.first()
    if first is None:
        end_without_engine()
    assert isinstance(first, Configure), "the engine configures a worker first"
    await Worker(channel, counters, sockets, first).run()


def main() -> None:
    """The program `worker CHANNEL COUNTERS SOCKET...`; its arguments are descriptors that the engine has left open."""
    for number in (signal.SIGINT, signal.SIGHUP):  # a terminal tells the whole group: it is the engine's to obey
        signal.signal(number, signal.SIG_IGN)
    channel, counters, *sockets = map(int, sys.argv[1:])
    listeners = [socket.socket(fileno=fd) for fd in sockets]
    os.umask(0o077)
    with socket.socket(fileno=channel) as sock:
        trio.run(work, sock, VersionCounters(counters), listeners)
