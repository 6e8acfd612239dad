"""The plain-request parser: reads a request that is whole in the buffer, exactly as h11 would, and leaves all others.

The setting `lane` switches it on and off: so the parser was called once. A server's `fast_path` is what answers the
requests that the parser reads, the gateway's `handle`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from urllib.parse import unquote

from hatchway.api.http.request import Headers, Request, Response

# All repetitions are possessive, so that no request makes the matcher look at a byte twice. What h11 allows besides
# (other methods and versions, empty lines, bytes past ASCII, forty headers and more) is left to h11.
PLAIN = re.compile(
    rb"(GET|POST) (/[!-~]*+) HTTP/1\.1\r\n"
    rb"((?:[-!#$%&'*+.^_`|~0-9A-Za-z]++:[\t -~]*+\r\n){1,40}+)\r\n"
)

LENGTH = re.compile(rb"[0-9]{1,7}")

KNOWN_BYTES = 2048
"""Bytes of the longest request that is remembered for its connection, in case the client sends it again."""

METHODS = {b"GET": "GET", b"POST": "POST"}

NEVER = frozenset({b"transfer-encoding", b"upgrade", b"expect"})
"""Headers that change how the connection goes on, or how the body is read: such a request is left to h11."""

GOES_ON = b"keep-alive"
"""The one value that the Connection header may have. It is the default, but most clients and proxies send it."""

SINGLE = (b"host", b"authorization", b"content-length", b"content-type", b"connection")
"""Headers that must not be there twice."""


Ends = tuple[tuple[str, int] | None, tuple[str, int] | None]
"""The addresses of a connection's two ends: the client's, and ours. None at a Unix socket."""

FastPath = Callable[[Request], Response | Awaitable[Response] | None]
"""The gateway's `handle`: responds to a request, at once or awaited and never by a stream, or leaves it to the app by
None. It may await only what ends soon by itself: nothing is read meanwhile, so a client's leaving is not noticed."""


def recognise(data: bytes, begin: int, header_bytes: int, ends: Ends) -> tuple[Request, int] | None:
    """The plain request that is whole in `data` from `begin` on, and the offset of its end; None for anything else.

    `ends` are the connection's.
    """
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
    path, _, query = target.partition(b"?")
    return Request(METHODS[method], decode_path(path), query, headers, data[begin:end], *ends), end


class PlainParser:
    """`recognise` for one connection. A request that comes again and again, as a proxy's inspect, is parsed once."""

    __slots__ = ("_ends", "_known")

    def __init__(self, ends: Ends) -> None:
        self._ends = ends
        self._known: tuple[bytes, tuple[Request, int] | None] = (b"", None)

    def recognise(self, data: bytes, begin: int, header_bytes: int) -> tuple[Request, int] | None:
        """As the function of that name."""
        if data == self._known[0] and begin == 0 and len(data) <= header_bytes:
            return self._known[1]
        found = recognise(data, begin, header_bytes, self._ends)
        if found is not None and found[0].method == "GET" and found[1] == len(data) <= KNOWN_BYTES and begin == 0:
            self._known = data, found
        return found

    def forget(self) -> None:
        """Forget the request that was read last, since it is not answered here."""
        self._known = b"", None


def decode_path(path: bytes) -> str:
    """A path without its escapes, as ASGI has it."""
    text = path.decode("ascii")
    return unquote(text) if "%" in text else text


@lru_cache(maxsize=128)
def _fields(lines: bytes) -> tuple[Headers, int | None] | None:
    """The headers of their lines, and the body's length, None without one; None where they are not plain.

    It is cached, since a client sends the same ones again and again.
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
    """Status line and headers. It is cached, since plain endpoints have few different ones."""
    head = b"HTTP/1.1 %d \r\n" % status + b"".join(b"%b: %b\r\n" % header for header in headers)
    ends = len(headers) + 1
    if (head.count(b"\r"), head.count(b"\n")) != (ends, ends):
        raise ValueError("a header holds a line end")
    return head


def encode(response: Response, date: tuple[bytes, bytes], *, closing: bool) -> bytes:
    """The response's bytes, as h11 writes them. Raises ValueError for a header that would end early."""
    head, body = _head(response.status, response.headers), response.body
    close = b"connection: close\r\n" if closing else b""
    return b"%bcontent-length: %d\r\n%b: %b\r\n%b\r\n%b" % (head, len(body), *date, close, body)
