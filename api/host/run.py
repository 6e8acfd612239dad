"""One running engine: the engine, its HTTP server, the operator socket and the signals, joined in one nursery."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
import trio

from hatchway.api.host.added_addresses import AddedAddresses
from hatchway.api.host.operator_socket import OperatorSocket
from hatchway.api.host.systemd import Notifier
from hatchway.api.http.app import make_app
from hatchway.api.http.asgi import AsgiApp
from hatchway.api.server.listeners import bound_ports, open_unix_socket
from hatchway.api.server.server import ServerLimits, limits_of, open_sockets, serve
from hatchway.api.server.tls import Tls, keep_in_time, wanted
from hatchway.api.server.unix_sockets import can_be_forwarded_to
from hatchway.engine.base.errors import Refusal
from hatchway.engine.base.memory import collect_rarely
from hatchway.engine.base.tasks import kept_up
from hatchway.engine.base.text import printable
from hatchway.engine.base.version import installed_version
from hatchway.engine.engine import Engine, open_engine
from hatchway.engine.journal.logs import LineWriter, reopen_log, set_up_logs, use_log_settings
from hatchway.engine.settings.settings import Settings

if TYPE_CHECKING:
    from hatchway.api.workers.pool import WorkerPool

log = structlog.get_logger(__name__)

SOCKET = "http.sock"
"""Name of the Unix socket, in the engine's folder, on which it serves its own user, by the setting `listen`."""

HAND_OVER = 0.0005
"""Seconds after which a busy event loop lets the threads run that write the store and the journal. By Python's default
of 5 ms, which each statement of SQLite would wait for anew, a sign-in beside other work took 100 ms."""

HARD_END = 15.0
"""Seconds after which a stopping process is ended, whatever it still waits for."""


class EngineServer:
    """Serves one engine over HTTP, in its own process or in workers; knows its address and its certificate."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.app: AsgiApp = make_app(engine)
        self.gateway = self.app.gateway
        self._limits_of, self._limits = engine.settings, limits_of(engine.settings)
        self.tls = Tls(engine.home, engine.settings, engine.clock.wall) if wanted(engine.settings) else None
        if self.tls is not None:
            engine.use_certificate(self.tls.fingerprint, self.tls.ends_at)
        self.systemd = Notifier()
        self.workers = self._pool(engine.settings.workers) if engine.settings.workers > 1 else None
        self.addresses = AddedAddresses(engine.clock, self._take_addresses)
        self.listening: tuple[tuple[str, int], ...] = ()
        self.socket = engine.home / SOCKET if engine.settings.listen != "tcp" else None
        self.socket_way: str | None = None
        """Another path to the Unix socket, where ssh could not forward to its own."""

    def _pool(self, count: int) -> WorkerPool:
        from hatchway.api.workers.pool import WorkerPool  # most engines have no workers, and load none of it

        return WorkerPool(self.engine, self.app, count)

    @asynccontextmanager
    async def sockets(self) -> AsyncIterator[list[socket.socket]]:
        """The listening sockets that the settings name, for the block. Raises EngineUnavailable, FileRefused.

        A Unix socket's path that an earlier run left is replaced: the folder's lock says that no other engine uses it.
        """
        settings, opened = self.engine.settings, []
        if settings.listen != "unix":
            opened = await open_sockets(settings.host, settings.port, both_loopbacks=True)
            self.listening = bound_ports(opened)
            self.gateway.use_bound(self.listening)
        if self.socket is not None:
            opened.append(open_unix_socket(self.socket))
        folder = None
        if self.socket is not None and not can_be_forwarded_to(self.socket):
            folder = os.open(self.socket.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self.socket_way = f"/proc/{os.getpid()}/fd/{folder}/{self.socket.name}"
        if self.warning is not None:
            log.warning("localhost_is_not_ours", why=self.warning)
        try:
            yield opened
        finally:
            if folder is not None:
                os.close(folder)
            if self.socket is not None:
                self.socket.unlink(missing_ok=True)

    async def _take_addresses(self, added: tuple[str, ...]) -> None:
        self.gateway.use_added(added)
        if self.workers is not None:
            await self.workers.configure()

    async def serve(
        self, sockets: Sequence[socket.socket], *, task_status: trio.TaskStatus[list[tuple[str, int]]]
    ) -> None:
        """Serve on these listening sockets, here or in worker processes, until the engine stops.

        `task_status` is told the host and port of each socket once connections are accepted.
        """
        if self.workers is not None:
            await self.workers.serve(sockets, self.engine.stopping, task_status=task_status)
            return
        await serve(
            self.app,
            sockets,
            shutdown=self.engine.stopping,
            limits=self.limits,
            tls=self.tls,
            fast_path=self.gateway.handle,
            task_status=task_status,
        )

    @property
    def warning(self) -> str | None:
        """What is wrong with the addresses that the engine listens on, for people; None for nothing."""
        lacking = self.gateway.addresses.lacking
        if lacking is None or not self.listening:
            return None
        port = self.listening[0][1]
        mine, theirs = ("127.0.0.1", "[::1]") if lacking == "::1" else ("[::1]", "127.0.0.1")
        return f"another process listens on {theirs}:{port}, so localhost is not this engine: dial {mine}:{port}"

    @property
    def url(self) -> str | None:
        """The console's address; None where there is only the Unix socket."""
        if not self.listening:
            return None
        host, port = self.listening[0]
        shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
        return f"{'https' if self.tls else 'http'}://{shown}:{port}/"

    @property
    def where(self) -> str:
        """Where the engine is reached, for people."""
        return " and ".join(str(place) for place in (self.url, self.socket) if place is not None)

    def status(self) -> dict[str, Any]:
        """The server's part of `engine status`. `uptime` is in seconds."""
        # The name: see `api.workers.relay.NAME`.
        more: dict[str, Any] = {"doors": self.workers.pids} if self.workers else {}
        if self.socket_way is not None:
            more["socket_way"] = self.socket_way
        return more | {
            "version": installed_version(),
            "url": self.url,
            "listening": [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.listening],
            "socket": self.socket and str(self.socket),
            "addresses": list(self.engine.settings.addresses),
            "pid": os.getpid(),
            "uptime": self.engine.clock.wall() - self.engine.started_at,
            "fingerprint": self.tls.fingerprint if self.tls else None,
        }

    def limits(self) -> ServerLimits:
        """The server's limits by the present settings; made anew only after a reload, since each request asks often."""
        if self._limits_of is not self.engine.settings:
            self._limits_of = self.engine.settings
            self._limits = limits_of(self._limits_of)
        return self._limits

    def stop(self) -> None:
        """End the engine: clients that wait get a last item, then the server accepts no more connections."""
        if not self.engine.stopping.is_set():
            self.systemd.stopping()
            self.engine.records.notice("engine", self.engine.identity, "stop")
            self.engine.journal.seal("stop")  # now, while it can still be carried away
            self.engine.stopping.set()

    async def reload(self) -> tuple[str, ...]:
        """Read settings, license, token keys, log and certificate anew. Returns the settings that wait for a restart.

        Raises FileRefused, SettingRefused, and leaves everything as it was.
        """
        self.systemd.reloading()
        try:
            waiting = self.engine.reload(self._take_certificate)
            reopen_log()
            use_log_settings(self.engine.settings.log, people=sys.stderr.isatty())
            if self.workers is not None:
                await self.workers.configure()
        finally:
            self.systemd.ready(self.where)
        return waiting

    def _take_certificate(self, settings: Settings) -> None:
        if self.tls is not None:
            self.tls.reload(settings)
            self.engine.use_certificate(self.tls.fingerprint, self.tls.ends_at)

    async def renew_certificate(self) -> None:
        """Make or read the certificate anew, and nothing else."""
        self._take_certificate(self.engine.settings)
        if self.workers is not None:
            await self.workers.configure()


@asynccontextmanager
async def open_server(home: Path, load: Callable[[], Settings]) -> AsyncIterator[EngineServer]:
    """A whole engine that serves, until left. Raises EngineUnavailable, FileRefused, SettingRefused."""
    async with open_engine(home, load) as engine:
        server = EngineServer(engine)
        async with server.sockets() as sockets, trio.open_nursery() as nursery:
            # First the signals: whoever sees the operator's socket may send one. A client that has a response may be
            # the next to ask where this host's engine is, or to stop it.
            await nursery.start(_obey_signals, server)
            await nursery.start(
                OperatorSocket(engine, server.status, partial(_end, server), server.reload, server.addresses).serve
            )
            await nursery.start(partial(_serve_to_the_end, partial(server.serve, sockets), nursery.cancel_scope))
            nursery.start_soon(kept_up, server.systemd.watch)
            nursery.start_soon(kept_up, server.addresses.expire)
            if engine.settings.heads_to is not None:
                from hatchway.api.ship.heads import carry_heads  # few engines send them on

                nursery.start_soon(kept_up, carry_heads, engine, engine.settings.heads_to)
            if server.tls is not None:
                nursery.start_soon(kept_up, keep_in_time, server.tls, server.renew_certificate)
            server.systemd.ready(server.where)
            yield server
            await engine.stopping.wait()
            await trio.sleep_forever()  # cancelled once the last response is sent


async def _serve_to_the_end(serving: Any, scope: trio.CancelScope, task_status: Any) -> None:
    await serving(task_status=task_status)
    scope.cancel()


def _end(server: EngineServer) -> None:
    """Stop the engine; its process too, where the kernel never finishes a write."""
    if not server.engine.stopping.is_set():  # a second signal does not put the end off
        signal.setitimer(signal.ITIMER_REAL, HARD_END)
    server.stop()


async def _obey_signals(server: EngineServer, task_status: trio.TaskStatus[None]) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        task_status.started()
        async for number in signals:
            if number == signal.SIGHUP:
                await _reload(server)
            else:
                _end(server)


async def _reload(server: EngineServer) -> None:
    try:
        log.info("reloaded", restart_needed_for=await server.reload())
    except Refusal as refused:
        log.warning("reload_refused", why=refused.detail)
    except Exception:
        log.exception("reload_failed")  # a fault in it must not end everybody's sessions


async def run_engine(home: Path, load: Callable[[], Settings]) -> None:
    """Run until stopped by a signal or the operator. Raises EngineUnavailable, FileRefused, SettingRefused."""
    writer = set_up_logs(load().log)
    page = LineWriter(sys.stdout) if sys.stdout.isatty() else None
    async with open_server(home, load) as server:
        collect_rarely()
        sys.setswitchinterval(HAND_OVER)
        if page is not None:
            page.msg(_start_page(server))
        else:
            # Without a start page people look into the log for the address, and the fingerprint to compare.
            log.info("listening", at=server.where, **({"sha256": server.tls.fingerprint} if server.tls else {}))
    if page is not None:
        writer.close()  # what the log still has to say comes before the last sentence
        page.msg("Hatchway has stopped.")
        page.close()


def _start_page(server: EngineServer) -> str:
    of_the_store = ", a copy of the store's" if server.engine.settings.keys == "store" else ""
    fleet = server.engine.fleet
    lines = [
        f"Hatchway is running at {server.where}",
        *([f"  certificate  SHA-256 {server.tls.fingerprint}"] if server.tls else []),
        f"  engine key   {server.engine.own_key.identity}",
        f"  keys         {server.engine.keys.path}{of_the_store}",
        "  pair         hatchway engine pair",
        "  stop         Ctrl-C, or hatchway engine stop",
        *(f"  warning      {why}" for why in (server.warning, fleet and fleet.not_durable) if why),
    ]
    return "\n".join(map(printable, lines))
