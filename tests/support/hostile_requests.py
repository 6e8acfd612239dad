"""What hostile clients bring: variants of a token, naughty strings, and requests that no library would send."""

from __future__ import annotations

import json
import re
import runpy
import socket
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from hatchway.engine.base.errors import Refusal
from tests.support.fakes import ROOT, vectors


def refusal_of(ask: Callable[[], Any]) -> Refusal | None:
    """The refusal that `ask` meets, or None; anything else that is raised goes on."""
    try:
        ask()
    except Refusal as refused:
        return refused
    return None


def token_attacks(token: str, public_keys: Sequence[Path]) -> list[tuple[str, str]]:
    """Name and Authorization header of each of the 93 variants of a good token; `ok-` ones must be accepted."""
    build = runpy.run_path(str(ROOT / "tests/data/own/jwt_attacks.py"))["build"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves the key files to the collector
        return [(variant["name"], variant["authorization"]) for variant in build(token, public_keys)]


def naughty_strings() -> list[str]:
    """The big list, and what it lacks: bytes that end C strings, halves of surrogate pairs, names of our own."""
    listed: list[str] = json.loads((vectors() / "blns/blns.json").read_text())
    return [
        *listed,
        "\0",
        "a\0b",
        "\x1b[2J",
        "\u202e",
        "\u2028",
        "\x7f",
        "\x9b1A",
        "../" * 9 + "etc/passwd",
        "A" * 5000,
    ]


class Raw(NamedTuple):
    """An answer as it came: status (0 where there was none), headers with lower-case names in order, body."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """The first header of that name."""
        return next((value for key, value in self.headers if key == name), None)

    def json(self) -> Any:
        return json.loads(self.body)


def parse(data: bytes) -> Raw:
    """The first answer in `data`. An unfinished or broken one fails the test."""
    if not data:
        return Raw(0, (), b"")
    head, end, body = data.partition(b"\r\n\r\n")
    assert end, data
    first, *lines = head.decode("latin-1").split("\r\n")
    version, status, _ = first.split(" ", 2)
    assert version == "HTTP/1.1", data
    pairs = [line.partition(":") for line in lines]
    headers = tuple((name.lower(), value.strip()) for name, _, value in pairs)
    length = dict(headers).get("content-length")
    return Raw(int(status), headers, body if length is None else body[: int(length)])


def exchange(port: int, data: bytes, *, wait: float = 30.0, address: str = "127.0.0.1") -> Raw:
    """Send bytes from a loopback `address`; the first answer, read to its end or the connection's."""
    with socket.create_connection(("127.0.0.1", port), timeout=wait, source_address=(address, 0)) as peer:
        with suppress(BrokenPipeError, ConnectionResetError):
            peer.sendall(data)  # it may have refused already: its answer is there all the same
        received = b""
        with suppress(ConnectionResetError):
            while not _whole(received, data) and (chunk := peer.recv(65536)):
                received += chunk
    return parse(received)


def _whole(received: bytes, data: bytes) -> bool:
    """Whether an answer of a known length stands whole in what came."""
    head, end, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\ncontent-length: *([0-9]+)", head)
    return bool(end) and length is not None and (data.startswith(b"HEAD ") or len(body) >= int(length[1]))


def request(
    method: str, target: str, *headers: str, port: int, body: bytes = b"", host: str | None = None, close: bool = True
) -> bytes:
    """A whole request, that asks for the connection's end unless told not to; `host` replaces the engine's own."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host or f'127.0.0.1:{port}'}", *headers]
    if close:
        lines.append("Connection: close")
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
