"""Edits of the content of authorized_keys, wherever it is kept: bytes in, bytes out (section 2.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple, TypeVar

from hatchway.engine.base.errors import KeyRefused
from hatchway.engine.base.permissions import FIVE, MASTER, fold
from hatchway.engine.keys.key_files import one_line, same_name
from hatchway.engine.keys.key_lines import KeyGrant, KeyLine, known_lines, lines_with, render
from hatchway.engine.keys.key_options import KeyOptions, read_options
from hatchway.engine.keys.keys import PublicKey

T = TypeVar("T")
Edit = Callable[[bytes], tuple[bytes, T]]
"""Takes the content; returns the new content, and what was done."""


class Registered(NamedTuple):
    """What `register` did; `before` is what the key held until then."""

    entry: KeyGrant
    outcome: Literal["added", "replaced", "unchanged"]
    before: tuple[str, ...] | None = None


def register(
    data: bytes,
    key: PublicKey,
    permissions: tuple[str, ...] = FIVE,
    comment: str = "",
    options: Mapping[str, str] = {},
    *,
    own: bool = False,
) -> tuple[bytes, Registered]:
    """Authorize `key`, or replace what it holds. `own` is an engine's own key, which alone takes MASTER.

    `options` change those of the key's line, an empty text takes one out; the others stay as they are. Raises
    KeyRefused where the key's line has foreign options, or MASTER.
    """
    permissions = fold(permissions)
    if not permissions:
        raise KeyRefused("a key without any permission is not registered", cause="empty")
    lines = lines_with(data, key)
    old = next((line for line in lines if line.key and line.key.identity == key.identity), None)
    _refuse_replacing(old, own)
    if MASTER in permissions and not own:
        raise KeyRefused("MASTER belongs to the engine's own key and is not given to another", cause="master")
    before = old.entry if old else None
    kept = comment or key.comment or (old.key.comment if old and old.key else "")
    if any("\ud800" <= letter <= "\udfff" for letter in kept):
        raise KeyRefused("the comment is not UTF-8 text, as authorized_keys is: give another", cause="comment")
    limits = _changed(before.options if before else None, options)
    entry = KeyGrant(key, permissions, one_line(kept), old.number if old else len(lines) + 1, limits)
    if before and (before.permissions, before.comment, before.options) == (permissions, entry.comment, limits):
        return data, Registered(before, "unchanged", permissions)
    edited = _with(lines, old, render(key, permissions, entry.comment, limits))
    return edited, Registered(entry, "replaced" if old else "added", before.permissions if before else None)


def edit(
    data: bytes,
    selector: str,
    permissions: tuple[str, ...] | None = None,
    comment: str = "",
    options: Mapping[str, str] = {},
) -> tuple[bytes, Registered]:
    """Change the line of the key that `selector` means, as for `unregister`; what is not given stays as it is.

    Raises KeyRefused: as `register` and `unregister`, and where the key's line grants nothing.
    """
    lines = known_lines(data)
    identity = _selected(lines, selector)
    line = next(line for line in lines if line.key and line.key.identity == identity)
    if line.entry is None or line.key is None:
        raise KeyRefused(f"line {line.number} of authorized_keys grants nothing: {line.fault}", cause="grants_nothing")
    return register(data, line.key, permissions or line.entry.permissions, comment, options)


def _changed(before: KeyOptions | None, options: Mapping[str, str]) -> KeyOptions | None:
    texts = dict(before.texts if before else ()) | dict(options)
    return read_options({name: text for name, text in texts.items() if text})


def unregister(
    data: bytes, selector: str, *, force: bool = False, own: str | None = None
) -> tuple[bytes, tuple[str, KeyGrant | None]]:
    """Take out every line of one key: its identity, a unique prefix of it, or a unique comment.

    Returns, after the new content, the key's identity and what it was granted, None for nothing. Raises KeyRefused
    where there is no such key or more than one, or, without `force`, where the key has MASTER or is `own`, the
    engine's.
    """
    lines = known_lines(data)
    identity = _selected(lines, selector)
    # All lines of the key go: else a later one, which did not count, would count now.
    gone = [line for line in lines if line.key and line.key.identity == identity]
    entry = next((line.entry for line in gone if line.entry), None)
    if not force and (identity == own or (entry and MASTER in entry.permissions)):
        raise KeyRefused("this is the engine's own key; to remove it all the same, add --force", cause="own")
    return b"".join(line.raw for line in lines if line not in gone), (identity, entry)


def _refuse_replacing(old: KeyLine | None, own: bool) -> None:
    if old is None:
        return
    if old.options:
        raise KeyRefused(
            f"line {old.number} of authorized_keys has this key with the option {', '.join(old.options)}:"
            " unregister it first, or edit the line",
            cause="options",
        )
    if old.entry and MASTER in old.entry.permissions and not own:
        raise KeyRefused(
            "this is the engine's own key, which holds MASTER already; `hatchway key rotate-engine` replaces it, and"
            " only a hand limits its line in authorized_keys",
            cause="own",
        )


def _with(lines: Iterable[KeyLine], old: KeyLine | None, new: bytes) -> bytes:
    """The file with `new` in the place of `old`, or as its last line; every other line byte for byte as it was."""
    if old is None:
        data = b"".join(line.raw for line in lines)
        return data + (b"\n" if data and not data.endswith(b"\n") else b"") + new + b"\n"
    end = b"\r\n" if old.raw.endswith(b"\r\n") else b"\n"
    return b"".join(new + end if line is old else line.raw for line in lines)


def goes_by(identity: str, comment: str, selector: str) -> bool:
    """Whether `selector` may mean the key: by its identity, the start of it, or its comment."""
    by_identity = identity.startswith(selector) if len(selector) > len("SHA256:") else identity == selector
    return by_identity or same_name(comment, selector)


def _selected(lines: Iterable[KeyLine], selector: str) -> str:
    """The one identity that `selector` means. Raises KeyRefused."""
    known: dict[str, str] = {}
    for line in lines:
        if line.key:
            known.setdefault(line.key.identity, line.key.comment)
    if selector in known:
        return selector
    found = [identity for identity, comment in known.items() if goes_by(identity, comment, selector)]
    if not selector or not found:
        raise KeyRefused(f"no authorized key has the identity or comment '{one_line(selector)}'", cause="unknown_key")
    if len(found) > 1:
        raise KeyRefused(
            f"{len(found)} authorized keys go by '{one_line(selector)}': give more of the identity", cause="ambiguous"
        )
    return found[0]
