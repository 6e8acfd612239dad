"""What this program's own requests over HTTP have in common: they are httpcore's, by sync and async callers alike.

httpcore makes connections, keeps them, and bounds each wait; it reads no environment, follows no redirect, keeps no
cookie. What an answer means is its caller's business.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

import httpcore

FAULTS = (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol)
"""What is raised where there is no whole answer."""

_KEPT = "/?%!$&'()*+,;=:@[]"
"""What stands in a target as it is given, beside letters and digits (RFC 3986, 3.3 and 3.4)."""


def waits(seconds: float | None, connect: float | None) -> dict[str, dict[str, float | None]]:
    """The extension of a request that bounds its waits: for a connection, and for each byte. None is any time."""
    return {"timeout": {"connect": connect, "read": seconds, "write": seconds, "pool": seconds}}


def target(path: str, query: str = "") -> bytes:
    """A request's target: a path, which may have a query of its own, and more of it. What can't travel as it is becomes
    `%xx`, and `%xx` stays."""
    more = f"{'&' if '?' in path else '?'}{query}" if query else ""
    return quote(path + more, safe=_KEPT).encode()


def fields(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers of an answer, their names in lower case; one that came several times has commas between."""
    told: dict[str, str] = {}
    for name, value in headers:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        told[key] = f"{told[key]}, {text}" if key in told else text
    return told
