"""The hot doors without ASGI: plain requests that the server's lane recognised, answered from the table of doors."""

from __future__ import annotations

from collections.abc import Awaitable
from urllib.parse import unquote

from api.http.call import NOSNIFF, Answer, Call
from api.http.door import Door
from api.http.front import Front, spellings
from api.http.proxies import forwarded_for
from api.transport.lane import LaneAnswer, LaneRequest
from engine.engine import Engine
from engine.errors import Refusal

_NO_PARAMS: dict[str, str] = {}
"""No hot door has any in its path."""


class HotDoors:
    """What `api.server.serve` takes as its lane. Whatever it does not answer itself (None) is the app's, and whole."""

    def __init__(self, engine: Engine, front: Front, doors: tuple[Door, ...]) -> None:
        self._engine, self._front = engine, front
        self._doors = {
            (door.method.encode(), path.encode()): (door, path)
            for door in doors
            if door.hot
            for path in spellings(door.path)
        }

    def __call__(self, request: LaneRequest) -> LaneAnswer | Awaitable[LaneAnswer] | None:
        target, _, query = request.target.partition(b"?")
        found = self._doors.get((request.method, target))
        settings = self._engine.settings
        if found is None or not settings.lane or len(request.body) > settings.limits.body_bytes:
            return None
        door, path = found
        headers, peer = tuple(request.headers), request.peer[0] if request.peer else ""
        try:
            self._front.screen(path, headers, peer, request.server)
        except Refusal:
            return None
        forwarded = forwarded_for(headers, peer, settings.trusted_proxies)
        name = self._front.request_id()
        answer = self._front.respond(
            door, Call(door.method, path, query, headers, request.body, peer, forwarded, name, _NO_PARAMS)
        )
        return _reply(answer) if isinstance(answer, Answer) else _later(answer)

    async def refused(self, request: LaneRequest) -> LaneAnswer | None:
        """What refuses a request at any door before its body is read; None where the body may come."""
        target, _, query = request.target.partition(b"?")
        path, headers = unquote(target.decode("ascii")), tuple(request.headers)
        method, peer = request.method.decode("ascii"), request.peer[0] if request.peer else ""
        door = self._front.door(method, path)
        if door is None:
            return None
        forwarded = forwarded_for(headers, peer, self._engine.settings.trusted_proxies)
        name = self._front.request_id()
        answer = await self._front.refused(
            door, Call(method, path, query, headers, b"", peer, forwarded, name, _NO_PARAMS)
        )
        return None if answer is None else _reply(answer)


async def _later(waiting: Awaitable[Answer]) -> LaneAnswer:
    return _reply(await waiting)


def _reply(answer: Answer) -> LaneAnswer:
    assert isinstance(answer.body, bytes)  # no hot door is a stream
    return LaneAnswer(answer.status, (*answer.headers, NOSNIFF), answer.body)
