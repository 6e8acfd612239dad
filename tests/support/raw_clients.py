"""For the tests of the server: one on loopback in the same trio run, and clients that speak raw bytes."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import h11
import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hatchway.api.server.server import FastPath, ServerLimits, open_sockets, serve
from tests.support.server_apps import Told, bare_app

GET = b"GET %b HTTP/1.1\r\nHost: x\r\n%b\r\n"


@cache
def certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate for localhost and its key, as PEM files in `folder`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=36500))
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    paths = folder / "cert.pem", folder / "key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    return paths


def server_context(paths: tuple[Path, Path]) -> ssl.SSLContext:
    """A server's context with that certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["h2", "http/1.1"])
    context.load_cert_chain(*paths)
    return context


class Client:
    """A connection that sends bytes and reads answers. `h11` is used to read, never to write."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.buffer = b""

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def get(self, path: bytes, *headers: bytes) -> tuple[int, dict[bytes, bytes], bytes]:
        """A GET, and its whole answer."""
        await self.send(GET % (path, b"".join(header + b"\r\n" for header in headers)))
        return await self.answer()

    async def answer(self, method: bytes = b"GET") -> tuple[int, dict[bytes, bytes], bytes]:
        """The next whole answer: status, headers, body. A broken one raises h11.RemoteProtocolError."""
        reader = h11.Connection(h11.CLIENT)
        reader.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
        reader.send(h11.EndOfMessage())
        status, headers, body = 0, {}, b""
        if self.buffer:  # none would mean the end
            reader.receive_data(self.buffer)
        while True:
            event = reader.next_event()
            if event is h11.NEED_DATA:
                data = await self.some()
                reader.receive_data(data)
            elif isinstance(event, h11.Response):
                status, headers = event.status_code, dict(event.headers)
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                self.buffer = reader.trailing_data[0]
                return status, headers, body

    async def some(self) -> bytes:
        """Whatever comes next; nothing at the end, however it came."""
        try:
            return bytes(await self.stream.receive_some(65536))
        except trio.BrokenResourceError:
            return b""

    async def rest(self) -> bytes:
        """All that still comes, until the server ends the connection."""
        data, self.buffer = self.buffer, b""
        while more := await self.some():
            data += more
        return data

    async def ends(self) -> bool:
        """Whether the server ends the connection and has nothing more to say."""
        return await self.rest() == b""


class Served:
    """A server that runs, and how to reach and to end it."""

    def __init__(self, port: int, told: Told, tls: bool) -> None:
        self.port, self.told, self.tls = port, told, tls
        self.done = trio.Event()
        self.clients: list[Client] = []

    async def connect(self, alpn: str = "http/1.1") -> Client:
        """A new connection, over TLS where the server has it."""
        stream: Any = await trio.open_tcp_stream("127.0.0.1", self.port)
        if self.tls:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.set_alpn_protocols([alpn])
            stream = trio.SSLStream(stream, context)
            await stream.do_handshake()
            assert stream.selected_alpn_protocol() == alpn
        self.clients.append(Client(stream))
        return self.clients[-1]

    async def stop(self) -> float:
        """End the server; the seconds it took."""
        before = trio.current_time()
        self.told.shutdown.set()
        await self.done.wait()
        return trio.current_time() - before


@asynccontextmanager
async def serving(
    make: Callable[[Told], Any] = bare_app,
    *,
    limits: ServerLimits | Callable[[], ServerLimits] = ServerLimits(),  # noqa: B008 - it is frozen
    certified: Path | None = None,
    tls: Callable[[], ssl.SSLContext] | None = None,
    fast_path: Callable[[Told], FastPath] | None = None,
) -> AsyncIterator[Served]:
    """`make`'s app on a free port of loopback, over TLS if a folder for its certificate is given."""
    told = Told()
    if certified is not None:
        context = server_context(certificate(certified))
        tls = lambda: context  # noqa: E731
    asked = limits if callable(limits) else lambda: limits

    async def run(served: Served, task_status: Any) -> None:
        try:
            await serve(
                make(told),
                await open_sockets("127.0.0.1", 0),
                shutdown=told.shutdown,
                limits=asked,
                tls=tls,
                fast_path=fast_path(told) if fast_path else None,
                task_status=task_status,
            )
        finally:
            served.done.set()

    async with trio.open_nursery() as nursery:
        served = Served(0, told, tls is not None)
        bound = await nursery.start(partial(run, served))
        served.port = bound[0][1]
        try:
            yield served
        finally:
            told.shutdown.set()
            for client in served.clients:
                await trio.aclose_forcefully(client.stream)
