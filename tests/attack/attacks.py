"""Each attack by its name: what one client does again and again, from an address of its own on loopback.

Run as a process of its own (`python -m tests.attack.attacks`), so that it takes no time from whoever measures.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import h2.config
import h2.connection
import h2.settings
import trio

REST = 0.5
"""Seconds before a connection that the engine ended is made anew."""


class Target(NamedTuple):
    """The engine, and a token of a session that may look at little (empty: none)."""

    port: int
    host: str
    token: str


async def connect(target: Target, address: str, alpn: str = "http/1.1") -> trio.SSLStream[trio.SocketStream]:
    """A connection over TLS from one of loopback's addresses."""
    stream = trio.SSLStream(await silent(target, address), tls(alpn))
    await stream.do_handshake()
    return stream


async def silent(target: Target, address: str) -> trio.SocketStream:
    """A connection that has said nothing yet."""
    sock = trio.socket.socket()
    await sock.bind((address, 0))
    await sock.connect(("127.0.0.1", target.port))
    return trio.SocketStream(sock)


def tls(alpn: str) -> ssl.SSLContext:
    """A context that believes anybody."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([alpn])
    return context


def request(target: Target, method: str, path: str, *more: str, body: bytes | None = None) -> bytes:
    """A request of HTTP/1.1 as bytes."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {target.host}", *more]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


async def flood(stream: Any, data: bytes) -> None:
    """Send the same for ever, and read what comes."""

    async def read() -> None:
        while await stream.receive_some(65536):
            pass
        raise trio.BrokenResourceError

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        while True:
            await stream.send_all(data)


async def windows(target: Target) -> None:
    """12: as many requests on HTTP/2 as the engine takes at once, and no window for one byte of an answer."""
    stream = await connect(target, "127.0.12.1", "h2")
    wire = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None))
    wire.initiate_connection()
    wire.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
    paths = (b"/openapi.json", b"/", b"/console/main.js")
    for number in range(32):
        fields = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", target.host.encode())]
        stream_id = wire.get_next_available_stream_id()
        wire.send_headers(stream_id, [*fields, (b":path", paths[number % 3])], end_stream=True)
    await stream.send_all(wire.data_to_send())
    while await stream.receive_some(65536):
        pass


async def frames(target: Target) -> None:
    """12: PRIORITY frames for a thousand streams, and PINGs, without end."""
    stream = await connect(target, "127.0.12.2", "h2")
    wire = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None))
    wire.initiate_connection()
    await stream.send_all(wire.data_to_send())
    priorities = [b"\0\0\5\2\0" + (2 * n + 1).to_bytes(4, "big") + b"\0\0\0\0\x10" for n in range(1, 1500)]
    await flood(stream, b"".join(priorities) + (b"\0\0\x08\6\0\0\0\0\0" + bytes(8)) * 1000)


async def bodies(target: Target) -> None:
    """12: almost all of a large body, to an endpoint that wants a token, without one."""
    stream = await connect(target, "127.0.12.3")
    body = b"{" + b" " * (256 * 1024 - 2)
    head = request(target, "POST", "/api/platform/singularity/instance/", body=body)[: -len(body)]
    await stream.send_all(head + body[:-1])
    while await stream.receive_some(65536):
        pass


async def unread(target: Target) -> None:
    """12: pipelined requests whose answers are never read, and of a large answer a byte now and then."""
    stream = await connect(target, "127.0.12.4")
    await stream.send_all(
        request(target, "GET", "/.well-known/jwks.json") * 400 + request(target, "GET", "/openapi.json") * 9
    )
    while True:
        await stream.transport_stream.socket.recv(1)
        await trio.sleep(1)


async def any_key(target: Target) -> None:
    """13: wrong signatures on nonces that any key may answer."""
    stream = await connect(target, "127.0.13.1")
    nonce = await _nonce(stream, target)
    wrong = b64encode(b"\x01" * 256).decode()
    body = json.dumps({"nonce": nonce, "signature": wrong, "algorithm": "PS256"}).encode()
    await flood(stream, request(target, "POST", "/api/auth/verify/", body=body))


async def refused(target: Target) -> None:
    """14: verifies that fail before any key is tried, pipelined."""
    stream = await connect(target, "127.0.14.1")
    body = b'{"nonce":"no nonce of ours","signature":"AAAA"}'
    await flood(stream, request(target, "POST", "/api/auth/verify/", body=body) * 50)


async def listings(target: Target) -> None:
    """15: one small session asks for its sessions again and again."""
    stream = await connect(target, "127.0.15.1")
    await flood(stream, request(target, "GET", "/api/auth/sessions/", f"Authorization: Bearer {target.token}"))


async def places(target: Target) -> None:
    """16: one of 4,096 connections that say nothing."""
    stream = await silent(target, "127.0.16.1")
    while await stream.receive_some(1):
        pass


async def handshakes(target: Target) -> None:
    """16: the first flight of a handshake, and no more."""
    stream = await silent(target, "127.0.16.2")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    begun = tls("h2").wrap_bio(incoming, outgoing)
    try:
        begun.do_handshake()
    except ssl.SSLWantReadError:
        await stream.send_all(outgoing.read())
    await trio.sleep(60)


async def _nonce(stream: Any, target: Target) -> str:
    await stream.send_all(request(target, "GET", "/api/auth/challenge/"))
    data = b""
    while b"}" not in data:
        data += await stream.receive_some(65536)
    nonce: str = json.loads(data[data.index(b"{") :])["nonce"]
    return nonce


Attack = Callable[[Target], Awaitable[None]]

ATTACKS: dict[str, tuple[Attack, int]] = {
    "windows": (windows, 20),
    "frames": (frames, 1),
    "bodies": (bodies, 40),
    "unread": (unread, 40),
    "any_key": (any_key, 1),
    "refused": (refused, 1),
    "listings": (listings, 1),
    "places": (places, 4096),
    "handshakes": (handshakes, 100),
}
"""Each attack, and how many clients do so at once."""


async def again_and_again(attack: Attack, target: Target) -> None:
    """The attack, made anew whenever the engine ends it."""
    while True:
        try:
            await attack(target)
        except* (OSError, ssl.SSLError, trio.BrokenResourceError, trio.ClosedResourceError, ValueError):
            pass
        await trio.sleep(REST)


async def main() -> None:
    """`attacks PORT HOST TOKEN NAME...`: until killed."""
    port, host, token, *names = sys.argv[1:]
    target = Target(int(port), host, token)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    async with trio.open_nursery() as nursery:
        for name in names:
            attack, clients = ATTACKS[name]
            for number in range(clients):
                nursery.start_soon(again_and_again, attack, target)
                if number % 20 == 19:
                    await trio.sleep(0.01)


if __name__ == "__main__":
    trio.run(main)
