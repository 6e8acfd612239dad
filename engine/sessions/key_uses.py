"""When each key was registered and last used: noted in memory, written to the store once a minute a key at most."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice

import msgspec
import structlog
import trio

from hatchway.engine.base.clock import Clock
from hatchway.engine.base.errors import Refusal
from hatchway.engine.store.protocol import Change, Store, Stored, VersionMoved

log = structlog.get_logger(__name__)

CHART = "key"
"""Each is stored as if it were an actor of a chart of this name."""

WRITE_INTERVAL = 60.0
"""Seconds between two writes of one key's uses."""

LOOK_INTERVAL = 10.0
"""Seconds between two looks for keys that are to be written."""

AT_ONCE = 64
"""Keys that are written together."""

SESSIONS_AT_ONCE = 2000
"""Sessions looked through in one tick of the event loop: a millisecond."""


class KeyUse(msgspec.Struct, frozen=True, gc=False):
    """Times in epoch seconds, None for one that is not known. `registered_at` is when an engine first knew the key; it
    is not known of the keys that engines had before they noted it."""

    registered_at: float | None = None
    used_at: float | None = None


Edit = Callable[[KeyUse | None], KeyUse | None]
"""Takes what is known of a key, None for nothing; returns what is to be stored, None to forget the key."""


class KeyUses:
    """One engine's notes, and what the store holds, which in a fleet is every engine's.

    `identities` are of the keys that are authorized now; `uses` gives identity and time of the last use for each live
    session, as far as this engine knows. `long_known` is a key that was there before this start, None where none was:
    where the store has no note of it, it was an engine of 0.1.0 that knew it, which noted nothing.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        identities: Callable[[], Iterable[str]],
        uses: Callable[[], Iterable[tuple[str, float]]],
        long_known: str | None = None,
    ) -> None:
        self._long_known = long_known
        self._store, self._clock, self._identities, self._uses = store, clock, identities, uses
        self._noted: dict[str, float] = {}
        self._written: dict[str, float] = {}
        """When each key was written last, in elapsed seconds, for a minute."""
        self._known: dict[str, tuple[int, KeyUse]] = {}
        """What the store held at the last look, and its version; another engine may have changed it since."""
        store.define({CHART: KeyUse})

    def note(self, identity: str) -> None:
        """The key was used just now."""
        self._noted[identity] = self._clock.wall()

    async def run(self, stopping: trio.Event) -> None:
        """Write what is to be written, until the engine stops: then what is left."""
        is_read = False
        while not stopping.is_set():
            is_read = is_read or await self._read()
            with trio.move_on_after(LOOK_INTERVAL):
                await stopping.wait()
            await self.write(everything=stopping.is_set())

    async def _read(self) -> bool:
        """Take up what there is; returns whether that was read and written."""
        try:
            await self.take_up()
            if self._long_known is not None and self._long_known not in self._known:
                await self._note_all(self._identities(), KeyUse())
            await self.follow()
        except Refusal as refused:
            log.warning("key_uses_not_read", why=refused.why)
            return False
        return True

    async def take_up(self) -> None:
        """Read what the store has. Raises StoreUnavailable."""
        for name, stored in await self._store.live(CHART):
            assert isinstance(stored.facts, KeyUse)
            self._known[name] = stored.version, stored.facts

    async def write(self, *, everything: bool = False) -> None:
        """Write the uses whose time has come, or all that are not written. What can't be written is tried again."""
        now = self._clock.elapsed()
        self._written = {name: at for name, at in self._written.items() if now - at < WRITE_INTERVAL}
        pending = await self._pending()
        due = [name for name in pending if everything or name not in self._written]
        try:
            await self._change_all({name: self._use(pending[name]) for name in due})
        except Refusal as lost:
            log.warning("key_uses_not_written", why=lost.why)

    def _use(self, at: float) -> Edit:
        def used(held: KeyUse | None) -> KeyUse:
            held = held or KeyUse(registered_at=at)  # it came just now, and was used before that was noted
            return msgspec.structs.replace(held, used_at=max(held.used_at or 0.0, at))

        return used

    async def _pending(self) -> dict[str, float]:
        """The last use of each key that this engine has seen, where it is later than what the store has."""
        now, found = self._clock.wall(), dict(self._noted)
        for number, (name, at) in enumerate(self._uses(), 1):
            if at > found.get(name, 0.0):
                found[name] = min(at, now)  # a session that a worker answers for is in use for some time ahead
            if number % SESSIONS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        return {name: at for name, at in found.items() if at > (self._held(name).used_at or 0.0)}

    def _held(self, identity: str) -> KeyUse:
        return self._known[identity][1] if identity in self._known else KeyUse()

    async def follow(self) -> None:
        """Note the keys that came into authorized_keys. Raises StoreUnavailable, FileRefused."""
        await self.register(self._identities())

    async def register(self, identities: Iterable[str]) -> None:
        """These keys are known from now on, as far as none of them was known before. Raises StoreUnavailable."""
        await self._note_all(identities, KeyUse(registered_at=self._clock.wall()))

    async def _note_all(self, identities: Iterable[str], new: KeyUse) -> None:
        await self._change_all({name: lambda held: held or new for name in identities if name not in self._known})

    async def forget(self, identities: Iterable[str]) -> None:
        """These keys were taken out: registered again they are new. Raises StoreUnavailable."""
        for identity in identities:
            await self._look(identity)
            await self._change(identity, lambda held: None)

    async def _change_all(self, changes: Mapping[str, Edit]) -> None:
        """Make all these changes. One that fails stops no other. Raises StoreUnavailable."""
        failures: list[Refusal] = []

        async def change(identity: str, edit: Edit) -> None:
            try:
                await self._change(identity, edit)
            except Refusal as lost:
                failures.append(lost)

        waiting = iter(changes.items())
        while some := list(islice(waiting, AT_ONCE)):
            async with trio.open_nursery() as nursery:
                for identity, edit in some:
                    nursery.start_soon(change, identity, edit)
        if failures:
            raise failures[0]

    async def _change(self, identity: str, change: Edit) -> None:
        while True:
            version, held = self._known.get(identity, (0, None))
            made = change(held)
            if made == held:
                return
            new = None if made is None else Stored(version + 1, "known", None, made)
            try:
                await self._store.commit(Change(CHART, identity, version, new))
            except VersionMoved:
                await self._look(identity)
                continue
            self._learn(identity, version + 1, made)
            return

    def _learn(self, identity: str, version: int, held: KeyUse | None) -> None:
        """Remember what the store has of a key."""
        if held is None:
            self._known.pop(identity, None)
            self._noted.pop(identity, None)
            return
        before = self._held(identity).used_at
        self._known[identity] = version, held
        if held.used_at != before:
            self._written[identity] = self._clock.elapsed()
        if self._noted.get(identity, 0.0) <= (held.used_at or 0.0):
            self._noted.pop(identity, None)

    async def _look(self, identity: str) -> None:
        stored = await self._store.load(CHART, identity)
        self._known.pop(identity, None)
        if stored is not None:
            assert isinstance(stored.facts, KeyUse)
            self._known[identity] = stored.version, stored.facts

    async def all(self) -> dict[str, KeyUse]:
        """The uses of all keys, those among them that are not written yet. Raises StoreUnavailable."""
        if self._store.shared:
            await self.take_up()
        found = {name: held for name, (_, held) in self._known.items()}
        for name, at in (await self._pending()).items():
            found[name] = msgspec.structs.replace(found.get(name, KeyUse()), used_at=at)
        return found
