"""From ASGI to the gateway and back: the head is admitted before the body is read, and a response goes out as it is.

Endpoints that answer at once, and those that hold a connection, are answered here; all others by Quart, to which the
request goes along in the scope.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

import trio

from hatchway.api.http.endpoint import Route
from hatchway.api.http.gateway import Gateway, most_bytes
from hatchway.api.http.problems import BodyTooLarge, RequestTimeout, problem_response
from hatchway.api.http.request import LEFT, Request, Response
from hatchway.engine.base.errors import Refusal

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

REQUEST, STREAM = "hatchway.request", "hatchway.stream"
"""Keys of the ASGI scope: the whole request, for the app behind this one; and the stream that that app begins to
send."""


class ClientLeft(Exception):
    """The client went away before its request was whole."""


class AsgiApp:
    """An ASGI app over a gateway. `rest` is the app for all other endpoints. With `admitted`, each request was admitted
    before it comes here."""

    def __init__(self, gateway: Gateway, rest: App, *, admitted: bool = False) -> None:
        self.gateway = gateway
        self._rest, self._admitted = rest, admitted

    def for_admitted(self) -> AsgiApp:
        """The same app for requests that a gateway has admitted before."""
        return AsgiApp(self.gateway, self._rest, admitted=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(ClientLeft):  # then there is nobody to respond to
            await self._http(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        head, has_body = _head(scope), _has_body(scope)
        route = self.gateway.find(head.method, head.path)
        if not self._admitted:
            length = int(head.header(b"content-length") or b"0")
            refusal = await self.gateway.admit(head, route, length, has_body=has_body)
            if refusal is not None:
                await send_response(send, refusal)  # the server closes where the body is still on its way
                return
        try:
            body = await self._read_body(receive, route, has_body=has_body)
        except Refusal as refused:
            await send_response(send, problem_response(refused))
            return
        request = head._replace(body=body) if body else head
        if route is None or head.method != route.endpoint.method or not (route.endpoint.plain or route.endpoint.held):
            await self._pass_on(scope, receive, send, request)
        elif not route.endpoint.held:
            await self._respond(route, request, send)
        elif when_left := scope.get("extensions", {}).get(LEFT):
            with trio.CancelScope() as waiting:
                when_left(waiting.cancel)
                await self._respond(route, request, send)
        else:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_watch, receive, nursery.cancel_scope)
                await self._respond(route, request, send)
                nursery.cancel_scope.cancel()

    async def _respond(self, route: Route, request: Request, send: Send) -> None:
        response = self.gateway.respond(route, request)
        await send_response(send, response if isinstance(response, Response) else await response)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send, request: Request) -> None:
        scope[REQUEST] = request
        try:
            await self._rest(scope, _after_body(receive), send)
        finally:
            await _close(scope.get(STREAM))

    async def _read_body(self, receive: Receive, route: Route | None, *, has_body: bool) -> bytes:
        settings = self.gateway.settings
        most, seconds = most_bytes(route, settings), settings.limits.body_seconds
        if not has_body:
            return await _drain(receive, most, keep=True)
        keep = route is not None and route.endpoint.body is not None
        with trio.move_on_after(seconds):
            return await _drain(receive, most, keep=keep)
        raise RequestTimeout(f"the body did not come within {seconds} s")


def _head(scope: Scope) -> Request:
    headers, client = tuple(scope["headers"]), scope.get("client")
    return Request(
        scope["method"], scope["path"], scope["query_string"], headers, b"", client or None, scope.get("server")
    )


async def _close(stream: Any) -> None:
    """Close a stream. Where the client left before Quart began to send it, Quart does not."""
    if hasattr(stream, "aclose"):
        await stream.aclose()


def _has_body(scope: Scope) -> bool:
    """Whether there may be a body to wait for: on HTTP/1 a length or an encoding says so (RFC 9112, 6.3)."""
    if not scope["http_version"].startswith("1"):
        return True
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])


async def _drain(receive: Receive, most: int, *, keep: bool) -> bytes:
    """Read the body to its end, at most `most` bytes. Without `keep` it is thrown away, since no endpoint wants it.

    Raises BodyTooLarge, ClientLeft.
    """
    body, size = bytearray(), 0  # no list of parts: a client may send thousands of one byte
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise BodyTooLarge(f"the body is larger than {most} bytes")
        if keep:
            body += part
        if not message.get("more_body"):
            return bytes(body)


def _after_body(receive: Receive) -> Receive:
    """For Quart: an empty body (the real one is in the scope), then what the client does next."""
    first = True

    async def receive_next() -> Message:
        nonlocal first
        if first:
            first = False
            return {"type": "http.request", "body": b"", "more_body": False}
        return await receive()

    return receive_next


async def _watch(receive: Receive, scope: trio.CancelScope) -> None:
    """Cancel `scope` when the client leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def send_response(send: Send, response: Response) -> None:
    """Send a whole response; of a stream each item by itself."""
    headers = list(response.headers)
    if response.stream is None:
        headers.append((b"content-length", b"%d" % len(response.body)))
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": response.body})
        return
    try:
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        async for piece in response.stream:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        await _close(response.stream)
