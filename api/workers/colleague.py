"""One door process as its engine knows it: what it asks is answered, what it counts is counted."""

from __future__ import annotations

import socket
from collections.abc import Awaitable
from typing import Any

import structlog
import trio

from api.http.call import json_answer
from api.http.lane import HotDoors
from api.transport.lane import LaneAnswer, LaneRequest
from api.workers.channel import Channel
from api.workers.hot import INSPECT
from api.workers.messages import Admit, Admitted, Ask, Configure, Counts, Enter, Ready, ToEngine, Told
from engine.engine import Engine
from engine.errors import Refusal
from engine.validity import Mark, Validity

log = structlog.get_logger(__name__)

LETTING_GO = 2.0
"""Seconds a door that has closed its channel has to end."""


class Colleague:
    """`channel` leads to it."""

    def __init__(
        self, engine: Engine, lane: HotDoors, validity: Validity, process: trio.Process, sock: socket.socket
    ) -> None:
        self._engine, self._lane, self._validity, self._process = engine, lane, validity, process
        self.channel: Channel[ToEngine] = Channel(sock, ToEngine, self._hear)
        self.pid = process.pid
        self._taken_up: list[trio.Event] = []

    def configure(self, told: Configure, taken_up: trio.Event | None = None) -> trio.Event:
        """Have it go by this; the event is set when it does."""
        taken_up = trio.Event() if taken_up is None else taken_up
        self._taken_up.append(taken_up)
        self.channel.post(told)
        return taken_up

    async def live(self, told: Configure, taken_up: trio.Event) -> int:
        """Work with it until it ends; its exit code. Cancelled, it is ended."""
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self.channel.write)
                self.configure(told, taken_up)
                await self._listen()
                self._nursery.cancel_scope.cancel()
            with trio.move_on_after(LETTING_GO):
                await self._process.wait()
        finally:
            self.channel.close()
            self._process.kill()
            with trio.CancelScope(shield=True):
                code = await self._process.wait()
        return code

    async def _listen(self) -> None:
        try:
            await self.channel.read()
        except Exception:
            log.exception("door_not_understood", pid=self.pid)  # it is ended, and started anew; the engine goes on

    def _hear(self, message: ToEngine) -> None:
        self._engine.keys.look_anew()
        match message:
            case Ask():
                self._answer(message)
            case Enter():
                self._nursery.start_soon(self._enter, message)
            case Admit():
                self._nursery.start_soon(self._admit, message)
            case Counts(rows):
                for row in rows:
                    self._engine.metrics.answered_elsewhere(row.method, row.path, row.status, row.buckets, row.seconds)
            case Ready():
                if self._taken_up:
                    self._taken_up.pop(0).set()

    def _answer(self, ask: Ask) -> None:
        reply: Any = None  # what fails here is the app's to answer
        try:
            reply = self._lane(ask.request)
        except Exception:
            log.exception("lane_failed")
        if isinstance(reply, Awaitable):
            self._nursery.start_soon(self._answer_later, ask, reply)
        elif reply is None or reply.status != 200:
            self._tell(ask, reply)
        else:
            self._tell(ask, reply, *self._kept_by(ask.request))

    async def _answer_later(self, ask: Ask, waiting: Awaitable[Any]) -> None:
        reply: Any = None
        try:
            reply = await waiting
        except Exception:
            log.exception("lane_failed")
        self._tell(ask, reply)

    def _tell(self, ask: Ask, reply: Any, mark: Mark | None = None, until: float = 0.0) -> None:
        answer = None if reply is None else LaneAnswer(reply.status, reply.headers, reply.body)
        self.channel.post(Told(ask.number, answer, mark, until))

    def _kept_by(self, request: LaneRequest) -> tuple[Mark | None, float]:
        """How long the door may give this answer again. Nothing has happened since it was made: nobody waited."""
        if not request.target.startswith(INSPECT.rstrip("/").encode()):
            return None, 0.0
        value = next((value for name, value in request.headers if name == b"authorization"), b"")
        try:
            holder = self._engine.sessions.holder(value.partition(b" ")[2].decode("ascii"))
        except (Refusal, UnicodeDecodeError):
            return None, 0.0
        return self._validity.mark(holder.session), self._engine.sessions.keep(holder)

    async def _enter(self, asked: Enter) -> None:
        answer = None
        try:
            answer = await self._lane.refused(asked.request)
        except Exception:
            log.exception("entry_failed")  # the whole request follows, and is refused as it should be
        self.channel.post(Told(asked.number, answer))

    async def _admit(self, asked: Admit) -> None:
        body: Any = None
        try:
            signed_in = await self._engine.sessions.admit(asked.challenge, asked.identity, asked.lifetime, asked.origin)
            body = json_answer(signed_in._asdict()).body
        except Refusal:
            pass  # the whole request follows, and is refused as it should be
        except Exception:
            log.exception("admission_failed")
        self.channel.post(Admitted(asked.number, body))
