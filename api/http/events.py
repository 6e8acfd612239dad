"""`GET /api/events/`: every record as a server-sent event (WHATWG HTML, 9.2), resumed where a reader left off."""

from __future__ import annotations

from collections.abc import AsyncIterator

import trio

from api.http.call import Answer
from api.http.door import Visit, bearer
from engine.errors import InvalidRequest, Refusal
from engine.journal import FollowerDropped
from engine.journal_files import Line
from engine.sessions import require
from engine.trust.permissions import MASTER

TOGETHER = 0.02
"""Seconds that records are gathered before they are sent, so that many readers of many records cost little."""

CHECKED = 1.0
"""Seconds between two looks whether the reader's session still holds."""

HEARTBEAT = 15.0
"""Seconds after which a comment keeps a quiet stream awake."""

_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
)


def events(visit: Visit) -> Answer:
    """The stream: from now on, or from the record after `Last-Event-ID`. Raises InvalidRequest."""
    return Answer(200, _frames(visit, _last_id(visit)), _HEADERS)


def _last_id(visit: Visit) -> int | None:
    given = visit.call.header(b"last-event-id")
    if not given:
        return None
    if not given.isdigit() or len(given) > 18:
        raise InvalidRequest({"Last-Event-ID": "must be the id of an event of this stream"})
    return int(given)


async def _frames(visit: Visit, last: int | None) -> AsyncIterator[bytes]:
    journal, now = visit.engine.journal, visit.engine.clock.elapsed
    yield b"retry: 2000\n\n"  # at once, so that the reader knows that it is heard
    after = journal.last_seq if last is None else last
    if after > journal.last_seq:  # an id of another log, or of one that was lost
        yield gap(after, journal.last_seq)
        after = journal.last_seq
    spoke = checked = now()
    with journal.follow(after) as follower:
        while not visit.engine.stopping.is_set():
            if now() - checked >= CHECKED:
                checked = now()
                if not _still_allowed(visit):
                    return
            try:
                lines = await follower.read()
            except FollowerDropped:
                return  # it may come back with its last id
            if lines:
                yield frames(after, lines)
                after, spoke = lines[-1].seq, now()
                await trio.sleep(TOGETHER)
            elif now() - spoke >= HEARTBEAT:
                spoke = now()
                yield b":\n\n"


def frames(after: int, lines: list[Line]) -> bytes:
    """The lines as events; where some between are lacking, a `gap` says which."""
    parts = []
    for line in lines:
        if line.seq != after + 1:
            parts.append(gap(after, line.seq - 1))
        parts.append(b"id: %d\ndata: %s\n\n" % line)
        after = line.seq
    return b"".join(parts)


def gap(after: int, until: int) -> bytes:
    """What a reader has missed for good: the records after `after`, up to and with `until`."""
    return b'event: gap\ndata: {"after":%d,"until":%d}\n\n' % (after, until)


def _still_allowed(visit: Visit) -> bool:
    """The stream ends with the session that opened it."""
    try:
        require(visit.engine.sessions.holder(bearer(visit.call)), MASTER)
    except Refusal:
        return False
    return True
