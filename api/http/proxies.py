"""What a configured proxy says of the client behind it. Nobody else is believed."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from api.http.call import Headers


def forwarded_for(headers: Headers, peer: str, trusted: tuple[str, ...]) -> str | None:
    """The client's address: X-Forwarded-For read from the right, past our own proxies. None where none may be told."""
    if not trusted or not _is_trusted(peer, trusted):
        return None
    hops = b",".join(value for name, value in headers if name == b"x-forwarded-for").decode("latin-1").split(",")
    for hop in reversed([hop.strip() for hop in hops]):
        if not _is_trusted(hop, trusted):
            return _address(hop)
    return None


@lru_cache(maxsize=4096)
def _is_trusted(address: str, trusted: tuple[str, ...]) -> bool:
    known = _address(address)
    return known is not None and any(ipaddress.ip_address(known) in ipaddress.ip_network(one) for one in trusted)


def _address(text: str) -> str | None:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None
