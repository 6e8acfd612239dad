"""What a proxy of the setting `trusted_proxies` says of the client behind it. No other peer is believed."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from hatchway.api.http.request import Headers

LONGEST_ADDRESS = 45
"""Characters of the longest spelling of an IP address. A longer text is not parsed, and not cached."""

_SCHEMES = {b"http": "http", b"https": "https"}


def forwarded_for(headers: Headers, peer: str, trusted: tuple[str, ...]) -> str | None:
    """The client's address: X-Forwarded-For read from the right, past our own proxies. None where none may be told."""
    if not _speaks_for_others(peer, trusted):
        return None
    hops = b",".join(value for name, value in headers if name == b"x-forwarded-for").decode("latin-1").split(",")
    for hop in reversed(hops):
        address = _address(hop.strip())
        if address is None or not _is_trusted(address, trusted):
            return address
    return None


def forwarded_scheme(headers: Headers, peer: str, trusted: tuple[str, ...]) -> str | None:
    """`http` or `https`, as the proxy next to us says it was dialled (X-Forwarded-Proto); None where it doesn't say."""
    if not _speaks_for_others(peer, trusted):
        return None
    told = b",".join(value for name, value in headers if name == b"x-forwarded-proto")
    return _SCHEMES.get(told.rpartition(b",")[2].strip().lower())


def _speaks_for_others(peer: str, trusted: tuple[str, ...]) -> bool:
    # The zone in a peer's address comes from the kernel: it names the interface, and is no part of the address.
    return bool(trusted) and _is_trusted(peer.partition("%")[0], trusted)


@lru_cache(maxsize=4096)
def _is_trusted(address: str, trusted: tuple[str, ...]) -> bool:
    known = _address(address)
    return known is not None and any(ipaddress.ip_address(known) in ipaddress.ip_network(one) for one in trusted)


def _address(text: str) -> str | None:
    """An IP address in its one spelling; an IPv4 address in IPv6's form is the IPv4 address. An IPv6 zone is refused:
    it means nothing on another host, and may be any text at all."""
    if len(text) > LONGEST_ADDRESS or "%" in text:
        return None
    try:
        known = ipaddress.ip_address(text)
    except ValueError:
        return None
    return str(getattr(known, "ipv4_mapped", None) or known)
