"""The layer before both mounts: Host, Origin, bodies, headers; and the dispatcher that answers hot and held doors."""

from __future__ import annotations

import itertools
import re
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

import trio

from api.http.addresses import Addresses
from api.http.call import NOSNIFF, Answer, Call, Headers
from api.http.door import Door, refused, respond
from api.http.problems import BadRequest, BodyTooLarge, RequestTimeout, problem_answer
from api.http.proxies import forwarded_for, forwarded_scheme
from api.transport.apps import LEFT
from engine.engine import Engine
from engine.errors import Refusal
from engine.loopback import LOOPBACKS, loopbacks_here

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


Admit = Callable[[Door, Scope], Awaitable[Answer | None]]
"""Gives what refuses a request before its body is read, or None."""


class ClientLeft(Exception):
    """The client went away before its request was whole."""


class Front:
    """An ASGI app. `bound` is set once the listeners are open: the loopback names of those ports are ours. `rest` has
    every door, and answers those that are neither hot nor held."""

    rest: App

    def __init__(self, engine: Engine, doors: tuple[Door, ...]) -> None:
        self._engine = engine
        self.admit: Admit = self._admit
        """Asked before a body is read that comes to a door where a token is needed."""
        self._paths = Paths(doors)
        self._own = {
            (door.method, path): door for door in doors if door.hot or door.held for path in spellings(door.path)
        }
        self._large = {path for door in doors if door.large for path in spellings(door.path)}
        self._run, self._count = secrets.token_hex(3), itertools.count(1)
        self._addresses: tuple[object, Addresses] = (None, Addresses((), ()))
        self.bound: tuple[tuple[str, int], ...] = tuple((address, engine.settings.port) for address in LOOPBACKS)

    @property
    def addresses(self) -> Addresses:
        """What is ours now; the setting may have been reloaded."""
        now = (self.bound, self._engine.settings.addresses)
        if self._addresses[0] != now:
            self._addresses = now, Addresses(*now, loopbacks_here())
        return self._addresses[1]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "http":
            with suppress(ClientLeft):  # nobody is left to answer
                await self._http(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self.screen(scope["path"], tuple(scope["headers"]), _peer(scope), scope.get("server"))
            length = self._check_length(scope)
            door = self.door(scope["method"], scope["path"]) if _has_body(scope) else None
            if door is not None and door.access != "open" and (refusal := await self.admit(door, scope)) is not None:
                await send_answer(send, refusal)  # the server closes where the body is still on its way
                return
            body = await self._read_body(scope, receive, door, length)
        except Refusal as refused:
            await send_answer(send, problem_answer(refused))
            return
        door = self._own.get((scope["method"], scope["path"]))
        if door is None:
            scope["hatchway.body"], scope["hatchway.request_id"] = body, self.request_id()
            try:
                await self.rest(scope, _after_body(receive), _with_nosniff(send))
            finally:
                await _close(scope.get("hatchway.stream"))
            return
        call = self.call(scope, body, self.request_id(), {})
        if not door.held:
            await self._answer(door, call, send)
        elif when_left := scope.get("extensions", {}).get(LEFT):
            with trio.CancelScope() as waiting:
                when_left(waiting.cancel)
                await self._answer(door, call, send)
        else:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_watch, receive, nursery.cancel_scope)
                await self._answer(door, call, send)
                nursery.cancel_scope.cancel()

    async def _answer(self, door: Door, call: Call, send: Send) -> None:
        answer = self.respond(door, call)
        await send_answer(send, answer if isinstance(answer, Answer) else await answer)

    def respond(self, door: Door, call: Call) -> Answer | Awaitable[Answer]:
        """The door's answer, its time measured."""
        began = time.perf_counter()
        answer = respond(self._engine, door, call)
        if not isinstance(answer, Answer):
            return self._finish(door, answer, began)
        self._engine.metrics.answered(door.method, door.path, answer.status, time.perf_counter() - began)
        return answer

    async def _finish(self, door: Door, waiting: Awaitable[Answer], began: float) -> Answer:
        answer = await waiting
        self._engine.metrics.answered(door.method, door.path, answer.status, time.perf_counter() - began)
        return answer

    def screen(self, path: str, headers: Headers, peer: str, server: tuple[str, int] | None) -> None:
        """What every request must keep before it is routed. Raises BadRequest, MisdirectedRequest, ForeignOrigin."""
        if not path.startswith("/") or path.startswith("//"):
            raise BadRequest("the request target must be a path that begins with one /")
        host, origins = None, []
        for name, value in headers:
            if name == b"host":
                host = value if host is None else b""
            elif name == b"origin":
                origins.append(value)
        local, trusted = server[0] if server else None, self._engine.settings.trusted_proxies
        scheme = forwarded_scheme(headers, peer, trusted) if trusted else None
        self.addresses.check_host((host or b"").decode("latin-1"), scheme, local)
        for origin in origins:
            self.addresses.check_origin(origin.decode("latin-1"), local)

    def request_id(self) -> str:
        """A name for one request, in logs and records."""
        return f"{self._run}-{next(self._count)}"

    def call(self, scope: Scope, body: bytes, request_id: str, params: dict[str, str]) -> Call:
        """The request as doors see it."""
        headers, peer = tuple(scope["headers"]), _peer(scope)
        forwarded = forwarded_for(headers, peer, self._engine.settings.trusted_proxies)
        path, query = scope["path"], scope["query_string"]
        return Call(scope["method"], path, query, headers, body, peer, forwarded, request_id, params)

    def door(self, method: str, path: str) -> Door | None:
        """The door of a method and a path, if there is one."""
        return self._paths.find(method, path)

    async def _admit(self, door: Door, scope: Scope) -> Answer | None:
        return await self.refused(door, self.call(scope, b"", self.request_id(), {}))

    async def refused(self, door: Door, call: Call) -> Answer | None:
        """What refuses a call before its body is read, its time measured; None where the body may come."""
        began = time.perf_counter()
        answer = await refused(self._engine, door, call)
        if answer is not None:
            self._engine.metrics.answered(door.method, door.path, answer.status, time.perf_counter() - began)
        return answer

    def _check_length(self, scope: Scope) -> int:
        """How long the body may be. Raises BodyTooLarge where it says itself that it is longer."""
        limits = self._engine.settings.limits
        most = limits.instance_body_bytes if scope["path"] in self._large else limits.body_bytes
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if int(length) > most:
            raise BodyTooLarge(f"the body is larger than {most} bytes")
        return most

    async def _read_body(self, scope: Scope, receive: Receive, door: Door | None, most: int) -> bytes:
        if not _has_body(scope):
            return await _drain(receive, most, keep=True)
        keep = door is not None and door.body is not None
        seconds = self._engine.settings.limits.body_seconds
        with trio.move_on_after(seconds):
            return await _drain(receive, most, keep=keep)
        raise RequestTimeout(f"the body did not come within {seconds} s")


def _peer(scope: Scope) -> str:
    return str((scope.get("client") or ("",))[0])


async def _close(stream: Any) -> None:
    """A stream whose client left before Quart began it is closed by nobody else."""
    if hasattr(stream, "aclose"):
        await stream.aclose()


def _has_body(scope: Scope) -> bool:
    """Whether there may be a body to wait for: on HTTP/1 a length or an encoding says so (RFC 9112, 6.3)."""
    if not scope["http_version"].startswith("1"):
        return True
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])


async def _drain(receive: Receive, most: int, *, keep: bool) -> bytes:
    """The body to its end; with `keep` unset nothing of it is kept, since no door asks for it."""
    body, size = bytearray(), 0  # and no list of parts: a client may send thousands of one byte
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


def _with_nosniff(send: Send) -> Send:
    async def send_on(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message["headers"])
            message["headers"] = headers if NOSNIFF in headers else [*headers, NOSNIFF]
        await send(message)

    return send_on


async def _live(receive: Receive, send: Send) -> None:
    """The lifespan of an app that has nothing to begin or to end."""
    for _ in ("startup", "shutdown"):
        message = await receive()
        await send({"type": f"{message['type']}.complete"})


async def _watch(receive: Receive, scope: trio.CancelScope) -> None:
    """The client's leaving is the end of what it waits for."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def send_answer(send: Send, answer: Answer) -> None:
    """All of it; a stream piece by piece."""
    headers = list(answer.headers) if NOSNIFF in answer.headers else [*answer.headers, NOSNIFF]
    if isinstance(answer.body, bytes):
        headers.append((b"content-length", b"%d" % len(answer.body)))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})
        return
    try:
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        async for piece in answer.body:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        await _close(answer.body)


class Paths:
    """Which door a method and a path belong to, as Quart will find it."""

    def __init__(self, doors: tuple[Door, ...]) -> None:
        self._plain = {(door.method, path): door for door in doors for path in spellings(door.path)}
        self._patterns = tuple(
            (door, re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(door.path.rstrip("/"))) + "/?"))
            for door in doors
            if "{" in door.path
        )

    def find(self, method: str, path: str) -> Door | None:
        """The door, or None."""
        door = self._plain.get((method, path))
        if door is not None:
            return door
        return next((door for door, one in self._patterns if door.method == method and one.fullmatch(path)), None)


def spellings(path: str) -> tuple[str, ...]:
    """A path with and without its trailing slash: both answer alike."""
    return tuple(dict.fromkeys((path, path.rstrip("/") or "/")))
