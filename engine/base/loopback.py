"""What loopback is: asked of settings, sockets, Host headers and peers alike, and answered here alone."""

from __future__ import annotations

import ipaddress
import socket

LOOPBACKS = ("127.0.0.1", "::1")
"""The addresses that `localhost` stands for, and whatever ends in `.localhost` (RFC 6761, section 6.3)."""

_TEXTS = frozenset(LOOPBACKS)


def is_loopback_address(address: str) -> bool:
    """Whether an IP address reaches only the host that it is used on. A text that is no address does not."""
    if address in _TEXTS:
        return True
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(known, ipaddress.IPv6Address) and known.ipv4_mapped:
        known = known.ipv4_mapped
    return known.is_loopback


def is_localhost(name: str) -> bool:
    """Whether a lower-case host name stands for both loopback addresses."""
    return name == "localhost" or name.endswith(".localhost")


def is_loopback_name(name: str) -> bool:
    """Whether a lower-case host, an IPv6 address with or without its brackets, is a loopback address or `localhost`."""
    return is_localhost(name) or is_loopback_address(name.removeprefix("[").removesuffix("]"))


def loopbacks_here() -> tuple[str, ...]:
    """Those of the two loopback addresses that this host has: with IPv6 switched off nobody can listen on the other."""
    return tuple(address for address in LOOPBACKS if _exists(address))


def _exists(address: str) -> bool:
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True
