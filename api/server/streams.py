"""One request and its response over ASGI 3, the same on HTTP/1.1 and HTTP/2.

The end of a response is told together with the last of its body, so that HTTP/1.1 can make one write of both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Any, Protocol
from urllib.parse import unquote

import trio

from hatchway.api.http.request import LEFT
from hatchway.api.server.apps import App, ClientGone, Inbox, run_app
from hatchway.api.server.context import Context
from hatchway.api.server.deadlines import Expiring, WaitKind
from hatchway.api.server.places import WAITING_COST

Headers = list[tuple[bytes, bytes]]
"""Names in lower case, values without the space around them."""

SocketAddress = tuple[str, int] | None
"""Address and port of one end of a connection. None at a Unix socket."""


class Owner(Expiring, Protocol):
    """The connection, as the protocol and the streams on it see it."""

    app: App
    context: Context
    client: SocketAddress
    server: SocketAddress
    secure: bool
    held_bytes: int

    def hold(self, change: int) -> None:
        """`change` more bytes are kept for the client, or fewer."""

    async def turn(self) -> None:
        """Wait until a request of this client may begin (see `starts`)."""

    def spawn(self, call: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run a task that is cancelled when the connection ends."""

    async def write(self, data: bytes) -> None:
        """Send bytes, in the order of the calls."""

    def update(self, *, busy: bool) -> None:
        """Whether a request is being answered."""

    def end(self) -> None:
        """Read no more and close."""


class ResponseWriter(Protocol):
    """The HTTP/1.1 or HTTP/2 connection that a stream is of."""

    async def room(self, stream: Stream) -> None:
        """Wait while the client has too many responses to take before this request may begin. Raises ClientGone."""

    def made(self, stream: Stream) -> None:
        """The response begins, or nobody waits for it any more."""

    async def send_head(self, stream: Stream, status: int, headers: Headers) -> None:
        """Begin the response."""

    async def send_body(self, stream: Stream, data: bytes, *, last: bool) -> None:
        """Send a part of the body; wait while the client takes nothing."""

    async def send_bare(self, stream: Stream, status: int) -> None:
        """Send a whole response that is the server's own: a status, and no body."""

    async def end_stream(self, stream: Stream) -> None:
        """The response has ended, complete or not."""


class Phase(Enum):
    """How far a response has come."""

    WAITED_FOR = auto()
    BEGUN = auto()
    OVER = auto()


class Stream:
    """One request and its response. `body_done` tells whether the whole request has come."""

    __slots__ = (
        "_bodiless",
        "_chunks",
        "_held",
        "_inbox",
        "_method",
        "_phase",
        "_writer",
        "body_done",
        "closed",
        "number",
        "owner",
        "taken",
    )

    def __init__(self, owner: Owner, writer: ResponseWriter, number: int, method: str) -> None:
        self.owner, self.number = owner, number
        self.closed = False
        """Whether the client has left, or has the whole response."""
        self.body_done = False
        self.taken = 0
        """Bytes of the response that the client took since its deadline began (HTTP/2 alone)."""
        self._writer, self._method = writer, method
        self._phase = Phase.WAITED_FOR
        self._bodiless = method == "HEAD"
        self._inbox = Inbox()
        self._chunks = self._held = 0

    def begin(self, version: str, target: bytes, headers: Headers) -> None:
        """Run the app on the request; its body follows."""
        path, _, query = target.partition(b"?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": version,
            "method": self._method,
            "scheme": "https" if self.owner.secure else "http",
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": headers,
            "client": self.owner.client,
            "server": self.owner.server,
            "extensions": {LEFT: self._inbox.when_left},
        }
        self.owner.spawn(run_app, self._turn, self.owner.app, scope, self._inbox.receive, self.app_send)

    async def _turn(self) -> None:
        await self._writer.room(self)
        await self.owner.turn()  # last: requests of many connections that get room at once still begin one in a tick

    async def receive_body(self, data: bytes) -> None:
        """Hand a part of the body to the app; wait while the app reads nothing."""
        if not self.closed:
            self._hold(len(data))
            await self._inbox.put({"type": "http.request", "body": bytes(data), "more_body": True})

    async def receive_end(self) -> None:
        """The request is whole."""
        self.body_done = True
        self.owner.context.body.leave(self)
        if not self.closed:
            await self._inbox.put({"type": "http.request", "body": b"", "more_body": False})

    async def leave(self) -> None:
        """Tell the app that the client has left, or that the response is over."""
        self.owner.context.body.leave(self)
        self._hold(-self._held)
        if not self.closed:
            self.closed = True
            await self._inbox.put({"type": "http.disconnect"})

    def wait_for_body(self) -> None:
        """Have the deadline of the body run from now on, unless it runs already."""
        self._hold(WAITING_COST if self._held < WAITING_COST else 0)
        self.owner.context.body.remain(self)

    def _hold(self, change: int) -> None:
        self._held += change
        self.owner.hold(change)

    async def app_send(self, message: Any | None) -> None:
        """Take the app's next message (ASGI HTTP 2.4, "Send"), or None at its end.

        Raises ClientGone, and RuntimeError for a message that ASGI does not allow here.
        """
        if message is None:
            await self._finish()
        elif self.closed or self._phase is Phase.OVER:
            raise ClientGone("nobody waits for more of this response")
        elif (message["type"], self._phase) == ("http.response.start", Phase.WAITED_FOR):
            await self._start(int(message["status"]), list(message.get("headers", ())))
        elif (message["type"], self._phase) == ("http.response.body", Phase.BEGUN):
            await self._send_body(message.get("body", b""), last=not message.get("more_body", False))
        else:
            raise RuntimeError(f"an app that sends {message['type']} out of turn")

    async def _start(self, status: int, headers: Headers) -> None:
        self._bodiless = self._bodiless or status in (204, 304)
        await self._writer.send_head(self, status, headers)
        self._phase = Phase.BEGUN

    async def _send_body(self, body: bytes, *, last: bool) -> None:
        body = b"" if self._bodiless else bytes(body)
        if last:
            self._phase = Phase.OVER
            await self._writer.send_body(self, body, last=True)
            await self._writer.end_stream(self)
            return
        await self._writer.send_body(self, body, last=False)
        self._chunks += 1
        if self._chunks > 1:  # an app that never waits, with a client that reads all, must not hold up other tasks
            await trio.lowlevel.checkpoint()

    async def _finish(self) -> None:
        """The app has returned or raised: end its response, by a 500 where it has not begun one."""
        if self.closed:
            return
        if self._phase is Phase.WAITED_FOR:
            await self._fail(503 if self.owner.context.stopping else 500)
        await self._writer.end_stream(self)

    async def _fail(self, status: int) -> None:
        self._phase = Phase.OVER
        await self._writer.send_bare(self, status)

    def expire(self, kind: WaitKind) -> None:
        """The rest of the body did not come in time, or the client reads nothing of the response (HTTP/2 alone)."""
        self.owner.spawn(self._give_up, kind)

    async def _give_up(self, kind: WaitKind) -> None:
        if self.closed:
            return
        if kind is WaitKind.BODY and self._phase is Phase.WAITED_FOR:
            await self._fail(408)
        await self._writer.end_stream(self)
