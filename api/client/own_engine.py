"""This host's own engine: while it is down any program may take its port, so the engine is asked before a request."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hatchway.api.client.wire import ClientFault, Unreachable, dialled
from hatchway.engine.base.errors import EngineUnavailable, Refusal
from hatchway.engine.base.loopback import is_loopback_address, is_loopback_name
from hatchway.engine.settings.settings import home_folder

AWAY = "HATCHWAY_HOME=~/.hatchway-away"
"""A setting that names a folder without an engine: with it the command asks no engine of this host, and uses a
tunnel."""


class OwnEngine:
    """The engine that runs on `home`, or has run there, as its operator socket tells. The socket's peer is checked."""

    def __init__(self, home: Path | None = None) -> None:
        """Where `home` is None, the folder is found as the command finds it, once a request goes to loopback."""
        self._home = home

    @cached_property
    def home(self) -> Path:
        """The engine's folder."""
        return self._home or home_folder()

    @property
    def has_been(self) -> bool:
        """Whether this folder is an engine's."""
        try:
            return (self.home / "private-key.pem").exists()
        except (Refusal, RuntimeError, OSError):  # the user has no home folder, or may not enter it
            return False

    def told(self) -> dict[str, Any]:
        """What the engine says of itself now, as `engine status`; empty where it doesn't run."""
        from hatchway.api.client.operator import ask

        try:
            return ask(self.home, "status")
        except (EngineUnavailable, FileNotFoundError):
            return {}

    def is_in_question(self, url: str) -> bool:
        """Whether `check` may have something to look up: for plain HTTP, from an engine's folder. With TLS the
        certificate shows whose the port is.
        """
        return urlsplit(url).scheme == "http" and self.has_been

    def check(self, url: str) -> None:
        """Raises ClientFault where a request to `url` could reach another program of this host than this engine."""
        if self.is_in_question(url) and leads_to_loopback(urlsplit(url).hostname or ""):
            check_word(url, self.told(), self.home)


def check_word(url: str, told: Mapping[str, Any], home: Path) -> None:
    """Raises ClientFault unless the engine on `home`, which `told` this, is what answers at `url`: it listens there, or
    its setting `addresses` says that people reach it there, through a proxy."""
    if not told:
        raise Unreachable(
            f"no engine answers at {url}: none runs on {home}, and its port is anybody's while it is down. "
            "Nothing was sent",
            sent=False,
        )
    if not (listens_at(told, url) or dialled(url) in told.get("addresses", ())):
        place = told.get("url") or told.get("socket")
        raise ClientFault(
            f"this host's engine listens at {place}, and who listens at {url} it can't tell. Nothing was "
            f"sent. For an engine at the end of a tunnel give the command a folder that is no engine's: {AWAY}"
        )


def listens_at(told: Mapping[str, Any], url: str) -> bool:
    """Whether the engine that `told` this listens itself at every address that `url` can lead to."""
    own = told.get("url")
    if not isinstance(own, str) or urlsplit(own).scheme != urlsplit(url).scheme:
        return False
    if dialled(own) == dialled(url):
        return True
    host, port = urlsplit(url).hostname or "", dialled(url).rpartition(":")[2]
    listening = told.get("listening") or [dialled(own)]
    led = _addresses(host) if leads_to_loopback(host) else ()
    return bool(led) and all(_spelled(ip, port) in listening or _everywhere(ip, port) in listening for ip in led)


def leads_to_loopback(host: str) -> bool:
    """Whether what is sent to `host` may stay on this host, in whatever way that is written: as `127.1`, `0`, or a name
    that /etc/hosts has for an address of loopback, often the host's own."""
    return is_loopback_name(host) or any(
        is_loopback_address(address) or ipaddress.ip_address(address).is_unspecified for address in _looked_up(host)
    )


Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


def _looked_up(host: str) -> set[str]:
    try:
        found = {str(row[4][0]) for row in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):  # no such name, or none that a name server could be asked for
        return set()
    return {address.partition("%")[0] for address in found}


def _addresses(host: str) -> list[Ip]:
    """The addresses that a name leads to, of those that this host has: it has no [::1] without IPv6."""
    return [ipaddress.ip_address(address) for address in sorted(_looked_up(host)) if _is_here(address)]


def _is_here(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _spelled(ip: Ip, port: str) -> str:
    return f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}"


def _everywhere(ip: Ip, port: str) -> str:
    return f"[::]:{port}" if ip.version == 6 else f"0.0.0.0:{port}"
