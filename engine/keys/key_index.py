"""The keys of authorized_keys by identity and by length, kept up to date by the lines that changed (section 2.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from hatchway.engine.keys.key_lines import BOM, KeyGrant, KeyLine, read_line, split
from hatchway.engine.keys.keys import PublicKey

PIECE = 65_536
"""Bytes compared at once in looking for the first difference of two contents."""

SEARCHED = 100
"""Keys on several lines that are searched for one by one after a change, some milliseconds each in 8 MB. Where there
are more, the whole file is read anew."""


class KeyIndex:
    """Grants by the key that they are for. Of two lines with one key the first counts, whatever it grants.

    Keys of weak kinds are in it too.
    """

    def __init__(self, other: KeyIndex | None = None) -> None:
        """An index of nothing, or a copy of `other`, which may be updated by itself."""
        self.entries: dict[str, KeyGrant] = {}
        """The grant of each identity. Its `line` is the number that the line had when it was read."""
        self._lengths: dict[int, dict[str, KeyGrant]] = {}
        self._times: Counter[str] = Counter()
        self._repeated: dict[str, PublicKey] = {}
        if other is not None:
            self.entries |= other.entries
            self._lengths |= {length: grants.copy() for length, grants in other._lengths.items()}
            self._times |= other._times
            self._repeated |= other._repeated

    def has(self, identity: str) -> bool:
        """Whether a line is of this key, whatever it grants."""
        return self._times[identity] > 0

    def of_length(self, length: int) -> Collection[KeyGrant]:
        """The grants of keys whose signatures have `length` bytes: a view, valid until the next update."""
        return self._lengths.get(length, {}).values()

    def update(self, old: bytes, new: bytes) -> None:
        """Take up a change of the content from `old`, which this is the index of, to `new`.

        Takes 20 us for each line that changed, and a few milliseconds for finding those in 8 MB. Where fewer lines are
        left than would have to be read, as in a file that was emptied, those are read and no others.
        """
        start, old_end, new_end = _changed(old, new)
        before, after = old[start:old_end], new[start:new_end]
        first = _number_at(start, new, after)
        lost, won = _surplus(before, after, first), _surplus(after, before, first)
        if old and len(lost) + len(won) > new.count(b"\n") + 1:
            self._begin_anew(new)
            return
        gone, come = [read_line(raw, at) for at, raw in lost], [read_line(raw, at) for at, raw in won]
        keys = {line.key.identity: line.key for line in (*gone, *come) if line.key}
        # Lines that only changed places are not among those; their order matters where they are of one key.
        keys |= {
            name: key for name, key in self._repeated.items() if any(_text(key) in part for part in (before, after))
        }
        firsts = {line.key.identity: line for line in reversed(come) if line.key}
        here = Counter(line.key.identity for line in come if line.key)
        self._times.update(here)
        self._times.subtract(line.key.identity for line in gone if line.key)
        marked = first == 1 and any(part.startswith(BOM) for part in (before, after))  # a key only as the first line
        if old and (marked or sum(self._times[name] > here[name] for name in keys) > SEARCHED):
            self._begin_anew(new)
            return
        for name, key in keys.items():
            line = firsts.get(name) if self._times[name] == here[name] else _first_of(key, new)
            self._put(key, line)

    def _begin_anew(self, data: bytes) -> None:
        self.entries, self._lengths, self._times, self._repeated = {}, {}, Counter(), {}
        self.update(b"", data)

    def _put(self, key: PublicKey, line: KeyLine | None) -> None:
        """Have `line` count for the key; None where the key has no line any more."""
        name, length = key.identity, key.signature_length
        entry = line.entry if line is not None else None
        if entry is not None:
            self.entries[name] = self._lengths.setdefault(length, {})[name] = entry
        elif self.entries.pop(name, None) is not None:
            del self._lengths[length][name]
        if self._times[name] > 1:
            self._repeated[name] = key
        else:
            self._repeated.pop(name, None)
            if not self._times[name]:
                del self._times[name]


def _surplus(lines: bytes, others: bytes, first: int) -> list[tuple[int, bytes]]:
    """The `lines` that are not among `others`, or not as often, and their numbers. The first one has the number
    `first`."""
    found, several = [], split(lines)
    left = Counter(several)
    left.subtract(split(others))
    for number, raw in enumerate(several, first):
        if left[raw] > 0:
            left[raw] -= 1
            found.append((number, raw))
    return found


def _number_at(start: int, data: bytes, lines: bytes) -> int:
    """The number of the line that begins at `start`, where `lines` from there on are of interest. Counting those before
    takes milliseconds in 8 MB; where the lines are blank or remarks, whose numbers nobody asks for, it is left out."""
    if start == 0 or all(not line.strip() or line.startswith(b"#") for line in split(lines)):
        return 1 if start == 0 else 2
    return data.count(b"\n", 0, start) + 1


def _text(key: PublicKey) -> bytes:
    return key.openssh().partition(" ")[2].encode()


def _first_of(key: PublicKey, data: bytes) -> KeyLine | None:
    text = _text(key)
    at = data.find(text)
    while at >= 0:
        start, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
        raw = data[start:] if end < 0 else data[start : end + 1]
        line = read_line(raw, data.count(b"\n", 0, start) + 1)
        if line.key is not None and line.key.identity == key.identity:
            return line
        at = data.find(text, start + len(raw))
    return None


def _changed(old: bytes, new: bytes) -> tuple[int, int, int]:
    """The offset at which the first differing line begins, and those at which the last ends in `old` and in `new`."""
    shortest = min(len(old), len(new))
    start = new.rfind(b"\n", 0, _alike(old, new, shortest)) + 1
    after = _alike(old, new, shortest - start, from_end=True)
    end = new.find(b"\n", len(new) - after) + 1 or len(new)  # what follows are whole lines in both
    return start, len(old) - (len(new) - end), end


def _alike(old: bytes, new: bytes, most: int, *, from_end: bool = False) -> int:
    """How many bytes, `most` at most, two contents have in common at the beginning, or at the end."""
    at = 0
    while at < most:
        size = min(PIECE, most - at)
        one, other = _piece(old, at, size, from_end), _piece(new, at, size, from_end)
        if one != other:
            while size > 1:  # by halves
                half = size // 2
                one, other = _piece(old, at, half, from_end), _piece(new, at, half, from_end)
                if one == other:
                    at += half
                    size -= half
                else:
                    size = half
            return at
        at += size
    return at


def _piece(data: bytes, at: int, size: int, from_end: bool) -> bytes:
    return data[len(data) - at - size : len(data) - at] if from_end else data[at : at + size]
