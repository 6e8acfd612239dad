"""The file of authorized keys: looked up at every use, edited by hand or by us, never half written (section 2.4)."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from hatchway.engine.base import file_locks, files
from hatchway.engine.base.clock import SYSTEM_CLOCK, BlockingClock
from hatchway.engine.base.errors import FileRefused
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.base.ticks import LoopTicks
from hatchway.engine.keys import key_edits
from hatchway.engine.keys.key_edits import Edit, Registered, T
from hatchway.engine.keys.key_index import KeyIndex
from hatchway.engine.keys.key_lines import KeyGrant, LineFault, parse_file
from hatchway.engine.keys.keys import ED25519_BITS, PublicKey

if TYPE_CHECKING:
    from hatchway.engine.keys.key_command import KeyCommand

__all__ = ["AuthorizedKeys", "KeyGrant", "LineFault", "Registered"]

AUTHORIZED_KEYS = "authorized_keys"
"""The file's name."""

_STAMP_STEP = 0.05
"""Seconds: two changes of a file closer together than that may leave the same time stamp."""

_PAUSE, _PAUSES = 0.005, 10
"""Seconds between two readings of a file that an editor may not have written to its end, and how many of them it gets
for that."""

_SMALL = 131_072
"""Bytes before and after a change, together, up to which a lookup takes it up: 300 lines at worst, in 10 ms."""


class AuthorizedKeys:
    """One authorized_keys file. Each lookup costs an `lstat`, 3 us; only lines that changed are read again. Whether a
    key is of a weak kind takes longest to say, and is asked when the key is used.

    With `ticks`, all lookups in one tick of the event loop share an `lstat`: the requests that they serve were sent
    before the tick began, so a request that is sent after a change still sees the change.

    A lookup that finds the file changed takes the change up first, and holds up its thread meanwhile: for some
    milliseconds, for 50 ms where an editor is at work on the file, and for a second where all of 20,000 keys changed.
    An engine asks `settled` before a lookup, and awaits `settle` where that says no.

    Where it isn't a private file of our own, every look and every edit raises `FileRefused`. A file that isn't there
    is one without keys.
    """

    def __init__(
        self,
        path: Path,
        ticks: LoopTicks | None = None,
        clock: BlockingClock = SYSTEM_CLOCK,
        elsewhere: KeyCommand | None = None,
        types: Callable[[], tuple[str, ...]] = lambda: ("rsa",),
    ) -> None:
        """`elsewhere` is asked for keys that no line is of; what it granted within a minute counts as a line. Keys that
        are of none of these `types` grant nothing."""
        self.path, self.elsewhere, self._types = path, elsewhere, types
        self._name = os.fspath(path)
        self._stamp: tuple[int, ...] | None = None
        self._inode = 0
        self._data = b""
        self._index = KeyIndex()
        self._version = 0
        self._ticks, self._clock = ticks, clock
        self._looked = -1
        """The tick in which the file was looked at last; -1 where the next lookup is to look again."""
        self._settling = trio.Lock()

    def settled(self) -> bool:
        """Whether a lookup answers at once: the file is as it was, or the change is small and finished, and taken up by
        this call. Raises FileRefused."""
        tick = self._tick()
        if tick >= 0 and tick == self._looked:
            return True
        return not self._settling.locked() and self._take_if_small()

    async def settle(self) -> None:
        """Wait until `settled`, which then holds until the caller waits for anything else. Raises FileRefused."""
        if self.settled():
            return
        async with self._settling:
            while not (self._take_if_small() or await self._take_finished()):
                pass  # a lookup that could not wait has taken the file up meanwhile

    def find(self, identity: str) -> KeyGrant | None:
        """The line that counts for a key, or None where nothing is granted to it."""
        self._refresh()
        entry = self._index.entries.get(identity)
        if entry is None or entry.key.bits == ED25519_BITS:
            entry = self._accepted(entry or self._find_elsewhere(identity))
        return entry if entry is None or entry.key.sound or entry.key.weakness() is None else None

    def _accepted(self, entry: KeyGrant | None) -> KeyGrant | None:
        """The line, where its key is of an accepted type."""
        return entry if entry is not None and entry.key.kind in self._types() else None

    def candidate(self, identity: str) -> KeyGrant | None:
        """As `find`, but a key of a weak kind is returned too: it is to be tried before that is asked, which takes
        long."""
        self._refresh()
        return self._accepted(self._index.entries.get(identity) or self._find_elsewhere(identity))

    def _find_elsewhere(self, identity: str) -> KeyGrant | None:
        elsewhere = self.elsewhere
        return None if elsewhere is None or self._index.has(identity) else elsewhere.find(identity)

    def must_be_asked(self, identity: str) -> bool:
        """Whether `find` can't say yet: no line is of this key, and the site's program has not been asked for it."""
        elsewhere = self.elsewhere
        if elsewhere is None or not elsewhere.must_be_asked(identity):
            return False
        self._refresh()
        return not self._index.has(identity)

    async def ask_elsewhere(self, identity: str) -> None:
        """Have `find` know what is granted to a key that no line is of, where anybody can be asked. Raises
        TooManyRequests."""
        if self.elsewhere is not None and not self._index.has(identity):
            await self.elsewhere.ask(identity)

    def good_for(self, identity: str) -> float:
        """Seconds for which the key is what it is, as long as the file does not change."""
        elsewhere = self.elsewhere
        return inf if elsewhere is None or self._index.has(identity) else elsewhere.good_for(identity)

    def of_length(self, length: int) -> Collection[KeyGrant]:
        """The candidates whose signatures have so many bytes, valid until the next look."""
        self._refresh()
        return self._index.of_length(length)

    def entries(self) -> tuple[KeyGrant, ...]:
        """The lines that grant something, in the file's order, one for each key. Takes 0.5 ms for each line."""
        self._refresh()
        return tuple(line.entry for line in parse_file(self._data, self._types()) if line.entry)

    def faults(self) -> tuple[LineFault, ...]:
        """The lines that grant nothing and are no comment. Takes as long as `entries`."""
        self._refresh()
        lines = parse_file(self._data, self._types())
        return tuple(LineFault(line.number, line.fault) for line in lines if line.fault)

    def granted(self) -> list[KeyGrant]:
        """The lines that grant something, one for each key, as they are known: keys of weak kinds too."""
        self._refresh()
        return [entry for entry in self._index.entries.values() if self._accepted(entry)]

    def by_identity(self) -> dict[str, KeyGrant]:
        """The line of each key that has one which grants something, those of weak kinds too."""
        self._refresh()
        return dict(self._index.entries)

    def identities(self) -> list[str]:
        """The identities of the keys that have a line which grants something, also of keys of weak kinds."""
        self._refresh()
        return list(self._index.entries)

    def check(self) -> None:
        """Raises FileRefused where the file isn't private."""
        self._refresh()

    def look_anew(self) -> None:
        """Forget the per-tick cache: the next lookup stats the file."""
        self._looked = -1

    def version(self) -> int:
        """A number that changes with the file's content; -1 while the file is refused. Raises nothing."""
        try:
            self._refresh()
        except FileRefused:
            return -1
        return self._version

    def register(
        self, key: PublicKey, permissions: tuple[str, ...] = FIVE, comment: str = "", *, own: bool = False
    ) -> Registered:
        """Authorize `key`, or replace what it holds; as `key_edits.register`."""
        return self.edit(partial(key_edits.register, key=key, permissions=permissions, comment=comment, own=own))

    def unregister(self, selector: str, *, force: bool = False, own: str | None = None) -> tuple[str, KeyGrant | None]:
        """Take out every line of one key; as `key_edits.unregister`."""
        return self.edit(partial(key_edits.unregister, selector=selector, force=force, own=own))

    def edit(self, change: Edit[T]) -> T:
        """Change the file's content under the lock that all of Hatchway's editors take. Returns what `change`
        returns."""
        with file_locks.locked(self._lock()):
            files.clear_leftovers(self.path)
            data = self._content()
            edited, done = change(data)
            if edited != data:
                self._write(edited)
        return done

    def _lock(self) -> Path:
        files.make_private_dir(self.path.parent)
        return self.path.with_name(f"{self.path.name}.lock")

    def _write(self, data: bytes) -> None:
        files.write_private(self.path, data)
        self._stamp, self._looked = None, -1

    def _tick(self) -> int:
        return -1 if self._ticks is None else self._ticks.number

    def _status(self) -> os.stat_result | None:
        try:
            return os.lstat(self._name)
        except FileNotFoundError:
            return None
        except OSError as error:  # a network folder's server is away
            raise files.unreadable(self.path, error) from None

    def _refresh(self) -> None:
        """Take up what has changed, once in each tick. This may hold up the thread (see the class)."""
        if not self.settled():
            status, data = self._status(), self._content()
            if self._may_be_unfinished(status, data):
                data = self._finished(data)
            self._take(status, data)
            self._looked = self._tick()

    def _take_if_small(self) -> bool:
        """Take up what has changed, unless that takes time: then this returns False, and nothing is done."""
        status = self._status()
        if _stamp(status) != self._stamp:
            data = self._content()
            small = data == self._data or len(data) + len(self._data) <= _SMALL
            if not small or self._may_be_unfinished(status, data):
                return False
            self._take(status, data)
        self._looked = self._tick()
        return True

    async def _take_finished(self) -> bool:
        """As `_refresh`, without holding up other tasks: pauses are slept, and much is read in a thread. Returns False
        where a lookup has taken up the file meanwhile, so that nothing was done."""
        status, data = self._status(), self._content()
        if self._may_be_unfinished(status, data):
            for _ in range(_PAUSES):
                await trio.sleep(_PAUSE)
                before, status, data = data, self._status(), self._content()
                if data and data == before:
                    break
        version, index = self._version, KeyIndex(self._index)
        if len(data) + len(self._data) <= _SMALL:
            index.update(self._data, data)
        else:
            await trio.to_thread.run_sync(index.update, self._data, data)
        if taken := self._version == version:
            self._take(status, data, index)
            self._looked = self._tick()
        return taken

    def _may_be_unfinished(self, status: os.stat_result | None, data: bytes) -> bool:
        """Whether an editor may still be writing this content. Some empty or move the file before they write it: to
        take that for the content would end all sessions. What was put in place whole is finished."""
        in_place = status is None or status.st_ino == self._inode
        # To add whole lines at the end takes nobody's key.
        longer = self._data.endswith(b"\n") and data.endswith(b"\n") and data.startswith(self._data)
        return data != self._data and (in_place or not data) and not longer

    def _finished(self, data: bytes) -> bytes:
        """The content once it stands still, or after all pauses."""
        for _ in range(_PAUSES):
            self._clock.pause(_PAUSE)
            before, data = data, self._content()
            if data and data == before:
                break
        return data

    def _content(self) -> bytes:
        try:
            return files.read_private(self.path)
        except FileNotFoundError:
            return b""

    def _take(self, status: os.stat_result | None, data: bytes, index: KeyIndex | None = None) -> None:
        """Have `data` count from now on, which was read after `status`. `index` is its index, where that was made."""
        if data != self._data or not self._version:
            if index is None:
                self._index.update(self._data, data)
            else:
                self._index = index
            self._data = data
            self._version += 1
        # The time stamp is from before the reading, so that a change in between is seen at the next lookup. A file that
        # changed within `_STAMP_STEP` is read again then, since the next change may leave the same stamp.
        fresh = status is not None and abs(self._clock.wall() - status.st_ctime) < _STAMP_STEP
        self._stamp, self._inode = None if fresh else _stamp(status), status.st_ino if status else 0


def _stamp(status: os.stat_result | None) -> tuple[int, ...]:
    if status is None:
        return ()
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_mode, status.st_uid
