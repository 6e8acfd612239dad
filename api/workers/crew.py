"""The engine's side of its door processes: it starts them, keeps them, answers what they ask, and ends them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import structlog
import trio

from api.http.front import Front
from api.transport.lane import Lane
from api.transport.listeners import bound, room_for
from api.workers.behind import Behind
from api.workers.colleague import Colleague
from api.workers.messages import Configure, Stop
from engine import validity
from engine.engine import Engine
from engine.errors import EngineUnavailable
from engine.setting_sources import as_plain

log = structlog.get_logger(__name__)

ENDING = 7.0
"""Seconds that doors have for the last answers of a stopping engine: theirs, and a little more."""

TAKING_UP = 2.0
"""Seconds that doors have to take up a reload, before whoever asked for it goes on."""

PAUSE, LONGEST_PAUSE, STEADY = 0.1, 5.0, 30.0
"""Seconds before a door that died is started again, doubled each time; anew once one has lived so long."""

_ROOT = str(Path(__file__).parents[2])
_PROGRAM = f"import sys; sys.path.insert(0, {_ROOT!r}); from api.workers.door import main; main()"


class Crew:
    """`count` door processes in front of one engine, whose app and lane answer what they can't."""

    def __init__(self, engine: Engine, front: Front, lane: Lane, count: int) -> None:
        self._engine, self._front, self._lane, self._count = engine, front, lane, count
        self._words = validity.create()
        self.validity = validity.Validity(self._words, write=True)
        if engine.fleet is None:
            self.validity.hold_until()
        else:
            engine.fleet.subscribe_freshness(self.validity.hold_until)
            engine.runtime.subscribe_moves(lambda chart, actor, *states: self.validity.take_moved(chart, actor))
        engine.records.sinks.append(self.validity.take)
        engine.key_watch.on_token_keys.append(self.validity.moved_all)
        self._colleagues: list[Colleague] = []
        self._up = self._stopping = False

    @property
    def pids(self) -> list[int]:
        """Of the doors that run now."""
        return [colleague.pid for colleague in self._colleagues]

    async def serve(
        self,
        sockets: Sequence[socket.socket],
        shutdown: trio.Event,
        *,
        task_status: trio.TaskStatus[list[tuple[str, int]]] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """As `api.server.serve`, by door processes. Raises EngineUnavailable where one does not come up at first."""
        self._front.bound = tuple(map(bound, sockets))
        room_for(self._count * self._engine.settings.max_connections)  # what they hold may all be held here too
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(Behind(self._front, self._engine.home, self._engine.keys).serve)
                async with trio.open_nursery() as keeping:
                    async with trio.open_nursery() as starting:
                        for _ in range(self._count):
                            starting.start_soon(keeping.start, self._keep, sockets, shutdown)
                    self._up = True
                    task_status.started(list(self._front.bound))
                    await shutdown.wait()
                    self._stopping = True
                    _close(sockets)  # nobody waits in a queue that nobody looks at
                    for colleague in self._colleagues:
                        colleague.channel.post(Stop())
                    keeping.cancel_scope.deadline = trio.current_time() + ENDING
                nursery.cancel_scope.cancel()
        finally:
            _close(sockets)

    async def configure(self) -> None:
        """Settings or keys were read anew: the doors go by them when this returns."""
        self.validity.moved_all()
        told = [colleague.configure(self._configuration()) for colleague in self._colleagues]
        with trio.move_on_after(TAKING_UP):
            for taken_up in told:
                await taken_up.wait()

    def _configuration(self) -> Configure:
        engine = self._engine
        # The key for challenges of a shared store may change at any time: its doors leave challenges to the engine.
        key = b"" if engine.store.shared else engine.sessions.challenge_key
        own = engine.own_key.openssh()
        return Configure(str(engine.home), as_plain(engine.settings), self._front.bound, own, key)

    async def _keep(
        self, sockets: Sequence[socket.socket], shutdown: trio.Event, task_status: trio.TaskStatus[None]
    ) -> None:
        """One door, again and again, until the end."""
        pause, ready = PAUSE, trio.Event()
        while not shutdown.is_set():
            began = trio.current_time()
            async with trio.open_nursery() as nursery:
                taken_up = trio.Event()
                nursery.start_soon(_tell_ready, taken_up, ready, task_status)
                end = await self._run_one(sockets, taken_up)
                nursery.cancel_scope.cancel()
            if not self._up and not ready.is_set():
                raise EngineUnavailable(f"a door process was not ready before its end ({end}): the log says why")
            if shutdown.is_set():
                return
            pause = PAUSE if trio.current_time() - began > STEADY else pause
            self._engine.records.notice("engine", self._engine.identity, "door_ended", end)
            with trio.move_on_after(pause):
                await shutdown.wait()
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _run_one(self, sockets: Sequence[socket.socket], taken_up: trio.Event) -> str:
        """A door from start to end; how it ended."""
        try:
            colleague = await self._start_one(sockets)
        except OSError as error:  # the host has no more processes or memory to give now
            return f"not started: {error.strerror}"
        self._colleagues.append(colleague)
        if self._stopping:  # the others have been told
            colleague.channel.post(Stop())
        try:
            return f"exit code {await colleague.live(self._configuration(), taken_up)}"
        finally:
            self._colleagues.remove(colleague)

    async def _start_one(self, sockets: Sequence[socket.socket]) -> Colleague:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = await self._spawn(theirs, sockets)
            except BaseException:
                ours.close()
                raise
        return Colleague(self._engine, self._lane, self.validity, process, ours)

    async def _spawn(self, channel: socket.socket, sockets: Sequence[socket.socket]) -> trio.Process:
        words = validity.readable(self._words)
        try:
            kept = (channel.fileno(), words, *(sock.fileno() for sock in sockets))
            program = [sys.executable, "-P", "-c", _PROGRAM, *map(str, kept)]
            return await trio.lowlevel.open_process(program, stdin=subprocess.DEVNULL, pass_fds=kept)
        finally:
            os.close(words)


async def _tell_ready(taken_up: trio.Event, ready: trio.Event, task_status: trio.TaskStatus[None]) -> None:
    await taken_up.wait()
    if not ready.is_set():
        ready.set()
        task_status.started()


def _close(sockets: Sequence[socket.socket]) -> None:
    for sock in sockets:
        sock.close()
