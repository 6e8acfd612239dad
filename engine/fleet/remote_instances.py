"""The instances of other engines: listed from the roster, stopped and read by remote calls to their engines."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import TypeVar

import msgspec
import trio

from hatchway.engine.base.errors import HostUnavailable, InstanceNotFound, TooManyRequests
from hatchway.engine.fleet.remote_calls import RETRY_AFTER, Caller, NoReply, RemoteCalls
from hatchway.engine.fleet.roster import InstanceReport, Roster, Row, generation_of, without_values
from hatchway.engine.instances import output
from hatchway.engine.instances.all_instances import InstanceView
from hatchway.engine.instances.instances import Instances, is_live
from hatchway.engine.instances.protocol import Stream
from hatchway.engine.instances.tails import LogFile
from hatchway.engine.runtime.records import Origin
from hatchway.statecharts import instance

READ_HELD = 2.0
"""Seconds that an engine holds a call for more of a log while there is none."""

READ_WITHIN, STOPPED_WITHIN = 12.0, 120.0
"""Seconds in which a piece of a log must come, and in which a stop must end; else the instance's host is
unavailable."""

READ_AT_ONCE = 64
"""Logs of other engines that are read at once by clients of this one: each piece passes through the fleet's store."""

_encode = msgspec.msgpack.encode
T = TypeVar("T")


class StopRequest(msgspec.Struct, array_like=True):
    """Which instance to stop, and for whom. The engine that makes the call has checked that they may."""

    name: str
    origin: Origin


class ReadRequest(msgspec.Struct, array_like=True):
    """Asks for the piece of a log at `position`, of the instance of that generation; `follow` waits until there is
    one."""

    name: str
    generation: str
    stream: Stream
    position: int
    follow: bool


class Piece(msgspec.Struct, array_like=True):
    """A piece of a log, the position behind it, where the log ends now, and whether it has ended for good."""

    data: bytes
    after: int
    end: int
    over: bool


class RemoteInstances:
    """The `FleetInstances` of one engine: what the other engines have told of theirs, and calls to stop and read
    them."""

    def __init__(self, roster: Roster, calls: RemoteCalls) -> None:
        self._roster, self._calls = roster, calls
        self._reading = 0

    async def all(self) -> list[InstanceView]:
        return [_seen(row) for row in await self._roster.rows() if row.engine_id != self._roster.engine_id]

    async def find(self, name: str) -> InstanceView | None:
        row = await self._roster.row(name)
        return None if row is None or row.engine_id == self._roster.engine_id else _seen(row)

    async def taken_by(self, name: str) -> str | None:
        """The host of another engine where an instance of that name is live, None where there is none. Raises
        StoreUnavailable."""
        seen = await self.find(name)
        return None if seen is None or seen.state in instance.CHART.final else seen.host

    async def stop(self, seen: InstanceView, origin: Origin) -> InstanceView:
        told = await self._call(seen, "stop", StopRequest(seen.identity, origin), InstanceReport, STOPPED_WITHIN)
        return seen._replace(state=told.state, progress=told.progress, facts=told.facts)

    async def read(
        self, seen: InstanceView, stream: Stream, goes_on: Callable[[], bool] | None
    ) -> AsyncGenerator[bytes, None]:
        if self._reading >= READ_AT_ONCE:
            words = f"{READ_AT_ONCE} logs of other hosts are read here already; ask the engine on {seen.host} itself"
            raise TooManyRequests(words, retry_after=5)
        ask = ReadRequest(seen.identity, generation_of(seen.facts), stream, 0, goes_on is not None)
        pieces = self._pieces(seen, ask, goes_on)
        await anext(pieces)
        return pieces

    async def _pieces(
        self, seen: InstanceView, ask: ReadRequest, goes_on: Callable[[], bool] | None
    ) -> AsyncGenerator[bytes, None]:
        """The pieces of a log. The first is empty and comes with the other engine's first reply, so that a refusal is
        raised before a response begins. The read counts for `READ_AT_ONCE` from its start."""
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

    async def _next(self, seen: InstanceView, ask: ReadRequest) -> Piece:
        return await self._call(seen, "read", ask, Piece, READ_WITHIN)

    async def _call(self, seen: InstanceView, method: str, request: msgspec.Struct, reply: type[T], within: float) -> T:
        try:
            body = await self._calls.call(seen.run_id, method, _encode(request), within)
        except NoReply:
            words = f"the engine on {seen.host}, which runs the instance, does not answer; try again once it does"
            raise HostUnavailable(words, retry_after=RETRY_AFTER) from None
        return msgspec.msgpack.decode(body, type=reply)


class InstanceServer:
    """Serves stops and reads of this engine's instances to the other engines."""

    def __init__(self, calls: RemoteCalls, instances: Instances, is_stopping: Callable[[], bool]) -> None:
        self._instances, self._is_stopping = instances, is_stopping
        calls.serve("stop", self._stop)
        calls.serve("read", self._read)

    async def _stop(self, body: bytes, caller: Caller) -> bytes:
        asked = msgspec.msgpack.decode(body, type=StopRequest)
        actor = await self._instances.stop(asked.name, asked.origin)
        facts = msgspec.structs.replace(actor.facts, request=without_values(actor.facts.request))
        return _encode(InstanceReport(actor.state, None, facts))

    async def _read(self, body: bytes, caller: Caller) -> bytes:
        asked = msgspec.msgpack.decode(body, type=ReadRequest)
        actor = self._instances.show(asked.name)
        if generation_of(actor.facts) != asked.generation:
            raise InstanceNotFound("another instance has that name by now")
        log = LogFile(*self._instances.log(actor, asked.stream))
        with trio.move_on_after(READ_HELD):
            while True:
                last = not is_live(actor) or self._is_stopping()  # asked before the reading: an ended log doesn't grow
                data, after = output.piece(*log, asked.position, output.CHUNK)
                if data or last or not asked.follow:
                    return _encode(Piece(data, after, output.end(*log), last and not data))
                await self._instances.tails.news(log, asked.position, lambda: is_live(actor), self._is_stopping)
        return _encode(Piece(b"", asked.position, output.end(*log), over=False))


def _seen(row: Row) -> InstanceView:
    told = row.told
    return InstanceView(row.name, told.state, told.progress, told.facts, row.host, row.answers, row.run_id)
