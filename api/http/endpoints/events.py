"""`GET /api/events/`: every record as a server-sent event (WHATWG HTML, 9.2), resumed where a reader left off."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from functools import lru_cache

from hatchway.api.http.endpoint import Invocation, bearer
from hatchway.api.http.request import Request, Response
from hatchway.engine.access.principal import require
from hatchway.engine.base.errors import InvalidRequest, Refusal
from hatchway.engine.base.permissions import MASTER
from hatchway.engine.engine import Engine
from hatchway.engine.journal.files import RecordLine
from hatchway.engine.journal.subscribers import SubscriberDropped

SHARED = 64
"""Lines at most that are put together once for all readers who are sent the same."""

HEARTBEAT = 15.0
"""Seconds after which a comment keeps a quiet stream awake."""

_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
)


def events(invocation: Invocation) -> Response:
    """The stream: from now on, or from the record after `Last-Event-ID`. Raises InvalidRequest."""
    return Response(200, b"", _HEADERS, _frames(invocation, _last_id(invocation)))


def _last_id(invocation: Invocation) -> int | None:
    given = invocation.request.header(b"last-event-id")
    if not given:
        return None
    if not given.isdigit() or len(given) > 18:
        raise InvalidRequest({"Last-Event-ID": "must be the id of an event of this stream"})
    return int(given)


async def _frames(invocation: Invocation, last: int | None) -> AsyncIterator[bytes]:
    journal = invocation.engine.journal
    yield b"retry: 2000\n\n"  # at once, so that the reader knows that it is heard
    after = journal.last_seq if last is None else last
    if after > journal.last_seq:  # an id of another log, or of one that was lost
        yield gap(after, journal.last_seq)
        after = journal.last_seq
    reader = _Reader(invocation.engine, invocation.request)
    with (
        suppress(SubscriberDropped),
        journal.subscribe(after, reader.look) as subscriber,
    ):  # it may come back with its last id
        while not reader.over:
            lines = await subscriber.read()
            if lines:
                yield frames(after, lines)
                after = lines[-1].seq
            elif reader.quiet:
                yield b":\n\n"
            else:
                continue
            reader.spoke()


class _Reader:
    """What decides whether a stream goes on, and when it is kept awake."""

    __slots__ = ("_engine", "_request", "_since", "over")

    def __init__(self, engine: Engine, request: Request) -> None:
        self._engine, self._request = engine, request
        self.over = False
        self.spoke()

    def spoke(self) -> None:
        """Something was sent."""
        self._since = self._engine.clock.elapsed()

    @property
    def quiet(self) -> bool:
        """Whether nothing was sent for so long that a proxy might give up."""
        return self._engine.clock.elapsed() - self._since >= HEARTBEAT

    def look(self) -> bool:
        """Whether there is something to do: the stream ends with the engine, and with the session that opened it."""
        self.over = self._engine.stopping.is_set() or not self._allowed()
        return self.over or self.quiet

    def _allowed(self) -> bool:
        try:
            require(self._engine.sessions.authenticate(bearer(self._request)), MASTER)
        except Refusal:
            return False
        return True


def frames(after: int, lines: list[RecordLine]) -> bytes:
    """The lines as events; where some between are lacking, a `gap` says which."""
    return _shared(after, tuple(lines)) if len(lines) <= SHARED else _frames_of(after, lines)


def _frames_of(after: int, lines: Iterable[RecordLine]) -> bytes:
    parts = []
    for line in lines:
        if line.seq != after + 1:
            parts.append(gap(after, line.seq - 1))
        parts.append(b"id: %d\ndata: %s\n\n" % line)
        after = line.seq
    return b"".join(parts)


_shared = lru_cache(maxsize=4)(_frames_of)


def gap(after: int, until: int) -> bytes:
    """What a reader has missed for good: the records after `after`, up to and with `until`."""
    return b'event: gap\ndata: {"after":%d,"until":%d}\n\n' % (after, until)
