"""The fleet's store: actors in Redis or Valkey, each change one script that also tells the other engines."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import structlog
import trio

from hatchway.engine.base.errors import StoreUnavailable
from hatchway.engine.store.facts import share_texts
from hatchway.engine.store.protocol import AlreadyUsed, Change, Once, Stored, VersionMoved, new_identity
from hatchway.engine.store.redis_link import RedisLink
from hatchway.engine.store.scripts import COMMIT

log = structlog.get_logger(__name__)

PREFIX = "hatchway:"
CHANGES, COUNTER, IDENTITY = PREFIX + "changes", PREFIX + "changes:n", PREFIX + "identity"

COMMIT_WITHIN = 1.5
"""Seconds in which a commit whose answer was lost is sent again, under the same tag."""

EMPTIED = "it was emptied, or another is in its place: restart the engine"
"""Why a store with another identity than at the start is refused: a session that ended here might be live there."""

AGAIN = 0.05
PAGE = 200
"""Actors that are read at once: few, since an engine answers others meanwhile."""


class RedisStore:
    """The store of several engines. A change that was confirmed is in the server, and with Sentinel in a replica
    too."""

    shared = True
    shields_commit = False

    def __init__(self, link: RedisLink) -> None:
        self.link = link
        self.fleet = ""
        """The identity of the fleet that the store belongs to; empty until `identity` was called."""
        self.unheard: set[tuple[str, str, int]] = set()
        """Chart, actor and version (0 for gone) of each change sent from here that its reader has not heard of yet."""
        self._decode: dict[str, Callable[[bytes], tuple[str, float | None, msgspec.Struct]]] = {}
        self._not_understood: set[tuple[str, str]] = set()
        """Chart and name of each actor that was logged since its value can't be decoded."""

    def define(self, facts: Mapping[str, type[msgspec.Struct]]) -> None:
        for chart, kind in facts.items():
            shape: Any = tuple[str, float | None, kind]  # type: ignore[valid-type]
            self._decode[chart] = msgspec.msgpack.Decoder(shape).decode

    async def load(self, chart: str, actor: str) -> Stored | None:
        """As the protocol says. Raises a MsgspecError or ValueError where the value can't be decoded."""
        (value,) = await self._values(chart, [actor])
        return None if value is None else self._read(chart, value)

    async def load_many(self, chart: str, actors: Sequence[str]) -> list[Stored | None]:
        """As the protocol says; an actor whose value can't be decoded is as one that is gone."""
        values = await self._values(chart, actors)
        return [
            None if value is None else self._understood(chart, name, value)
            for name, value in zip(actors, values, strict=True)
        ]

    async def _values(self, chart: str, actors: Sequence[str]) -> Sequence[bytes | None]:
        values: Sequence[bytes | None] = await self.link.call(lambda client: client.hmget(_actors(chart), list(actors)))
        return values

    async def live(self, chart: str) -> list[tuple[str, Stored]]:
        found: dict[str, Stored] = {}
        cursor = 0
        while True:
            cursor, page = await self.page(chart, cursor)
            found |= page
            if cursor == 0:
                return list(found.items())

    async def page(self, chart: str, cursor: int) -> tuple[int, dict[str, Stored]]:
        """Some stored actors by name, from `cursor` on, and the cursor of the next: it is 0 first and last.

        An actor that is made meanwhile may be missing. One whose value can't be decoded is. Another server has other
        cursors.
        """
        cursor, page = await self._page(chart, cursor)
        read = ((name, self._understood(chart, name, value)) for name, value in page.items())
        return cursor, {name: stored for name, stored in read if stored is not None}

    async def versions(self, chart: str, cursor: int) -> tuple[int, dict[str, int]]:
        """As `page`, of the actors' versions alone. A value that does not even tell a version counts as gone."""
        cursor, page = await self._page(chart, cursor)
        versions = ((name, value.partition(b":")[0]) for name, value in page.items())
        return cursor, {name: int(version) for name, version in versions if version.isdigit()}

    async def _page(self, chart: str, cursor: int) -> tuple[int, dict[str, bytes]]:
        cursor, page = await self.link.call(lambda client: client.hscan(_actors(chart), cursor, count=PAGE))
        return cursor, {name.decode(errors="replace"): value for name, value in page.items()}

    def _understood(self, chart: str, name: str, value: bytes) -> Stored | None:
        """The actor; None where its value can't be decoded, which is logged once: one must not hide all others."""
        try:
            return self._read(chart, value)
        except (msgspec.MsgspecError, ValueError) as fault:
            if (chart, name) not in self._not_understood:
                self._not_understood.add((chart, name))
                log.warning("actor_not_understood", chart=chart, actor=name, why=str(fault))
            return None

    def _read(self, chart: str, value: bytes) -> Stored:
        version, _, packed = value.split(b":", 2)
        state, deadline, facts = self._decode[chart](packed)
        return Stored(int(version), sys.intern(state), deadline, share_texts(facts))

    async def commit(self, change: Change) -> None:
        stored, once, tag = change.stored, change.once, secrets.token_hex(8)
        value = b""
        if stored is not None:
            value = pack(stored, tag)
        used = PREFIX + "used:" + (once.key.hex() if once else "")
        keys = (_actors(change.chart), CHANGES, COUNTER, f"{PREFIX}done:{tag}", used, IDENTITY)
        version = stored.version if stored else 0
        args = (change.actor, change.chart, change.expected, version, value, tag, *_milliseconds(once), self.fleet)
        moved = (change.chart, change.actor, version)
        self.unheard.add(moved)
        answer = await self._insist(moved, keys, args)
        if answer != b"OK":
            self.unheard.discard(moved)
        if answer == b"EMPTIED":
            raise self.link.give_up(EMPTIED)
        if answer == b"MOVED":
            raise VersionMoved
        if answer == b"USED":
            raise AlreadyUsed("used before")

    async def _insist(self, moved: tuple[str, str, int], keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run the commit's script, again where its answer was lost. Raises StoreUnavailable after `COMMIT_WITHIN`
        seconds: then nobody knows whether the change was made, unless the server has refused it each time."""
        until, refused = trio.current_time() + COMMIT_WITHIN, True
        while True:
            try:
                return await self.link.script(COMMIT, keys, args, durable=True)
            except StoreUnavailable as lost:
                refused = refused and self.link.was_refused(lost)
                if trio.current_time() + AGAIN >= until:
                    if refused:
                        self.unheard.discard(moved)
                    raise
                await trio.sleep(AGAIN)

    async def identity(self) -> str:
        self.fleet = (await self.agree(IDENTITY, new_identity().encode())).decode()
        return self.fleet

    def check_identity(self, held: bytes | None) -> None:
        """Raises StoreUnavailable, now and for every later call, where `held` isn't this fleet's identity."""
        if self.fleet and (held or b"").decode() != self.fleet:
            raise self.link.give_up(EMPTIED)

    async def agree(self, key: str, proposed: bytes) -> bytes:
        """The value that the whole fleet has under `key`: that of the engine that proposed one first."""
        await self.link.call(lambda client: client.set(key, proposed, condition=self.link.absent))
        agreed: bytes = await self.link.call(lambda client: client.get(key))
        return agreed

    def check(self) -> None:
        """Nothing: `Fleet.check_fresh` says whether the store answers, since the fleet asks it all the time."""

    def size(self) -> int:
        return 0  # the Redis server has tools of its own for that


_encode = msgspec.msgpack.Encoder().encode


def pack(stored: Stored, tag: str) -> bytes:
    """An actor as the store has it. `tag` names the commit that made it so."""
    return b"%d:%s:%s" % (stored.version, tag.encode(), _encode((stored.state, stored.deadline, stored.facts)))


def _milliseconds(once: Once | None) -> tuple[int | str, str]:
    if once is None:
        return "", ""
    return (int(once.seconds * 1000), "") if once.until is None else (int(once.until * 1000), "1")


def _actors(chart: str) -> str:
    return f"{PREFIX}actors:{chart}"
