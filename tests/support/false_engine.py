"""A server on loopback that answers as it likes, and what it may say."""

from __future__ import annotations

import socket
import ssl
import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from hatchway.api.client import StoredToken


def answer(status: int, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@contextmanager
def false_engine(
    reply: Callable[[bytes], bytes], tls: ssl.SSLContext | None = None, port: int = 0
) -> Iterator[tuple[str, list[bytes]]]:
    """A server that answers as it likes; yields its address and every request it got, whole."""
    listening = socket.create_server(("127.0.0.1", port))
    requests: list[bytes] = []
    peers: dict[socket.socket, threading.Thread] = {}

    def serve(peer: socket.socket) -> None:
        with peer, suppress(OSError), tls.wrap_socket(peer, server_side=True) if tls else peer as peer:
            if request := _whole(peer).strip():
                requests.append(request)
                peer.sendall(reply(request))

    def work() -> None:
        while True:
            try:
                peer, _ = listening.accept()
            except OSError:
                return
            # Browsers dial connections that they may never use: one that says nothing holds up no other.
            peers[peer] = threading.Thread(target=serve, args=(peer,))
            peers[peer].start()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{listening.getsockname()[1]}", requests
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()
        for peer, serving in peers.items():
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
            serving.join()


def _whole(peer: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data and (more := peer.recv(65536)):
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            while len(body) < int(line.split(b":")[1]) and (more := peer.recv(65536)):
                body += more
    return head + b"\r\n\r\n" + body


def b64(text: str | bytes) -> str:
    return urlsafe_b64encode(text.encode() if isinstance(text, str) else text).rstrip(b"=").decode()


def nonce(host: str, identity: str = "any") -> str:
    parts: list[str | bytes] = [host, identity, bytes(32), bytes(8), bytes(32)]
    return "hatchway-auth-v1." + ".".join(b64(part) for part in parts)


def stored(url: str) -> StoredToken:
    return StoredToken(url, "aa.bb.cc", 2_000_000_000, 1_000_000_000.0, 2_000_000_000)
