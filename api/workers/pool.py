"""The engine's side of its worker processes: it starts them, starts them again where one dies, and ends them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import structlog
import trio

from hatchway.api.http.asgi import AsgiApp
from hatchway.api.server.listeners import bound_ports, room_for
from hatchway.api.workers.handle import WorkerHandle
from hatchway.api.workers.messages import Configure, Stop
from hatchway.api.workers.relay_server import RelayServer
from hatchway.engine.base.errors import EngineUnavailable
from hatchway.engine.engine import Engine
from hatchway.engine.sessions import versions
from hatchway.engine.settings.sources import encode_settings

log = structlog.get_logger(__name__)

STOP_WITHIN = 7.0
"""Seconds that workers have for the last responses of a stopping engine: a server's own, and a little more."""

RELOAD_WITHIN = 2.0
"""Seconds that a reload waits for workers to take it up."""

PAUSE, LONGEST_PAUSE, STEADY = 0.1, 5.0, 30.0
"""Seconds before a worker that died is started again: the first, doubled each time up to the second. It is the first
again after a worker that ran for the third."""

_IMPORTS = str(Path(__file__).parents[3])
"""The folder that `hatchway` is imported from."""

_PROGRAM = f"import sys; sys.path.insert(0, {_IMPORTS!r}); from hatchway.api.workers.worker import main; main()"


class WorkerPool:
    """The `count` worker processes of one engine. `app` answers the requests that they relay."""

    def __init__(self, engine: Engine, app: AsgiApp, count: int) -> None:
        self._engine, self._app, self._gateway, self._count = engine, app, app.gateway, count
        self._memory = versions.create()
        self.counters = versions.VersionCounters(self._memory, write=True)
        if engine.fleet is None:
            self.counters.extend_validity()
        else:
            engine.fleet.subscribe_freshness(self.counters.extend_validity)
            engine.runtime.subscribe_moves(lambda chart, actor, *states: self.counters.observe_move(chart, actor))
        engine.records.sinks.append(self.counters.observe)
        engine.key_watch.on_token_keys.append(self.counters.invalidate_all)
        self._workers: list[WorkerHandle] = []
        self._up = self._stopping = False
        """`_up` is whether a worker has come up yet: clients are answered from then on, so the engine goes on whichever
        dies."""

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers that run now."""
        return [worker.pid for worker in self._workers]

    async def serve(
        self,
        sockets: Sequence[socket.socket],
        shutdown: trio.Event,
        *,
        task_status: trio.TaskStatus[list[tuple[str, int]]] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """As `server.serve`, by worker processes; `task_status` is told once all have come up. Raises EngineUnavailable
        where one dies before any has come up."""
        self._gateway.use_bound(bound_ports(sockets) or self._gateway.bound)
        room_for(self._count * self._engine.settings.max_connections)  # each of their requests may be relayed to here
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(RelayServer(self._app.for_admitted(), self._engine.home, self._engine.keys).serve)
                async with trio.open_nursery() as keeping:
                    async with trio.open_nursery() as starting:
                        for _ in range(self._count):
                            starting.start_soon(keeping.start, self._keep, sockets, shutdown)
                    task_status.started(list(self._gateway.bound))
                    await shutdown.wait()
                    self._stopping = True
                    _close(sockets)  # else clients would wait in the queue of a socket on which nothing accepts
                    for worker in self._workers:
                        worker.channel.post(Stop())
                    keeping.cancel_scope.deadline = trio.current_time() + STOP_WITHIN
                nursery.cancel_scope.cancel()
        finally:
            _close(sockets)

    async def configure(self) -> None:
        """Send the workers the present settings and keys, and wait until they have taken them up."""
        self.counters.invalidate_all()
        told = [worker.configure(self._configuration()) for worker in self._workers]
        with trio.move_on_after(RELOAD_WITHIN):
            for taken_up in told:
                await taken_up.wait()

    def _configuration(self) -> Configure:
        engine = self._engine
        # The key for challenges of a shared store may change at any time: its workers leave challenges to the engine.
        key = b"" if engine.store.shared else engine.key_sign_in.challenge_key
        own, gateway = engine.own_key.openssh(), self._gateway
        return Configure(bytes(engine.home), encode_settings(engine.settings), gateway.bound, own, key, gateway.added)

    async def _keep(
        self, sockets: Sequence[socket.socket], shutdown: trio.Event, task_status: trio.TaskStatus[None]
    ) -> None:
        """Run a worker, and another whenever one has ended, until the engine stops."""
        pause, ready = PAUSE, trio.Event()
        while not shutdown.is_set():
            began = trio.current_time()
            async with trio.open_nursery() as nursery:
                taken_up = trio.Event()
                nursery.start_soon(self._tell_ready, taken_up, ready, task_status)
                end = await self._run_one(sockets, taken_up)
                nursery.cancel_scope.cancel()
            if shutdown.is_set():
                break
            if not self._up:
                raise EngineUnavailable(f"a worker process was not ready before its end ({end}): the log says why")
            pause = PAUSE if trio.current_time() - began > STEADY else pause
            self._engine.records.notice("engine", self._engine.identity, "door_ended", end)
            with trio.move_on_after(pause):
                await shutdown.wait()
            pause = min(2 * pause, LONGEST_PAUSE)
        if not ready.is_set():
            task_status.started()  # the engine stops before this worker came up: nobody need wait for it

    async def _tell_ready(self, taken_up: trio.Event, ready: trio.Event, task_status: trio.TaskStatus[None]) -> None:
        await taken_up.wait()
        self._up = True
        if not ready.is_set():
            ready.set()
            task_status.started()

    async def _run_one(self, sockets: Sequence[socket.socket], taken_up: trio.Event) -> str:
        """Run one worker from its start to its end. Returns how it ended, in words."""
        try:
            worker = await self._start_one(sockets)
        except OSError as error:  # the host has no processes or no memory left
            return f"not started: {error.strerror}"
        self._workers.append(worker)
        try:
            worker.configure(self._configuration(), taken_up)
            if self._stopping:  # `serve` has sent `Stop` to those that ran then
                worker.channel.post(Stop())
            return f"exit code {await worker.run()}"
        finally:
            self._workers.remove(worker)

    async def _start_one(self, sockets: Sequence[socket.socket]) -> WorkerHandle:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = await self._spawn(theirs, sockets)
            except BaseException:
                ours.close()
                raise
        return WorkerHandle(self._engine, self._gateway, self.counters, process, ours)

    async def _spawn(self, channel: socket.socket, sockets: Sequence[socket.socket]) -> trio.Process:
        counters = versions.readable(self._memory)
        try:
            kept = (channel.fileno(), counters, *(sock.fileno() for sock in sockets))
            program = [sys.executable, "-P", "-c", _PROGRAM, *map(str, kept)]
            return await trio.lowlevel.open_process(program, stdin=subprocess.DEVNULL, pass_fds=kept)
        finally:
            os.close(counters)


def _close(sockets: Sequence[socket.socket]) -> None:
    for sock in sockets:
        sock.close()
