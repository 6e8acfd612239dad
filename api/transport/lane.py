"""The lane: takes a request that stands whole and plain in the buffer, as h11 would read it, and leaves all others."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

Headers = tuple[tuple[bytes, bytes], ...]

# Possessive throughout: no byte is looked at twice, however a request is made up. What h11 allows besides (other
# methods and versions, empty lines, bytes past ASCII, forty headers and more) is h11's.
PLAIN = re.compile(
    rb"(GET|POST) (/[!-~]*+) HTTP/1\.1\r\n"
    rb"((?:[-!#$%&'*+.^_`|~0-9A-Za-z]++:[\t -~]*+\r\n){1,40}+)\r\n"
)

LENGTH = re.compile(rb"[0-9]{1,7}")

NEVER = frozenset({b"transfer-encoding", b"upgrade", b"expect"})
"""What changes how a connection goes on, or how a body is read."""

GOES_ON = b"keep-alive"
"""The one thing that may be said of the connection: it is so anyhow, but most clients and proxies say it."""

SINGLE = (b"host", b"authorization", b"content-length", b"content-type", b"connection")
"""What must not be there twice."""


class LaneRequest(NamedTuple):
    """A whole request. Header names are in lower case, values without the space around them."""

    method: bytes
    target: bytes
    """Path and query, as sent."""
    headers: Headers
    body: bytes
    peer: tuple[str, int] | None
    """The socket's peer; none on a Unix socket."""
    server: tuple[str, int] | None
    secure: bool
    """Whether it came by TLS."""


class Reply(Protocol):
    """An answer. `content-length` and `date` are added; a stream can't be one."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]: ...
    @property
    def body(self) -> bytes: ...


class LaneAnswer(NamedTuple):
    """The plainest reply."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


Lane = Callable[[LaneRequest], Reply | Awaitable[Reply | None] | None]
"""Answers a request, at once or awaited, or leaves it (None) to the app. It may await only what ends by itself: nothing
is read meanwhile, so a hang-up is not seen."""


class Plain(NamedTuple):
    """What the recogniser read, and where the request ends."""

    method: bytes
    target: bytes
    headers: Headers
    body: bytes
    end: int


def recognise(data: bytes, begin: int, header_bytes: int) -> Plain | None:
    """The plain request that stands whole in `data` from `begin`; None for anything else, whatever is the matter."""
    match = PLAIN.match(data, begin)
    if match is None or match.end() - begin > header_bytes:
        return None
    method, target, lines = match.groups()
    fields = _fields(lines)
    if fields is None:
        return None
    headers, length = fields
    begin, end = match.end(), match.end() + (length or 0)
    if (length is None) != (method == b"GET") or len(data) < end:
        return None
    return Plain(method, target, headers, data[begin:end], end)


@lru_cache(maxsize=128)
def _fields(lines: bytes) -> tuple[Headers, int | None] | None:
    """Header lines taken apart, and the length of the body, if one is told; None where they are not plain.

    A client sends the same ones again and again.
    """
    headers = []
    for line in lines.split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        headers.append((name.lower(), value.strip()))
    fields = dict(headers)
    if b"host" not in fields or not NEVER.isdisjoint(fields) or (len(fields) < len(headers) and _doubled(headers)):
        return None
    if fields.get(b"connection", GOES_ON).lower() != GOES_ON:
        return None
    length = fields.get(b"content-length")
    if length is not None and LENGTH.fullmatch(length) is None:
        return None
    return tuple(headers), None if length is None else int(length)


def _doubled(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    names = [name for name, _ in headers]
    return any(names.count(name) > 1 for name in SINGLE)


@lru_cache(maxsize=256)
def _head(status: int, headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    """Status line and headers; the hot doors have few, and always the same."""
    head = b"HTTP/1.1 %d \r\n" % status + b"".join(b"%b: %b\r\n" % header for header in headers)
    ends = len(headers) + 1
    if (head.count(b"\r"), head.count(b"\n")) != (ends, ends):
        raise ValueError("a header holds a line end")
    return head


def encode(reply: Reply, date: tuple[bytes, bytes], *, closing: bool) -> bytes:
    """The answer as h11 writes it. Raises ValueError where a header would end early."""
    head, body = _head(reply.status, reply.headers), reply.body
    close = b"connection: close\r\n" if closing else b""
    return b"%bcontent-length: %d\r\n%b: %b\r\n%b\r\n%b" % (head, len(body), *date, close, body)
