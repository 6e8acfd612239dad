"""The options before a key in authorized_keys: sshd's `expiry-time` and `from`, our `instances` and `lifetime`.

The first two are read as sshd(8) reads them (AUTHORIZED_KEYS FILE FORMAT, and ssh_config(5), PATTERNS), or more
strictly: what sshd might read otherwise than its writer meant makes the whole line grant nothing.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf

from hatchway.engine.base.clock import epoch_of
from hatchway.engine.base.errors import KeyRefused

OPTIONS = ("expiry-time", "from", "instances", "lifetime")
"""Names of the options, in the order in which a line has them."""

WARNED_BEFORE = 7 * 86_400
"""Seconds before its end from which a key's owner is told of it."""

LONGEST = 10 * 366 * 86_400
"""Seconds: the longest span that an option may name."""

MOST_INSTANCES = 100_000

_EXPIRY = re.compile(r"(\d{4})(\d\d)(\d\d)(?:(\d\d)(\d\d)(\d\d)?)?(Z|UTC)?", re.ASCII | re.IGNORECASE)
_SPAN = re.compile(r"([0-9]{1,9})([mhd])", re.ASCII)
_SECONDS = {"m": 60, "h": 3600, "d": 86_400}
_ADDRESS_LIKE = re.compile(r"[0-9a-fx.:%/]+", re.IGNORECASE)
_NAME_LIKE = re.compile(r"[A-Za-z0-9.:*?_-]+")

Ip = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class KeyOptions:
    """What a line's options say. Times and spans in seconds; None is no limit."""

    texts: tuple[tuple[str, str], ...] = ()
    """Name and value of each as they are written, in the order of OPTIONS."""
    ends_at: int | None = None
    """Epoch seconds: the first second in which the key is not accepted. sshd accepts it in the second that
    `expiry-time` names, and so do we."""
    sources: str | None = None
    """The patterns of `from`."""
    instances: int | None = None
    lifetime: int | None = None

    def ends_by(self, started_at: float) -> float:
        """When a session that started then ends at the latest, in epoch seconds; infinity without a limit."""
        by_key = inf if self.ends_at is None else float(self.ends_at)
        return by_key if self.lifetime is None else min(by_key, started_at + self.lifetime)

    def admits(self, address: str) -> bool:
        """Whether the key may be used from this address."""
        return self.sources is None or matches(self.sources, address)

    def ends_soon(self, now: float) -> int | None:
        """`ends_at`, where it is so near that people are told of it."""
        return self.ends_at if self.ends_at is not None and self.ends_at - now <= WARNED_BEFORE else None


def read_options(texts: Mapping[str, str | None]) -> KeyOptions | None:
    """The options of a line, by name; None where it has none of OPTIONS. Raises KeyRefused."""
    if not texts:
        return None
    return _read(tuple((name, texts[name]) for name in OPTIONS if name in texts))


@lru_cache(maxsize=1024)
def _read(texts: tuple[tuple[str, str | None], ...]) -> KeyOptions:
    """The options of these texts. Cached: the lines of a file have few different ones. Raises KeyRefused."""
    known: dict[str, str] = {}
    for name, text in texts:
        if not text:
            raise KeyRefused(f'the option {name} wants a value: {name}="..."')
        known[name] = text
    expiry, span, number = known.get("expiry-time"), known.get("lifetime"), known.get("instances")
    if "from" in known:
        check_sources(known["from"])
    return KeyOptions(
        tuple(known.items()),
        None if expiry is None else expiry_of(expiry) + 1,
        known.get("from"),
        None if number is None else _count(number),
        None if span is None else span_of(span, "lifetime"),
    )


def expiry_of(text: str) -> int:
    """The epoch second that `expiry-time` names: YYYYMMDD[HHMM[SS]], in this host's time zone or, with Z, in UTC.

    As OpenSSH has it, a time of the host's zone is read without daylight saving. Raises KeyRefused.
    """
    match = _EXPIRY.fullmatch(text)
    moment = None
    if match is not None:
        year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
        moment = epoch_of((year, month, day, hour, minute, second), utc=match[7] is not None)
    if moment is None or moment <= 0:
        raise KeyRefused(
            f"expiry-time is no time: {text[:40]!a}; write YYYYMMDD, YYYYMMDDHHMM or YYYYMMDDHHMMSS, then Z"
        )
    return moment


def span_of(text: str, name: str) -> int:
    """Seconds of `30m`, `8h` or `90d`. Raises KeyRefused."""
    match = _SPAN.fullmatch(text)
    seconds = int(match[1]) * _SECONDS[match[2]] if match else 0
    if not 60 <= seconds <= LONGEST:
        raise KeyRefused(
            f"{name} wants a whole number of minutes, hours or days, as 30m, 8h or 90d: from 1m to"
            f" {LONGEST // 86_400}d, not {text[:40]!a}"
        )
    return seconds


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]{1,6}", text) or int(text) > MOST_INSTANCES:
        raise KeyRefused(f"instances wants a number from 0 to {MOST_INSTANCES}: not {text[:40]!a}")
    return int(text)


@dataclass(frozen=True, slots=True)
class _Pattern:
    negated: bool
    network: Ip | None
    words: re.Pattern[str] | None


def check_sources(text: str) -> None:
    """Raises KeyRefused unless each pattern of `from` can mean one thing only."""
    _patterns(text)


@lru_cache(maxsize=1024)
def _patterns(text: str) -> tuple[_Pattern, ...]:
    return tuple(_pattern(part) for part in text.split(","))


def _pattern(part: str) -> _Pattern:
    bare = part.removeprefix("!")
    negated = bare != part
    if _ADDRESS_LIKE.fullmatch(bare) and not bare.isalpha():
        try:
            return _Pattern(negated, ipaddress.ip_network(bare), None)
        except ValueError:
            why = "has bits set behind its mask" if _is_loose(bare) else "is no address"
            raise KeyRefused(f"from: {part[:60]!a} {why}, and could be read in two ways") from None
    if not _NAME_LIKE.fullmatch(bare):
        raise KeyRefused(f"from: {part[:60]!a} is neither an address, a network such as 10.0.0.0/8, nor a pattern")
    words = re.escape(bare.lower()).replace(r"\*", ".*").replace(r"\?", ".")
    return _Pattern(negated, None, re.compile(words, re.DOTALL))


def _is_loose(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=4096)
def matches(sources: str, address: str) -> bool:
    """Whether an address is among the patterns of `from`: one that matches and is not negated, and none that is.

    Names are never looked up, as by sshd with `UseDNS no`: a pattern is compared with the address as text. An IPv4
    address in IPv6's form is the IPv4 address. Where the address is not known, as on a Unix socket, nothing matches.
    """
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    known = getattr(known, "ipv4_mapped", None) or known
    matched = False
    for pattern in _patterns(sources):
        if pattern.network is not None:
            hit = known.version == pattern.network.version and known in pattern.network
        else:
            assert pattern.words is not None
            hit = pattern.words.fullmatch(str(known)) is not None
        if hit and pattern.negated:
            return False
        matched = matched or hit
    return matched
