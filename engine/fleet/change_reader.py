"""Keeps an engine's memory of the fleet's sessions complete: a message says that one moved, the stored value counts.

The changes are numbered, and stay in the store for ten minutes. The last one that an engine has heard of is its place
among them: while the store still has that very entry, all that came before it is in the memory, and reading goes on
behind it, after a lost connection too. What this engine changed itself and has not heard of yet is read anew then, as a
failover may have lost it. Where the entry is gone, as after a failover to a server that never had it, the versions of
all sessions are compared.

An engine that starts has none of them. It notes its place, and takes them up page by page between its reads of the
changes, while it answers: a session that is not here yet is read from the store when somebody asks with its token.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

import structlog
import trio

from hatchway.engine.base.clock import Clock
from hatchway.engine.base.errors import StoreUnavailable
from hatchway.engine.runtime import UNKNOWN, Runtime
from hatchway.engine.store.redis import CHANGES, COUNTER, IDENTITY, RedisStore
from hatchway.engine.store.redis_link import RETRY_AFTER, RedisLink

log = structlog.get_logger(__name__)

SHARED_CHARTS = ("session",)
"""Charts whose actors every engine of the fleet has in memory."""

IDENTITY_INTERVAL = 0.2
"""Seconds between two checks that the store still has the fleet's identity."""

GATHER_PAUSE = 0.02
"""Seconds after a read that brought changes, until the next: changes that come meanwhile are taken up together, at a
fraction of the cost."""

FAULT = "this engine can't follow what the others of the fleet do; its log has why"

BLOCK_MS = 200
COUNT = 500
BATCH = 200

Deliver = Callable[[dict[str, bytes]], None]
"""Takes the fields of one message of the inbox. Must not wait."""

Follow = Callable[[], Awaitable[None]]
"""Has a copy of something else in the store, as the files of the fleet's keys are, read anew from there."""

Ask = Callable[..., Awaitable[Any]]


class LastChange(NamedTuple):
    """The last change that an engine has heard of: its id in the stream, its number, and its fields."""

    id: bytes
    number: int
    fields: Mapping[bytes, bytes]


async def last_change(ask: Ask) -> LastChange:
    """The last change that was made. What is read from the store behind this call has that change in it."""
    last = await ask(b"XREVRANGE", CHANGES.encode(), b"+", b"-", b"COUNT", b"1")
    if last:
        return _change(*last[0])
    return LastChange(b"0-0", int(await ask(b"GET", COUNTER.encode()) or 0), {})


class ChangeReader:
    """Reads the store's changes and this engine's inbox.

    `confirmed_at` is the latest time, in elapsed seconds, at which the memory is known to have been complete.
    """

    def __init__(
        self,
        link: RedisLink,
        store: RedisStore,
        clock: Clock,
        runtime: Runtime,
        inbox: str,
        deliver: Deliver,
        mirrors: Mapping[str, Follow],
        whole: trio.Event,
    ) -> None:
        """`whole` is set once all sessions of the fleet are in the memory."""
        self._link, self._store, self._clock, self._runtime = link, store, clock, runtime
        self._inbox, self._inbox_at, self._deliver = inbox, b"0-0", deliver
        self._mirrors, self._whole = mirrors, whole
        self._heard: LastChange | None = None
        self._cursor = 0
        """Where the next page of sessions begins that are to be taken up."""
        self._identified = -inf
        self.confirmed_at = -inf
        self.lost: StoreUnavailable | None = None
        """Why changes are not read; None while they are."""
        self._confirmed = trio.Event()

    async def run(self) -> None:
        """Read, for ever."""
        while True:
            try:
                async with self._link.one_connection() as ask:
                    heard = await self._take_up(ask)
                    while True:
                        heard = self._heard = await self._read(ask, heard)
                        if not self._whole.is_set():
                            await self._take_up_page()
                        if self.lost is not None:
                            self.lost = None
                            log.info("store_followed_again")
            except StoreUnavailable as lost:
                if self.lost is None:
                    log.warning("store_not_followed", why=lost.why)
                self.lost = lost
            except Exception as fault:
                if self.lost is None or self.lost.why != repr(fault):  # said once, however often it comes again
                    log.exception("store_not_followed")
                self.lost = StoreUnavailable(FAULT, why=repr(fault), retry_after=RETRY_AFTER)
            await trio.sleep(0.05)

    async def _check_identity(self, ask: Ask, now: float) -> None:
        """Raises StoreUnavailable where the store was emptied: no message would tell of the sessions that ended by
        it."""
        if now - self._identified >= IDENTITY_INTERVAL:
            self._store.check_identity(await ask(b"GET", IDENTITY.encode()))
            self._identified = now

    async def wait_confirmed(self) -> None:
        """Wait until the memory is confirmed once more."""
        await self._confirmed.wait()

    async def _take_up(self, ask: Ask) -> LastChange:
        """Where to go on reading on a new connection, once the memory holds all that is before that place."""
        self._identified, self._cursor = -inf, 0
        await self._check_identity(ask, self._clock.elapsed())
        unheard = set(self._store.unheard)
        if not self._whole.is_set() and not any(any(self._runtime.actors(chart)) for chart in SHARED_CHARTS):
            self._heard = await last_change(ask)  # the memory has nothing that could be behind it
        elif self._heard is not None and await self._is_there(ask, self._heard):
            for chart in SHARED_CHARTS:
                await self._runtime.absorb(chart, {name: UNKNOWN for moved, name, _ in unheard if moved == chart})
        else:
            heard = await last_change(ask)
            for chart in SHARED_CHARTS:
                await self._compare(chart)
            self._heard = heard
            self._whole.set()
            log.info("sessions_compared")
        self._store.unheard.difference_update(unheard)
        for follow in self._mirrors.values():
            await follow()
        return self._heard

    async def _take_up_page(self) -> None:
        """The next sessions. What changes once they were read is in the store's changes, which are read after this;
        what this engine itself changes meanwhile, and has not heard of, must not be put back."""
        for chart in SHARED_CHARTS:
            self._cursor, found = await self._store.page(chart, self._cursor)
            unheard = {name for _, name, _ in self._store.unheard}
            self._runtime.take_up(chart, [(name, stored) for name, stored in found.items() if name not in unheard])
        if self._cursor == 0:
            self._whole.set()
            log.info("sessions_taken_up")

    async def _is_there(self, ask: Ask, heard: LastChange) -> bool:
        held = await ask(b"XREVRANGE", CHANGES.encode(), heard.id, heard.id, b"COUNT", b"1")
        return bool(held) and _change(*held[0]) == heard

    async def _compare(self, chart: str) -> None:
        """Take up every actor of which the store has another version than the memory."""
        unseen, cursor = {actor.id for actor in self._runtime.actors(chart)}, 0
        while True:
            cursor, versions = await self._store.versions(chart, cursor)
            unseen.difference_update(versions)
            await self._absorb(chart, versions)
            if cursor == 0:
                break
        await self._absorb(chart, dict.fromkeys(unseen, 0))

    async def _absorb(self, chart: str, versions: Mapping[str, int]) -> None:
        known = ((name, self._runtime.peek(chart, name)) for name in versions)
        moved = [name for name, actor in known if versions[name] != (actor.version if actor else 0)]
        for start in range(0, len(moved), BATCH):
            await self._runtime.absorb(chart, {name: versions[name] for name in moved[start : start + BATCH]})

    async def _read(self, ask: Ask, heard: LastChange) -> LastChange:
        sent = self._clock.elapsed()
        streams = (CHANGES.encode(), self._inbox.encode(), heard.id, self._inbox_at)
        block = (b"BLOCK", BLOCK_MS) if self._whole.is_set() else ()
        reply = await ask(b"XREAD", b"COUNT", COUNT, *block, b"STREAMS", *streams)
        read: Mapping[bytes, Sequence[Any]] = dict(reply or {})
        await self._check_identity(ask, sent)
        changes = [_change(*entry) for entry in read.get(CHANGES.encode(), ())]
        heard = await self._take_changes(changes, heard)
        for message, entry in read.get(self._inbox.encode(), ()):
            fields, self._inbox_at = _fields(entry), message
            self._deliver({name.decode(): value for name, value in fields.items()})
        if len(changes) < COUNT:
            self.confirmed_at = sent
            confirmed, self._confirmed = self._confirmed, trio.Event()
            confirmed.set()
            if changes:
                await trio.sleep(GATHER_PAUSE)
        return heard

    async def _take_changes(self, changes: Sequence[LastChange], heard: LastChange) -> LastChange:
        """Take up what these changes moved, which come behind `heard`. Returns the last of them."""
        moved: dict[str, dict[str, int]] = {}
        told = set()
        for change in changes:
            entry = _entry(change)
            if change.number != heard.number + 1 or entry is None:
                self._heard = None  # so that all sessions are compared
                raise StoreUnavailable("messages are missing", cause="gap")
            heard = change
            chart, name, version = entry
            moved.setdefault(chart, {})[name] = version
            told.add(entry)
        for chart, versions in moved.items():
            if chart in SHARED_CHARTS:
                await self._runtime.absorb(chart, versions)
            elif chart in self._mirrors:
                await self._mirrors[chart]()
        # Not before they are taken up: where that failed, this engine's own must be read anew.
        self._store.unheard.difference_update(told)
        return heard


def _change(id: bytes, entry: Any) -> LastChange:
    fields = _fields(entry)
    number = fields.get(b"n", b"")
    return LastChange(id, int(number) if number.isdigit() else 0, fields)


def _entry(change: LastChange) -> tuple[str, str, int] | None:
    """To which version `v` the actor `a` of the chart `c` was moved, as chart, actor and version; None where the change
    is none of an engine's, and can't be decoded."""
    try:
        chart, name, version = (change.fields[field].decode() for field in (b"c", b"a", b"v"))
        return chart, name, int(version)
    except (KeyError, ValueError):
        return None


def _fields(entry: Any) -> dict[bytes, bytes]:
    return dict(entry) if isinstance(entry, dict) else dict(zip(entry[::2], entry[1::2], strict=True))
