"""The apps that the server's tests serve, what they saw, and a fast path before one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import Any

import quart
import trio
from quart_trio import QuartTrio

from hatchway.api.http.request import Request, Response
from hatchway.api.server.server import FastPath


class Told:
    """What the apps of a test saw: one word a happening, and what they watch."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.shutdown = trio.Event()
        self.taken = 0
        """Requests that the fast path took."""


def bare_app(told: Told) -> Any:
    """An ASGI app of one function that answers by path."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        handlers = {"/hello": _hello, "/echo": _echo, "/stream": _stream, "/hold": _hold, "/big": _big, "/fail": _fail}
        handlers |= {"/deaf": _deaf, "/peer": _peer, "/late": _late, "/break": _break}
        await handlers.get(scope["path"], _missing)(told, scope, receive, send)

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
    await _answer(send, bytes(8 * 1024 * 1024))
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


def fast_path_of(told: Told) -> FastPath:
    """The paths of `bare_app` that a fast path can answer: one at once, one after a while."""

    def fast_path(request: Request) -> Response | Awaitable[Response] | None:
        if request.path == "/hello":
            told.words.append("hello")
            told.taken += 1
            return Response(200, b"hello", ())
        return later(request) if request.path in ("/peer", "/echo", "/wait") else None

    async def later(request: Request) -> Response:
        told.taken += 1
        await trio.sleep(70 if request.path == "/wait" else 0)
        return Response(200, request.body or repr(request.client).encode(), ())

    return fast_path


def quart_app(told: Told) -> Any:
    """The same paths as Quart-Trio routes."""
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
        return bytes(8 * 1024 * 1024)

    return app
