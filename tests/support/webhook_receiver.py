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
    breaks after it was taken), `deaf` (before), `short` (it answers 200, and hangs up before the answer's end),
    `trickle` (a byte of the answer now and then, without end), `flood` (it is taken, and the answer never ends), or a
    status that refuses it."""

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
            if does in ("take", "die", "flood"):
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.taken.append(Got(self.path, headers, body))
            if does == "hang":
                receiver.released.wait(30)
            if does in ("die", "deaf", "hang"):
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response(int(does) if isinstance(does, int) else 200)
            self.send_header("content-length", "2" if does == "take" or isinstance(does, int) else "1000000000")
            self.send_header("location", "/elsewhere")
            self.end_headers()
            try:
                self.wfile.write(b"{}")
                while does == "trickle" and not receiver.released.wait(0.05):
                    self.wfile.write(b" ")
                while does == "flood" and not receiver.released.is_set():
                    self.wfile.write(b" " * 65_536)
            except OSError:
                pass  # the other side has hung up
            self.close_connection = does in ("short", "trickle", "flood")

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
