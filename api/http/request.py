"""The two types between a server and an endpoint, plain values; and what both sides must call alike besides."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import msgspec

from hatchway.engine.access.principal import Principal
from hatchway.engine.base.loopback import is_loopback_address, is_loopback_name

Headers = tuple[tuple[bytes, bytes], ...]

JSON: tuple[bytes, bytes] = (b"content-type", b"application/json")
NO_STORE: tuple[bytes, bytes] = (b"cache-control", b"no-store")
NOSNIFF: tuple[bytes, bytes] = (b"x-content-type-options", b"nosniff")

_JSON_HEADERS: Headers = (JSON, NO_STORE, NOSNIFF)

_FORWARDED = frozenset(
    {b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip", b"via"}
)

LEFT = "hatchway.left"
"""An ASGI extension of ours: a function that takes a callback for the moment when the client leaves. It saves an
endpoint that waits only for that a task of its own."""

_TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

_encode = msgspec.json.Encoder().encode


class Request(NamedTuple):
    """A whole request, as a server read it. The path has its escapes decoded, the query has not. Header names are in
    lower case, values without the space around them. `client` and `server` are the connection's two ends."""

    method: str
    path: str
    query: bytes
    headers: Headers
    body: bytes
    client: tuple[str, int] | None
    """None on a Unix socket."""
    server: tuple[str, int] | None

    @property
    def peer(self) -> str:
        """The address at the connection's other end, which may be a proxy's; empty on a Unix socket."""
        return self.client[0] if self.client else ""

    def header(self, name: bytes) -> bytes | None:
        """The value of the first header of that (lower-case) name."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    @property
    def traceparent(self) -> str | None:
        """The `traceparent` header (W3C Trace Context, section 3.2); None where there is none that is well formed."""
        value = self.header(b"traceparent")
        return value.decode("ascii") if value is not None and _TRACEPARENT.fullmatch(value) else None

    @property
    def from_this_host(self) -> bool:
        """Whether the client is on this host, or at the other end of a tunnel that ends here.

        The peer's address alone doesn't say so: a proxy on this host passes on requests from anywhere. That shows by
        the name that was dialled, where the proxy passes the Host on.
        """
        if self.client is not None and not is_loopback_address(self.peer):
            return False
        host = (self.header(b"host") or b"").decode("latin-1").lower()
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        return is_loopback_name(name)

    @property
    def passed_on(self) -> bool:
        """Whether a header says that a proxy passed the request on. Any client may send one, so it may only ever cost
        the client something."""
        return any(key in _FORWARDED for key, _ in self.headers)

    @property
    def content_type(self) -> bytes | None:
        """The body's media type. A repeated header is one value with a comma, so no known type (RFC 9110 section
        5.3)."""
        values = [value for name, value in self.headers if name == b"content-type"]
        return b", ".join(values) if values else None


class Response(NamedTuple):
    """A response: its body, whose length is added, or a stream, whose items are sent one by one."""

    status: int
    body: bytes = b""
    headers: Headers = _JSON_HEADERS
    stream: AsyncIterator[bytes] | None = None
    depends_on: Principal | None = None
    """The principal whose session alone decides the response: until that session changes, the same request has the same
    response. None where other things decide too. A worker may give such a response again."""


def traced(response: Response, request_id: str, traceparent: str) -> Response:
    """The response with our name of the request beside the one that its sender knows it by."""
    named = b"%b;traceparent=%b" % (request_id.encode(), traceparent.encode())
    return response._replace(headers=(*response.headers, (b"x-request-id", named)))


class BrokenOff(Exception):
    """A stream can't be finished: the connection is broken off, so that no client takes what it has for the whole."""


def json_response(value: Any, status: int = 200, depends_on: Principal | None = None) -> Response:
    """A JSON response that no cache may keep; `depends_on` is the response's."""
    return Response(status, _encode(value), _JSON_HEADERS, None, depends_on)
