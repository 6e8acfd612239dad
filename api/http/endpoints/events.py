"""`GET /api/events/`: every record as a server-sent event (WHATWG HTML, 9.2), resumed behind the last that was seen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from functools import lru_cache

from hatchway.api.http.endpoint import Invocation
from hatchway.api.http.request import Response
from hatchway.engine.base.errors import FileRefused, InvalidRequest
from hatchway.engine.base.permissions import MASTER
from hatchway.engine.journal.files import RecordLine
from hatchway.engine.journal.subscribers import SubscriberDropped

SHARED = 64
"""Lines at most that are formatted once for all readers who get the same ones."""

HEARTBEAT = 15.0
"""Seconds without an event after which a comment is sent, so that no proxy gives the stream up."""

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
    known = journal.last_seq
    after = known if last is None else min(last, known)
    # Sent at once, so that the reader knows that the stream is open: it has what happens from then on, however slowly
    # this is sent. With the id it can come back for that before it has seen any event.
    yield b"retry: 2000\nid: %d\n\n" % after
    if last is not None and last > known:  # the id is of another engine's log, or of one that was lost
        yield gap(last, known)
    reader = _Reader(invocation)
    with (
        suppress(SubscriberDropped),
        journal.subscribe(after, reader.look) as subscriber,
    ):  # a subscriber that is dropped may come back with its last id
        # Over while something was sent, the stream owes what was recorded meanwhile: the stop that ended it.
        while not reader.over or subscriber.after < journal.last_seq:
            lines = await subscriber.read()
            with suppress(FileRefused):  # which says that the stream is not allowed any more
                await invocation.engine.keys.settle()
            if not reader.is_allowed():
                break  # `lines` may tell of the end of the very session
            if lines:
                yield frames(after, lines)
                after = lines[-1].seq
            elif reader.quiet:
                yield b":\n\n"
            else:
                continue
            reader.spoke()


class _Reader:
    """Decides whether a stream goes on, and when a comment is due."""

    __slots__ = ("_engine", "_invocation", "_since", "over")

    def __init__(self, invocation: Invocation) -> None:
        self._engine, self._invocation = invocation.engine, invocation
        self.over = False
        self.spoke()

    def spoke(self) -> None:
        """Note that something was sent."""
        self._since = self._engine.clock.elapsed()

    @property
    def quiet(self) -> bool:
        """Whether nothing was sent for `HEARTBEAT` seconds."""
        return self._engine.clock.elapsed() - self._since >= HEARTBEAT

    def look(self) -> bool:
        """Whether the stream has something to do without a record: to end, with the engine or with the session that
        opened it, to wait until authorized_keys says whether that is still good, or to send a comment."""
        self.over = self._engine.stopping.is_set() or not self.is_allowed()
        return self.over or self.quiet or self._keys_unsettled()

    def _keys_unsettled(self) -> bool:
        with suppress(FileRefused):
            return not self._engine.keys.settled()
        return False

    def is_allowed(self) -> bool:
        """Whether the session that opened the stream is still good for it, from where it was opened."""
        return self._invocation.still_allows(MASTER)


def frames(after: int, lines: list[RecordLine]) -> bytes:
    """The records as server-sent events. Where numbers are missing, a `gap` says which."""
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
    """The event `gap`: the records after `after`, up to and with `until`, can't be had any more."""
    return b'event: gap\ndata: {"after":%d,"until":%d}\n\n' % (after, until)
