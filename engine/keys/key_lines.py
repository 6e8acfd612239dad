"""Lines of authorized_keys in OpenSSH's form: what each grants, or why it grants nothing (section 2.4)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from hatchway.engine.base.errors import KeyRefused, Refusal
from hatchway.engine.base.permissions import FIVE, parse_permissions
from hatchway.engine.keys.key_files import one_line
from hatchway.engine.keys.key_options import OPTIONS, KeyOptions, read_options
from hatchway.engine.keys.keys import PublicKey, read_openssh, refused_as_weak, weaknesses

BOM = b"\xef\xbb\xbf"
"""The byte order mark that some editors put at the beginning of a file."""

LONGEST_LINE = 16384
"""Bytes; a line with a key of 8192 bits takes about 1,500."""

KNOWN = ("permissions", *OPTIONS)
"""The options of a line that grants something; another one may be a restriction, which must not be passed over."""

_KEY_FIRST = re.compile(r"(?:ssh|ecdsa|sk)-[A-Za-z0-9@.-]+(?:[ \t]|$)")
_OPTION = re.compile(r'([A-Za-z0-9-]+)(?:="((?:[^"\\]|\\.)*)")?')


@dataclass(frozen=True, slots=True)
class KeyGrant:
    """A line that grants something. `line` counts from 1; `comment` is as people wrote it."""

    key: PublicKey
    permissions: tuple[str, ...]
    comment: str
    line: int
    options: KeyOptions | None = None

    @property
    def identity(self) -> str:
        """The key's fingerprint."""
        return self.key.identity


def same(one: KeyGrant, other: KeyGrant | None) -> bool:
    """Whether a key's line says what it said, wherever it stands in the file now."""
    return other is not None and (one is other or _said(one) == _said(other))


def _said(entry: KeyGrant) -> tuple[object, ...]:
    return entry.permissions, entry.comment, entry.options


@dataclass(frozen=True, slots=True)
class KeyLine:
    """One line of the file, its bytes kept as they are. `key` is its key, also where it grants nothing."""

    raw: bytes
    number: int
    key: PublicKey | None = None
    entry: KeyGrant | None = None
    fault: str | None = None
    options: tuple[str, ...] = ()
    """Names of options that are not known here."""


class LineFault(NamedTuple):
    """A line that grants nothing, and why. `line` counts from 1."""

    line: int
    reason: str


def parse_file(data: bytes, types: Collection[str] = ("rsa",)) -> tuple[KeyLine, ...]:
    """Every line of the file; nothing in it raises. Of two lines with one key the first counts, whatever it grants."""
    lines = known_lines(data)
    keys = [line.entry.key for line in lines if line.entry]
    words = iter(weaknesses(keys))
    return tuple(_of_types(_refused_if(next(words), line) if line.entry else line, types) for line in lines)


def _of_types(line: KeyLine, types: Collection[str]) -> KeyLine:
    """The line, which grants nothing where its key is of none of these types."""
    if line.entry is None or line.entry.key.kind in types:
        return line
    return KeyLine(line.raw, line.number, line.key, None, refused_type(line.entry.key.kind).detail)


def refused_type(kind: str) -> KeyRefused:
    """The refusal of a key of a type that the site does not accept."""
    return KeyRefused(
        f"this is not an RSA key but an {kind.capitalize()} one, which counts where the setting key_types names"
        f" {kind}: hatchway config set key_types rsa,{kind}",
        cause="not_rsa",
    )


def known_lines(data: bytes) -> tuple[KeyLine, ...]:
    """As `parse_file`, in 20 us a line instead of 500: whether a key is of a weak kind is not looked at."""
    return tuple(_first_counts(read_line(raw, number) for number, raw in enumerate(split(data), 1)))


def lines_with(data: bytes, key: PublicKey) -> tuple[KeyLine, ...]:
    """As `known_lines`, but only what has the text of this key is read: all else stands there as if it were remarks."""
    text = key.openssh().partition(" ")[2].encode()
    numbered = enumerate(split(data), 1)
    return tuple(_first_counts(read_line(raw, n) if text in raw else KeyLine(raw, n) for n, raw in numbered))


def judged(line: KeyLine) -> KeyLine:
    """The line, which grants nothing where its key is of a weak kind."""
    return line if line.entry is None else _refused_if(line.entry.key.weakness(), line)


def _refused_if(words: str | None, line: KeyLine) -> KeyLine:
    if words is None or line.key is None:
        return line
    return KeyLine(line.raw, line.number, fault=refused_as_weak(words, line.key.kind).detail)


def render(key: PublicKey, permissions: Iterable[str], comment: str, options: KeyOptions | None = None) -> bytes:
    """The line that grants `permissions` to `key`, without its end."""
    return f"{granted(permissions, options)} {key.openssh()} {one_line(comment)}".rstrip(" ").encode()


def granted(permissions: Iterable[str], options: KeyOptions | None) -> str:
    """What a line grants, as the options before its key say it."""
    texts = (("permissions", ",".join(permissions)), *(options.texts if options else ()))
    return ",".join(f'{name}="{text}"' for name, text in texts)


def split(data: bytes) -> list[bytes]:
    """The lines with their ends, so that joined they are the file again."""
    lines = data.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _first_counts(lines: Iterable[KeyLine]) -> Iterable[KeyLine]:
    seen: dict[str, int] = {}
    for line in lines:
        if line.key is None or (first := seen.setdefault(line.key.identity, line.number)) == line.number:
            yield line
        else:
            yield KeyLine(line.raw, line.number, line.key, None, f"the key of line {first} again; that one counts")


def read_line(raw: bytes, number: int) -> KeyLine:
    """One line by itself: neither which of two counts nor a weak key is looked at."""
    if len(raw) > LONGEST_LINE:
        return KeyLine(raw, number, fault=f"longer than {LONGEST_LINE} bytes")
    try:
        text = raw.removeprefix(BOM if number == 1 else b"").decode().strip(" \t\r\n")
    except UnicodeDecodeError:
        return KeyLine(raw, number, fault="not text")
    if not text or text.startswith("#"):
        return KeyLine(raw, number)
    try:
        options, rest = ({}, text) if _KEY_FIRST.match(text) else _options(text)
        key = read_openssh(rest)
    except KeyRefused as refused:
        return KeyLine(raw, number, fault=refused.detail)
    return _grant(KeyLine(raw, number, key), options)


def _grant(line: KeyLine, options: dict[str, str | None]) -> KeyLine:
    assert line.key is not None
    foreign = tuple(name for name in options if name not in KNOWN)
    if foreign:
        # Ignoring a restriction would widen it.
        fault = f"the option {', '.join(foreign)} is not known here, so the line grants nothing"
        return KeyLine(line.raw, line.number, line.key, None, fault, foreign)
    try:
        value = options.get("permissions", ",".join(FIVE))
        permissions = _permissions(value or "")
        limits = read_options({name: text for name, text in options.items() if name != "permissions"})
    except Refusal as refused:
        return KeyLine(line.raw, line.number, line.key, None, refused.detail)
    grant = KeyGrant(line.key, permissions, line.key.comment, line.number, limits)
    return KeyLine(line.raw, line.number, line.key, grant)


@lru_cache(maxsize=256)
def _permissions(value: str) -> tuple[str, ...]:
    """The permissions that an option names. Raises KeyRefused. Cached: the lines of a file have few different ones."""
    return parse_permissions(value, master=True)


def _options(text: str) -> tuple[dict[str, str | None], str]:
    """The options before a key, and what follows them. Raises KeyRefused."""
    options: dict[str, str | None] = {}
    at = 0
    while match := _OPTION.match(text, at):
        name, value = match[1], match[2]
        if name in options:
            raise KeyRefused(f"the option {name} stands twice")
        options[name] = value
        at = match.end()
        if text[at : at + 1] != ",":
            break
        at += 1
    rest = text[at:]
    if not options or rest[:1] not in (" ", "\t") or text[at - 1 : at] == ",":
        raise KeyRefused("neither a key nor options that can be read")
    return options, rest.strip(" \t\r")
