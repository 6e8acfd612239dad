"""For the tests of the server: apps, a server on loopback in the same trio run, and clients that speak raw bytes."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import h11
import quart
import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from quart_trio import QuartTrio

from api.server import Lane, LaneRequest, ServerLimits, open_sockets, serve
from api.transport.lane import LaneAnswer

GET = b"GET %b HTTP/1.1\r\nHost: x\r\n%b\r\n"


class Told:
    """What the apps of a test saw: one word a happening, and what they watch."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.shutdown = trio.Event()
        self.taken = 0
        """Requests that the lane took."""


def bare_app(told: Told) -> Any:
    """An ASGI app of one function that answers by path."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        doors = {"/hello": _hello, "/echo": _echo, "/stream": _stream, "/hold": _hold, "/big": _big, "/fail": _fail}
        doors |= {"/deaf": _deaf, "/peer": _peer, "/late": _late, "/break": _break}
        await doors.get(scope["path"], _missing)(told, scope, receive, send)

    return app


async def _start(send: Any, status: int = 200, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})


async def _answer(send: Any, body: bytes, status: int = 200) -> None:
    await _start(send, status, (b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.body", "body": body})


async def _hello(told: Told, scope: Any, receive: Any, send: Any) -> None:
    told.words.append("hello")
    await _answer(send, b"hello")


async def _missing(told: Told, scope: Any, receive: Any, send: Any) -> None:
    await _answer(send, b"", 404)


async def _peer(told: Told, scope: Any, receive: Any, send: Any) -> None:
    await _answer(send, repr(scope["client"]).encode())


async def _echo(told: Told, scope: Any, receive: Any, send: Any) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            told.words.append("left")
            return
        body, more = body + message["body"], message["more_body"]
    await _answer(send, body)


async def _stream(told: Told, scope: Any, receive: Any, send: Any) -> None:
    await _start(send)
    for word in (b"one ", b"two"):
        await send({"type": "http.response.body", "body": word, "more_body": True})
        await trio.sleep(1)
    await send({"type": "http.response.body", "body": b""})


async def _hold(told: Told, scope: Any, receive: Any, send: Any) -> None:
    """Held until the client leaves or the engine ends; then a last item, if there is anybody to have it."""
    await _start(send)
    await send({"type": "http.response.body", "body": b"held ", "more_body": True})
    told.words.append("held")

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        told.words.append("left")
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        await told.shutdown.wait()
        await send({"type": "http.response.body", "body": b"last"})
        nursery.cancel_scope.cancel()


async def _deaf(told: Told, scope: Any, receive: Any, send: Any) -> None:
    """An app that watches nothing and never ends by itself."""
    await _start(send)
    await send({"type": "http.response.body", "body": b"held ", "more_body": True})
    try:
        await trio.sleep_forever()
    finally:
        told.words.append("cancelled")


async def _big(told: Told, scope: Any, receive: Any, send: Any) -> None:
    await _answer(send, bytes(16 * 1024 * 1024))
    told.words.append("big")


async def _late(told: Told, scope: Any, receive: Any, send: Any) -> None:
    await trio.sleep(5)
    try:
        await _answer(send, b"late")
    except OSError:
        told.words.append("nobody")
        raise


async def _fail(told: Told, scope: Any, receive: Any, send: Any) -> None:
    raise ValueError("an app's mistake")


async def _break(told: Told, scope: Any, receive: Any, send: Any) -> None:
    await _start(send)
    await send({"type": "http.response.body", "body": b"half", "more_body": True})
    raise ValueError("an app's mistake")


def lane_of(told: Told) -> Lane:
    """The doors of `bare_app` that a lane can answer: one at once, one after a while."""

    def lane(request: LaneRequest) -> LaneAnswer | Awaitable[LaneAnswer] | None:
        if request.target == b"/hello":
            told.words.append("hello")
            told.taken += 1
            return LaneAnswer(200, (), b"hello")
        return later(request) if request.target in (b"/peer", b"/echo", b"/wait") else None

    async def later(request: LaneRequest) -> LaneAnswer:
        told.taken += 1
        await trio.sleep(70 if request.target == b"/wait" else 0)
        return LaneAnswer(200, (), request.body or repr(request.peer).encode())

    return lane


def quart_app(told: Told) -> Any:
    """The same doors as Quart-Trio routes."""
    app = QuartTrio("wire")

    @app.get("/hello")
    async def hello() -> str:
        told.words.append("hello")
        return "hello"

    @app.post("/echo")
    async def echo() -> bytes:
        data: bytes = await quart.request.get_data()  # type: ignore[assignment]
        return data

    @app.get("/peer")
    async def peer() -> str:
        return repr(quart.request.scope["client"])

    @app.get("/stream")
    async def stream() -> Any:
        async def items() -> AsyncIterator[bytes]:
            for word in (b"one ", b"two"):
                yield word
                await trio.sleep(1)

        return items()

    @app.get("/hold")
    async def hold() -> Any:
        async def items() -> AsyncIterator[bytes]:
            try:
                yield b"held "
                told.words.append("held")
                await told.shutdown.wait()
                yield b"last"
            except trio.Cancelled:
                told.words.append("left")
                raise

        return quart.Response(items(), 200)

    @app.get("/deaf")
    async def deaf() -> Any:
        async def items() -> AsyncIterator[bytes]:
            yield b"held "
            try:
                await trio.sleep_forever()
            finally:
                told.words.append("cancelled")

        response = quart.Response(items(), 200)
        response.timeout = None
        return response

    @app.get("/big")
    async def big() -> bytes:
        return bytes(16 * 1024 * 1024)

    return app


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
    lane: Callable[[Told], Lane] | None = None,
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
                lane=lane(told) if lane else None,
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
