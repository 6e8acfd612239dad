"""What a door takes and gives: plain values that know neither Quart nor ASGI."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

import msgspec

from engine.loopback import is_loopback_address, is_loopback_name
from engine.records import Origin

Headers = tuple[tuple[bytes, bytes], ...]

JSON: tuple[bytes, bytes] = (b"content-type", b"application/json")
NO_STORE: tuple[bytes, bytes] = (b"cache-control", b"no-store")
NOSNIFF: tuple[bytes, bytes] = (b"x-content-type-options", b"nosniff")

_FORWARDED = frozenset(
    {b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip", b"via"}
)

_encode = msgspec.json.Encoder().encode


class Call(NamedTuple):
    """A whole request. Header names are lower-case; `peer` is the socket's address, `forwarded` the one that a trusted
    proxy gave; `params` are the path's."""

    method: str
    path: str
    query: bytes
    headers: Headers
    body: bytes
    peer: str
    forwarded: str | None
    request_id: str
    params: Mapping[str, str]

    def header(self, name: bytes) -> bytes | None:
        """The value of the first header of that (lower-case) name."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    @property
    def from_this_host(self) -> bool:
        """Whether somebody on this host asks, or a tunnel that ends here. The peer alone doesn't say: a proxy that runs
        here speaks for the whole world, and shows by the name that was dialled (where it hands the Host on)."""
        if not is_loopback_address(self.peer):
            return False
        host = (self.header(b"host") or b"").decode("latin-1").lower()
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        return is_loopback_name(name)

    @property
    def passed_on(self) -> bool:
        """Whether a header says that a proxy stands in between. Anybody may send one, so it can only take away."""
        return any(key in _FORWARDED for key, _ in self.headers)

    @property
    def origin(self) -> Origin:
        """Who asks, for the records and the limits, before anybody is signed in."""
        return Origin(None, self.forwarded or self.peer, self.request_id)


class Answer(NamedTuple):
    """What is sent back. A stream's items are flushed one by one; a `body` of bytes gets its length."""

    status: int
    body: bytes | AsyncIterator[bytes] = b""
    headers: Headers = (JSON, NO_STORE)


class BrokenOff(Exception):
    """A stream that can't be brought to its end: the connection breaks, so that nobody takes it for whole."""


def json_answer(value: Any, status: int = 200) -> Answer:
    """A JSON answer that nobody may keep."""
    return Answer(status, _encode(value))
