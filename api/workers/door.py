"""A door process: our server on the engine's listening sockets. It lives no longer than the engine."""

from __future__ import annotations

import os
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path

import structlog
import trio

from api.http.call import Answer
from api.http.door import Door
from api.http.doors import DOORS
from api.http.front import Front, Receive, Scope, Send, send_answer
from api.server import ServerLimits, limits_of, serve
from api.tls import Tls, wanted
from api.transport.lane import LaneRequest
from api.workers.channel import Channel
from api.workers.desk import Desk
from api.workers.hot import Hot
from api.workers.messages import Configure, Counts, Ready, Stop, ToDoor
from api.workers.relay import Relay
from engine.clock import counted_turns
from engine.errors import Refusal
from engine.logs import set_up_logs, use_log_settings
from engine.setting_sources import from_plain
from engine.settings import keys_folder
from engine.trust.authorized_keys import AuthorizedKeys
from engine.validity import Validity

log = structlog.get_logger(__name__)

COUNTED = 1.0
"""Seconds between two tellings of what was answered here."""

ENGINE_GONE = 70
"""Exit code of a door whose engine is gone (EX_SOFTWARE, sysexits.h)."""

PASSED_ON = tuple(replace(row, hot=False, held=False) for row in DOORS)
"""The front of a door knows of the rows what they take; what they answer comes from the engine."""


class DoorProcess:
    """The channel's other end is the engine's; the sockets are listened on by other doors too."""

    limits: ServerLimits

    def __init__(self, channel: socket.socket, validity: Validity, sockets: list[socket.socket]) -> None:
        self._channel: Channel[ToDoor] = Channel(channel, ToDoor, self._hear)
        self._validity, self._sockets = validity, sockets
        self._desk: Desk | None = None
        self._configured, self._stopping = trio.Event(), trio.Event()

    async def run(self) -> None:
        """Serve until the engine, or a signal, says that it is enough."""
        with counted_turns() as self._turns:
            await self._run()

    async def _run(self) -> None:
        async with trio.open_nursery() as writing:
            writing.start_soon(self._channel.write)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._listen)
                await self._configured.wait()
                nursery.start_soon(self._obey_signals)
                nursery.start_soon(self._tell_counts)
                await nursery.start(self._serve, nursery.cancel_scope)
                self._channel.post(Ready())
            self._count()
            self._channel.finish()

    def _hear(self, message: ToDoor) -> None:
        if isinstance(message, Configure):
            self._configure(message)
        elif isinstance(message, Stop):
            self._stopping.set()
        elif self._desk is not None:
            self._desk.hear(message)

    def _configure(self, told: Configure) -> None:
        home = Path(os.fsdecode(told.home))
        if self._desk is None:
            keys = AuthorizedKeys(keys_folder(home, from_plain(told.settings)) / "authorized_keys")
            keys.turns = self._turns
            self._desk = Desk(self._validity, keys, self._channel.post)
            self._desk.configure(told)
            settings = self._desk.settings
            set_up_logs(settings.log)
            self._tls = Tls(home, settings) if wanted(settings) else None
            self._hot, self._front = make_front(self._desk, home)
            self._configured.set()
        else:
            self._desk.configure(told)
            self._reload()
            self._channel.post(Ready())
        self.limits = limits_of(self._desk.settings)
        self._front.bound = told.bound

    def _reload(self) -> None:
        assert self._desk is not None
        use_log_settings(self._desk.settings.log, people=sys.stderr.isatty())
        try:
            if self._tls is not None:
                self._tls.reload(self._desk.settings)
        except Refusal as refused:
            log.warning("door_reload_refused", why=refused.detail)

    async def _listen(self) -> None:
        await self._channel.read()
        # Nobody can answer for the engine's sessions now: not a moment is spent on ends.
        log.error("door_without_engine")
        os._exit(ENGINE_GONE)

    async def _serve(self, scope: trio.CancelScope, task_status: trio.TaskStatus[list[tuple[str, int]]]) -> None:
        await serve(
            self._front,
            self._sockets,
            shutdown=self._stopping,
            limits=lambda: self.limits,
            tls=self._tls,
            lane=self._hot,
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
            await trio.sleep(COUNTED)
            self._count()

    def _count(self) -> None:
        assert self._desk is not None
        rows = self._desk.metrics.take()
        if rows:
            self._channel.post(Counts(rows))


def make_front(desk: Desk, home: Path) -> tuple[Hot, Front]:
    """The lane of a door, and its app: the layer that every request passes, then the lane again, then the engine."""
    relay = Relay(home)

    async def rest(scope: Scope, receive: Receive, send: Send) -> None:
        # HTTP/2, and what the lane does not read, may be at a hot door all the same.
        answer = hot(_lane_request(scope, scope["hatchway.body"]))
        if answer is not None and not isinstance(answer, tuple):
            answer = await answer
        if answer is None:
            await relay(scope, receive, send)
        else:
            await send_answer(send, Answer(answer.status, answer.body, answer.headers))

    async def admit(door: Door, scope: Scope) -> Answer | None:
        refusal = await desk.enter(_lane_request(scope, b""))
        return None if refusal is None else Answer(refusal.status, refusal.body, refusal.headers)

    front = Front(desk, PASSED_ON)  # type: ignore[arg-type]
    front.rest, front.admit = rest, admit
    hot = Hot(desk, front)
    return hot, front


def _lane_request(scope: Scope, body: bytes) -> LaneRequest:
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    headers = tuple(scope["headers"])
    secure = scope["scheme"] == "https"
    return LaneRequest(
        scope["method"].encode(), target, headers, body, scope.get("client"), scope.get("server"), secure
    )


def main() -> None:
    """`door CHANNEL VALIDITY SOCKET...`: descriptors that the engine has left open for it."""
    for number in (signal.SIGINT, signal.SIGHUP):  # a terminal tells the whole group: it is the engine's to obey
        signal.signal(number, signal.SIG_IGN)
    channel, validity, *sockets = map(int, sys.argv[1:])
    listeners = [socket.socket(fileno=fd) for fd in sockets]
    os.umask(0o077)
    trio.run(DoorProcess(socket.socket(fileno=channel), Validity(validity), listeners).run)
