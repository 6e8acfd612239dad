"""The kinds of value a setting may take: each reads TOML or text into a value, and refuses in words."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hatchway.engine.base.durations import InvalidDuration, parse_duration
from hatchway.engine.settings.home import expanded
from hatchway.engine.settings.redis_address import read_address

_YES, _NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_QUAD = re.compile(r"\d+(\.\d+){3}")
"""What is meant for an IPv4 address, and never a name."""
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class SettingKind:
    """How the values of one kind of setting are read and shown.

    `read` turns a value of TOML's, or a text, into the setting's, or raises ValueError with a sentence. `show` gives
    the text that `read` takes. `paths` gives the host's paths that a value names, which no container may reach.
    """

    read: Callable[[Any], Any]
    show: Callable[[Any], str] = str
    paths: Callable[[Any], Iterable[str]] | None = None


def integer(low: int, high: int) -> SettingKind:
    """A whole number from `low` to `high`, both included."""

    def read(raw: object) -> int:
        value = int(raw) if isinstance(raw, str) and re.fullmatch(r"-?[0-9]{1,12}", raw) else raw
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        raise ValueError(f"a whole number from {low} to {high} is wanted")

    return SettingKind(read)


def boolean() -> SettingKind:
    """`true` or `false`; as text also yes, no, on, off, 1, 0."""

    def read(raw: object) -> bool:
        if isinstance(raw, bool):
            return raw
        if isinstance(raw, str) and raw.lower() in _YES + _NO:
            return raw.lower() in _YES
        raise ValueError("true or false is wanted")

    return SettingKind(read, lambda value: "true" if value else "false")


def _text(raw: object) -> str:
    if not isinstance(raw, str) or not raw.strip() or any(ord(letter) < 0x20 for letter in raw.strip()):
        raise ValueError("a text in one line is wanted")
    return raw.strip()


def text() -> SettingKind:
    """One line that is not empty."""
    return SettingKind(_text, paths=lambda value: (value,) if value.startswith(("/", "~")) else ())


def names() -> SettingKind:
    """A name, or several with commas between, as Slurm has them for partitions and accounts."""

    def read(raw: object) -> str:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.,-]{0,254}", _text(raw)):
            raise ValueError("a name of letters, digits, '_', '.' and '-' is wanted")
        return _text(raw)

    return SettingKind(read)


def pem_or_path() -> SettingKind:
    """A PEM block, which may be of several lines, or the path of a file that holds one."""

    def read(raw: object) -> str:
        if not isinstance(raw, str) or not raw.strip() or any(c < " " and c not in "\r\n\t" for c in raw.strip()):
            raise ValueError("a text is wanted")
        return raw.strip()

    return SettingKind(read, paths=lambda value: () if "-----BEGIN" in value else (value,))


def choice(*names: str) -> SettingKind:
    """One of `names`."""

    def read(raw: object) -> str:
        if raw not in names:
            raise ValueError(f"one of {', '.join(names)} is wanted")
        return str(raw)

    return SettingKind(read)


def _store(raw: object) -> str:
    value = _text(raw)
    if value == "sqlite":
        return value
    try:
        return read_address(value).url
    except ValueError as fault:
        raise ValueError(f"sqlite, or {fault}") from None


def store() -> SettingKind:
    """`sqlite`, or the address of a fleet's Redis or Valkey."""
    return SettingKind(_store, paths=lambda value: () if value == "sqlite" else read_address(value).paths())


def folder_or(*names: str) -> SettingKind:
    """One of `names`, or an absolute folder."""

    def read(raw: object) -> str:
        try:
            return str(raw) if raw in names else folder(raw)
        except ValueError:
            raise ValueError(f"{', '.join(names)} or a path from / or ~ is wanted") from None

    return SettingKind(read, paths=lambda value: () if value in names else (value,))


def duration(low: int, high: int) -> SettingKind:
    """Whole seconds, written `30m` or `168h`, from `low` to `high`."""

    def read(raw: object) -> int:
        try:
            seconds = int(parse_duration(_text(raw)))
        except InvalidDuration:
            raise ValueError("a duration such as 30m or 168h is wanted") from None
        if not low <= seconds <= high:
            raise ValueError(f"a duration from {_hours(low)} to {_hours(high)} is wanted")
        return seconds

    return SettingKind(read, _hours)


def _hours(seconds: int) -> str:
    if seconds % 60:
        return f"{seconds // 60}m{seconds % 60}s"
    return f"{seconds // 3600}h" if seconds % 3600 == 0 else f"{seconds // 60}m"


def _path(raw: object) -> Path:
    path = expanded(_text(raw))
    if not path.is_absolute():
        raise ValueError("a path from / or ~ is wanted")
    return path


def path() -> SettingKind:
    """An absolute path; `~` is the home folder."""
    return SettingKind(_path, paths=lambda value: (str(value),))


AGENT = "agent:"
"""What stands for the keys of the SSH agent where a private key's path may stand. After it may be the fingerprint or
comment of one of them."""


def private_key() -> SettingKind:
    """The absolute path of a private key, or `agent:` and what follows it."""

    def read(raw: object) -> Path | str:
        value = _text(raw)
        if value.startswith(AGENT):
            return value
        try:
            return _path(value)
        except ValueError as fault:
            raise ValueError(f"{fault}, or {AGENT} for a key of the SSH agent") from None

    return SettingKind(read, paths=lambda value: () if isinstance(value, str) else (str(value),))


def _host(raw: object) -> str:
    value = _text(raw)
    try:
        return str(ipaddress.ip_address(value.strip("[]")))
    except ValueError:
        value = wire_name(value)
        if not _NAME.fullmatch(value) or _QUAD.fullmatch(value):
            raise ValueError("an IP address or a host name is wanted") from None
    return value.lower()


def wire_name(name: str) -> str:
    """A host's name as it travels, `xn--mller-kva` for `müller` (RFC 5890). Raises ValueError where it can't."""
    if name.isascii():
        if all(0 < len(label) < 64 for label in name.removesuffix(".").split(".")):  # RFC 1035, 2.3.4
            return name
        raise ValueError("an IP address or a host name is wanted")
    import idna  # imported here: few names are not ASCII

    try:
        return idna.encode(name, uts46=True).decode()
    except idna.IDNAError:
        raise ValueError("an IP address or a host name is wanted") from None


def host() -> SettingKind:
    """An IP address or a host name, without a port."""
    return SettingKind(_host)


def address(raw: object) -> str:
    """`host:port`, an IPv6 address in brackets; the form that the Host header has."""
    value = _text(raw)
    name, colon, port = value.rpartition(":")
    if "://" in value:
        raise ValueError("host:port is wanted, without http://, such as engine.example:7420")
    if not colon or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise ValueError("host:port is wanted, such as engine.example:7420")
    if ":" in name and not (name.startswith("[") and name.endswith("]")):
        raise ValueError("an IPv6 address goes in brackets, such as [::1]:7420")
    known = _host(name)
    return f"[{known}]:{int(port)}" if ":" in known else f"{known}:{int(port)}"


def network(raw: object) -> str:
    """An IP address or a network such as `10.0.0.0/8`."""
    try:
        return str(ipaddress.ip_network(_text(raw)))
    except ValueError:
        raise ValueError("an IP address or a network such as 10.0.0.0/8 is wanted") from None


def registry(raw: object) -> str:
    """A registry's host, with a port where it has one."""
    value = _text(raw).lower()
    if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[0-9]{1,5})?", value):
        raise ValueError("a registry's host is wanted, such as docker.io or registry.example:5000")
    return value


def folder(raw: object) -> str:
    """An absolute folder, kept as text so that what is shown is what was written."""
    return str(_path(raw))


def several(one: Callable[[object], str]) -> SettingKind:
    """A list of texts, each read by `one`; as text they are separated by commas, and an empty text is none."""

    def read(raw: object) -> tuple[str, ...]:
        items = [part for part in raw.split(",") if part.strip()] if isinstance(raw, str) else raw
        if not isinstance(items, (list, tuple)):
            raise ValueError("a list of texts is wanted")  # noqa: TRY004 - every refusal of a kind is a ValueError
        return tuple(dict.fromkeys(one(item) for item in items))

    return SettingKind(read, ",".join)


def key_types() -> SettingKind:
    """`rsa`, and `ed25519` where it is added. The engine's own key, which holds MASTER, is of RSA."""

    def one(raw: object) -> str:
        name = _text(raw)
        if name not in ("rsa", "ed25519"):
            raise ValueError("rsa is wanted, or rsa,ed25519")
        return name

    kind = several(one)

    def read(raw: object) -> tuple[str, ...]:
        value: tuple[str, ...] = kind.read(raw)
        if "rsa" not in value:
            raise ValueError("rsa is wanted, or rsa,ed25519: the engine's own key is of RSA and must count")
        return value

    return SettingKind(read, ",".join)


def argv() -> SettingKind:
    """A program by its absolute path, and its arguments; as text separated by commas, and an empty text is none."""

    def read(raw: object) -> tuple[str, ...]:
        items = [part for part in raw.split(",") if part] if isinstance(raw, str) else raw
        if not isinstance(items, (list, tuple)) or not all(isinstance(item, str) for item in items):
            raise ValueError("a list of texts is wanted: a program's absolute path, then its arguments")
        if any("\0" in item for item in items):
            raise ValueError("no argument of a program can hold a NUL")
        if items and not str(items[0]).startswith("/"):
            raise ValueError("the program's absolute path is wanted first, as /usr/bin/sss_ssh_authorizedkeys")
        return tuple(map(str, items))

    return SettingKind(read, ",".join, paths=lambda value: value[:1])


def folders() -> SettingKind:
    """A list of absolute folders."""
    texts = several(folder)
    return SettingKind(texts.read, texts.show, paths=lambda value: value)


_SSH = re.compile(r"ssh://([A-Za-z0-9_.\\-]+@)?([A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
"""`ssh://[USER@]HOST[:PORT]`. No part begins with a hyphen, which ssh would take for an option."""


def _behind_ssh(value: str) -> str:
    found = _SSH.fullmatch(value)
    if found is None or (found[1] or "").startswith("-"):
        raise ValueError("an address such as ssh://lab or ssh://me@10.0.0.7:2222 is wanted, without a path")
    return value


TARGETS = ("syslog+tls", "syslog+tcp", "otlp+https", "otlp+http", "https", "http", "file")
"""Schemes of what records and heads are handed on to."""


def target() -> SettingKind:
    """Where records or heads are handed on to, as `hatchway events ship` knows it."""

    def read(raw: object) -> str:
        value = _text(raw)
        if urlsplit(value).scheme not in TARGETS:
            raise ValueError(
                "a target such as syslog+tls://host, otlp+https://host, https://host/path or file:///path is wanted"
            )
        return value

    return SettingKind(read)


def url() -> SettingKind:
    """The engine's address for clients: `http://host:port` or `https://host:port`, no path, user or query; or
    `ssh://[user@]host[:port]`."""

    def read(raw: object) -> str:
        value = _text(raw).rstrip("/")
        if value.startswith("ssh://"):
            return _behind_ssh(value)
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ValueError("an address such as http://127.0.0.1:7420 is wanted")
        if parts.path or parts.query or parts.fragment:
            raise ValueError("an address without a path is wanted, such as http://127.0.0.1:7420")
        try:
            port = parts.port
        except ValueError:
            raise ValueError("its port is a number up to 65535, such as http://127.0.0.1:7420") from None
        address(parts.netloc if port else f"{parts.netloc}:80")
        if not value.isascii():
            return f"{parts.scheme}://{wire_name(parts.hostname)}" + (f":{port}" if port else "")
        return value

    return SettingKind(read)
