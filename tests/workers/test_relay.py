"""A request that a worker process hands to the engine, and its answer on the way back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio

from hatchway.api.http.asgi import REQUEST, Message, Receive, Scope, Send
from hatchway.api.http.request import LEFT, Request
from hatchway.api.server.apps import Inbox
from hatchway.api.workers.channel import frame
from hatchway.api.workers.relay import NAME, Relay
from hatchway.api.workers.relay_server import RelayServer
from hatchway.engine.keys.authorized_keys import AuthorizedKeys


async def answer_whole(receive: Receive, send: Send) -> None:
    """A body told in three parts, the last empty."""
    await send({"type": "http.response.start", "status": 201, "headers": [(b"x", b"\xff")]})
    for part, more in ((b"one", True), (b"two", True), (b"", False)):
        await send({"type": "http.response.body", "body": part, "more_body": more})


async def fail_at_once(receive: Receive, send: Send) -> None:
    """An app in error before its answer."""
    raise RuntimeError("a fault of the app's")


async def fail_half_way(receive: Receive, send: Send) -> None:
    """An app in error within its answer."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})
    raise RuntimeError("a fault of the app's")


async def hold(receive: Receive, send: Send) -> None:
    """An answer that is held until its client leaves."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"held", "more_body": True})
    while (await receive())["type"] != "http.disconnect":
        pass


@asynccontextmanager
async def relayed(home: Path, answer: Callable[[Receive, Send], Awaitable[None]]) -> AsyncIterator[list[Message]]:
    """A request of 200,000 bytes through relay and back; what the worker's server is told, until its client leaves."""
    home.mkdir(mode=0o700)
    body = bytes(200_000)
    seen: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((scope["client"], scope["scheme"], (await receive())["body"] == body))
        await answer(receive, send)
        seen.append("ended")

    async with trio.open_nursery() as nursery:
        await nursery.start(RelayServer(app, home, AuthorizedKeys(home / "authorized_keys")).serve)
        told: list[Message] = []
        inbox = Inbox()

        async def send(message: Message) -> None:
            told.append(message)

        request = Request("x", "x", b"", (), body, ("::1", 1), None)
        scope: Scope = {"http_version": "1.1", "scheme": "https", "raw_path": b"/", REQUEST: request}
        done = trio.Event()

        async def talk() -> None:
            await Relay(home)({**scope, "extensions": {LEFT: inbox.when_left}}, inbox.receive, send)
            done.set()

        nursery.start_soon(talk)
        with trio.fail_after(20):
            while not (done.is_set() or (told and told[-1].get("body") == b"held")):
                await trio.sleep(0.01)
            yield told
            await inbox.put({"type": "http.disconnect"})
            await done.wait()
            while answer is hold and seen[-1] != "ended":
                await trio.sleep(0.01)
        assert seen[0] == (("::1", 1), "https", True)
        nursery.cancel_scope.cancel()


async def test_an_answer_comes_back_part_by_part(home: Path) -> None:
    """Status, headers and each part of the body are what the app said, in as many messages."""
    async with relayed(home, answer_whole) as told:
        assert (told[0]["status"], told[0]["headers"]) == (201, [(b"x", b"\xff")])
        parts = [(message["body"], message["more_body"]) for message in told[1:]]
        assert parts == [(b"one", True), (b"two", True), (b"", False)]


@pytest.mark.parametrize(("app", "messages"), [(fail_at_once, 0), (fail_half_way, 2)])
async def test_an_app_that_fails_leaves_its_answer_unfinished(home: Path, app: Any, messages: int) -> None:
    """The worker's server is left to end it, at once, as it would for an app of its own; the fault is logged."""
    with structlog.testing.capture_logs() as lines:
        async with relayed(home, app) as told:
            assert len(told) == messages
            assert not told or told[-1]["more_body"]
    assert [line["event"] for line in lines] == ["relayed_request_failed"]


async def test_a_client_that_leaves_is_known_to_the_app(home: Path) -> None:
    """The app is told, and ends."""
    async with relayed(home, hold) as told:
        assert told[-1]["body"] == b"held"


async def no_app(scope: Scope, receive: Receive, send: Send) -> None:
    """An app that must not be asked."""
    raise AssertionError(scope)


async def test_what_is_no_request_ends_its_connection_alone(home: Path) -> None:
    """A frame that can't be decoded, or is something else, is logged; the engine goes on and answers the next."""
    home.mkdir(mode=0o700)
    with structlog.testing.capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            await nursery.start(RelayServer(no_app, home, AuthorizedKeys(home / "authorized_keys")).serve)
            for sent in (b"\0\0\0\3abc", frame("no request")):
                async with await trio.open_unix_socket(home / NAME) as stream:
                    await stream.send_all(sent)
                    with trio.fail_after(20):
                        assert await stream.receive_some() == b""
            nursery.cancel_scope.cancel()
    assert [line["event"] for line in lines] == ["relayed_request_not_understood"] * 2


async def test_without_an_engine_the_answer_is_503(home: Path) -> None:
    """Nobody listens: a problem that says when to come again."""
    home.mkdir(mode=0o700)
    told: list[Message] = []

    async def send(message: Message) -> None:
        told.append(message)

    await Relay(home)({"type": "http"}, trio.sleep_forever, send)
    assert told[0]["status"] == 503
    assert b"retry-after" in dict(told[0]["headers"])
