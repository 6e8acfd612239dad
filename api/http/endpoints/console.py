"""The browser console: its files, held in memory, and the headers that bind the page (security rule B1)."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

from hatchway.api.http.endpoint import Invocation
from hatchway.api.http.request import NOSNIFF, Response
from hatchway.engine.base.errors import NotFound

PAGE = "index.html"

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
"""The content security policy: only the engine's own scripts, styles and pictures; no page may frame the console; no
string is run as code or parsed as markup (Trusted Types)."""

_TYPES = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}

_BINDING = (
    (b"content-security-policy", POLICY.encode()),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    # A browser may keep files but must ask each time, so that it never mixes files of two releases.
    (b"cache-control", b"no-cache"),
    NOSNIFF,
)


class File(NamedTuple):
    """A file as it is served; `etag` is its digest in quotes (RFC 9110 section 8.8.3)."""

    body: bytes
    type: bytes
    etag: bytes


@lru_cache(maxsize=1)
def console_files() -> dict[str, File]:
    """Every file of the console by name, read once."""
    folder = files("hatchway.api").joinpath("console")
    kinds = {item.name: _TYPES.get(item.name.rpartition(".")[2]) for item in folder.iterdir()}
    bodies = {name: (folder.joinpath(name).read_bytes(), kind) for name, kind in kinds.items() if kind}
    return {
        name: File(body, kind, b'"%s"' % sha256(body).hexdigest()[:32].encode())
        for name, (body, kind) in bodies.items()
    }


def page(invocation: Invocation) -> Response:
    """The console's one page (section 5, rule 7)."""
    return _serve(invocation, PAGE)


def asset(invocation: Invocation) -> Response:
    """A script, style or picture of the page. Raises NotFound."""
    return _serve(invocation, invocation.params["file"])


def _serve(invocation: Invocation, name: str) -> Response:
    file = console_files().get(name)
    if file is None:
        raise NotFound("no such file")
    headers = (*_BINDING, (b"etag", file.etag))
    if file.etag in (invocation.request.header(b"if-none-match") or b""):
        return Response(304, b"", headers)
    return Response(200, file.body, ((b"content-type", file.type), *headers))
