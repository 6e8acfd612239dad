"""The instances of other engines: listed from the roster, stopped and read by asking the engine that runs them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import TypeVar

import msgspec
import trio

from engine.errors import InstanceNotFound, TooManyRequests
from engine.fleet.questions import Questions, away
from engine.fleet.roster import Roster, Row, Told, life_of, without_values
from engine.instances import Instances, Seen, is_live
from engine.platform import output
from engine.platform.protocol import Stream
from engine.platform.tails import Log
from engine.records import Origin

HELD = 2.0
"""Seconds that an engine holds the question for more of a log while there is none."""

READ_WITHIN, STOPPED_WITHIN = 12.0, 120.0
"""Seconds in which a piece of a log must come, and an instance have ended, before its engine counts as away."""

READ_AT_ONCE = 64
"""Logs of other engines that one engine hands on at once: each piece passes through the fleet's store."""

_encode = msgspec.msgpack.encode
T = TypeVar("T")


class Stop(msgspec.Struct, array_like=True):
    """Who stops what; the door where they asked has looked at what they may."""

    name: str
    origin: Origin


class Read(msgspec.Struct, array_like=True):
    """A piece of a log from `position`, of the instance of that life; `follow` waits for one."""

    name: str
    life: str
    stream: Stream
    position: int
    follow: bool


class Piece(msgspec.Struct, array_like=True):
    """What is there, the position behind it, where the log ends now, and whether that is its end."""

    data: bytes
    after: int
    end: int
    over: bool


class Neighbours:
    """What `Instances` has beside its own in a fleet, and what it does for the others."""

    def __init__(
        self, roster: Roster, questions: Questions, instances: Instances, is_stopping: Callable[[], bool]
    ) -> None:
        self._roster, self._questions, self._instances = roster, questions, instances
        self._is_stopping = is_stopping
        self._reading = 0
        questions.answerers |= {"stop": self._stop_here, "read": self._read_here}

    async def all(self) -> list[Seen]:
        return [_seen(row) for row in await self._roster.rows() if row.home != self._roster.home]

    async def find(self, name: str) -> Seen | None:
        row = await self._roster.row(name)
        return None if row is None or row.home == self._roster.home else _seen(row)

    async def stop(self, seen: Seen, origin: Origin) -> Seen:
        told = await self._ask(seen, "stop", Stop(seen.identity, origin), Told, STOPPED_WITHIN)
        return seen._replace(state=told.state, progress=told.progress, facts=told.facts)

    async def read(self, seen: Seen, stream: Stream, goes_on: Callable[[], bool] | None) -> AsyncGenerator[bytes, None]:
        if self._reading >= READ_AT_ONCE:
            words = f"{READ_AT_ONCE} logs of other hosts are read here already; ask the engine on {seen.host} itself"
            raise TooManyRequests(words, retry_after=5)
        ask = Read(seen.identity, life_of(seen.facts), stream, 0, goes_on is not None)
        pieces = self._pieces(seen, ask, goes_on)
        await anext(pieces)
        return pieces

    async def _pieces(self, seen: Seen, ask: Read, goes_on: Callable[[], bool] | None) -> AsyncGenerator[bytes, None]:
        """The first one is empty, and comes once the other engine has answered: from before that on it is counted."""
        self._reading += 1
        try:
            piece = await self._next(seen, ask)
            end = piece.end
            yield b""
            while goes_on is None or goes_on():
                data = piece.data if goes_on is not None else piece.data[: end - ask.position]
                ask.position = piece.after
                if data:
                    yield data
                if piece.over or (goes_on is None and (not data or ask.position >= end)):
                    return
                piece = await self._next(seen, ask)
        finally:
            self._reading -= 1

    async def _next(self, seen: Seen, ask: Read) -> Piece:
        return await self._ask(seen, "read", ask, Piece, READ_WITHIN)

    async def _ask(self, seen: Seen, what: str, asked: msgspec.Struct, answer: type[T], within: float) -> T:
        if not seen.answers:
            raise away(seen.host)
        return msgspec.msgpack.decode(
            await self._questions.ask(seen.run, seen.host, what, _encode(asked), within), type=answer
        )

    # For the others

    async def _stop_here(self, body: bytes) -> bytes:
        asked = msgspec.msgpack.decode(body, type=Stop)
        actor = await self._instances.stop(asked.name, asked.origin)
        facts = msgspec.structs.replace(actor.facts, request=without_values(actor.facts.request))
        return _encode(Told(actor.state, None, facts))

    async def _read_here(self, body: bytes) -> bytes:
        asked = msgspec.msgpack.decode(body, type=Read)
        actor = self._instances.show(asked.name)
        if life_of(actor.facts) != asked.life:
            raise InstanceNotFound("another instance has that name by now")
        log = Log(*self._instances.log(actor, asked.stream))
        with trio.move_on_after(HELD):
            while True:
                last = not is_live(actor) or self._is_stopping()  # asked first: nothing is written after an end
                data, after = output.piece(*log, asked.position, output.CHUNK)
                if data or last or not asked.follow:
                    return _encode(Piece(data, after, output.end(*log), last and not data))
                await self._instances.tails.news(log, asked.position, lambda: is_live(actor), self._is_stopping)
        return _encode(Piece(b"", asked.position, output.end(*log), over=False))


def _seen(row: Row) -> Seen:
    told = row.told
    return Seen(row.name, told.state, told.progress, told.facts, row.host, row.answers, row.run)
