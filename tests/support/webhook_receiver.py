"""A receiver of requests that takes them, refuses them, lets them hang, or dies, as a test says."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Got(NamedTuple):
    """A request that was taken: its path, headers in lower case, and body."""

    path: str
    headers: dict[str, str]
    body: bytes


class Receiver:
    """`behave` says for each request, by its number from 0, what becomes of it: `take`, `hang`, `die` (its connection
    breaks after it was taken), `deaf` (before), or a status that refuses it."""

    def __init__(self, behave: Callable[[int], str | int] = lambda number: "take") -> None:
        self.behave, self.taken, self.count = behave, list[Got](), 0
        self.released = threading.Event()


@contextmanager
def receiving(receiver: Receiver, trust: ssl.SSLContext | None = None, port: int = 0) -> Iterator[int]:
    """Its port, while it runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            does, receiver.count = receiver.behave(receiver.count), receiver.count + 1
            if does in ("take", "die"):
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.taken.append(Got(self.path, headers, body))
            if does == "hang":
                receiver.released.wait(30)
            if does in ("die", "deaf", "hang"):
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response(200 if does == "take" else int(does))
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    if trust is not None:
        server.socket = trust.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        receiver.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
