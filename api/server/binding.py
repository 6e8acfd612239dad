"""The addresses that the setting `host` stands for, and sockets that listen on them, all on one port."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from typing import Any, NamedTuple

import trio

from hatchway.engine.base.loopback import LOOPBACKS, is_localhost

EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - listened on where the setting says so
"""Stand for every address of this host. `::` stands for both families, as it does for most servers."""

TRIES = 20
"""Ports that are tried to find one that is free at every address."""

_NOT_HERE = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
"""Errors for an address that the host does not have, as those of IPv6 where that is switched off."""


class BindAddress(NamedTuple):
    """An address to listen on, as `socket.bind` takes it. An `extra` one may be missing."""

    family: socket.AddressFamily
    address: tuple[Any, ...]
    extra: bool = False


async def addresses_of(host: str) -> list[BindAddress]:
    """Every address of `host`. Raises OSError where a name is not known."""
    hosts = LOOPBACKS if is_localhost(host) else EVERYWHERE if host == "::" else (host,)
    return [bind for one in hosts for bind in await _resolve(one)]


async def other_loopback(found: list[BindAddress]) -> list[BindAddress]:
    """The other loopback address, where exactly one is among `found`."""
    lacking = [one for one in LOOPBACKS if not _covered(one, found)]
    if len(lacking) != 1:
        return []
    return [bind._replace(extra=True) for bind in await _resolve(lacking[0])]


async def _resolve(host: str) -> list[BindAddress]:
    found = await trio.socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys(BindAddress(family, tuple(address)) for family, _, _, _, address in found))


def _covered(loopback: str, found: Iterable[BindAddress]) -> bool:
    return any(one.address[0] in (loopback, EVERYWHERE[LOOPBACKS.index(loopback)]) for one in found)


def listen(wanted: list[BindAddress], port: int, backlog: int) -> list[socket.socket]:
    """A listening socket for each address that this host has, all on one port (0: any that is free at all of them).

    An extra one is left out where another process has it. Raises OSError.
    """
    for tries_left in reversed(range(TRIES)):
        opened: list[socket.socket] = []
        try:
            absent = _open_each(wanted, port, opened, strict=port == 0 and tries_left > 0)
            for sock in opened:
                sock.listen(backlog)
            if opened:
                return opened
            raise absent or OSError(errno.EADDRNOTAVAIL, "no address to listen on")
        except OSError as error:
            for sock in opened:
                sock.close()
            if error.errno != errno.EADDRINUSE or port or not tries_left:
                raise
    raise AssertionError("the last try returns or raises")


def _open_each(wanted: list[BindAddress], port: int, opened: list[socket.socket], *, strict: bool) -> OSError | None:
    """Open a socket for each address, into `opened`. Returns the error where the host has none of them. With `strict`
    the extra ones must open too."""
    absent: OSError | None = None
    for bind in wanted:
        if bind.extra and not opened:
            break  # the host has no address that was asked for
        try:
            opened.append(_bound(bind, port or (opened[0].getsockname()[1] if opened else 0)))
        except OSError as error:
            if error.errno in _NOT_HERE:
                absent = error
            elif strict or not bind.extra:
                raise OSError(error.errno, f"{error.strerror} ({bind.address[0]})") from error
    return absent


def _bound(bind: BindAddress, port: int) -> socket.socket:
    sock = socket.socket(bind.family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if bind.family == socket.AF_INET6:
            # Each family has a socket of its own, so that no peer appears as an IPv4 address in IPv6's form.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((bind.address[0], port, *bind.address[2:]))
    except OSError:
        sock.close()
        raise
    return sock
