"""Remote calls: one engine of a fleet has another one do something, and waits for its reply or for its death."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from typing import TypeVar

import msgspec
import structlog
import trio

from hatchway.engine.base.errors import (
    HostUnavailable,
    InstanceNotFound,
    PairingCodeRefused,
    PairingExpired,
    Refusal,
    RuntimeUnavailable,
    StoreUnavailable,
)
from hatchway.engine.fleet.fleet import Fleet
from hatchway.engine.fleet.lease import inbox, lease_of
from hatchway.engine.fleet.messages import SEND_WITHIN, Message
from hatchway.engine.store.redis import PREFIX
from hatchway.engine.store.scripts import CALL, REPLY, TAKE

log = structlog.get_logger(__name__)

RETRY_AFTER = 30
"""Seconds after which to try again what another engine could not do."""

AGAIN = 0.1
"""Seconds after which a store that is away is asked again."""

_REFUSALS: dict[str, type[Refusal]] = {
    refusal.code: refusal for refusal in (InstanceNotFound, RuntimeUnavailable, StoreUnavailable)
}
"""Refusals that a caller gets as they were raised; any other one is the called engine's fault."""

_encode = msgspec.msgpack.encode

Deliver = Callable[[str], Awaitable[str]]
"""Takes the ticket of a call, sends the call to an engine of its choice, and returns that one's run."""


T = TypeVar("T")


async def insist(ask: Callable[[], Awaitable[T]]) -> T:
    """What `ask` returns, which is called again while the store is away. Raises StoreUnavailable after `SEND_WITHIN`
    seconds: as long as the called engine tries to send a reply, the caller tries to take it."""
    until = trio.current_time() + SEND_WITHIN
    while True:
        try:
            return await ask()
        except StoreUnavailable:
            if trio.current_time() >= until:
                raise
            await trio.sleep(AGAIN)


class NoReply(Exception):
    """The called engine is dead, or did not reply in time."""


class Overdue(NoReply):
    """The called engine lives, and no reply has come in time."""


class CallReply(msgspec.Struct, array_like=True):
    """What a method returned, or the refusal that it raised."""

    body: bytes = b""
    refused: str = ""
    detail: str = ""
    cause: str = ""
    retry_after: int | None = None


class RemoteCall:
    """A call that this engine makes. `run_id` names the called engine's run, and is empty until the call is sent."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self.ticket = fleet, secrets.token_hex(8)
        self.run_id = ""
        self.replied = False
        self._progress: bytes | None = None
        self._heard, self._over = trio.Event(), trio.Event()
        self._ended: Exception | None = None

    async def send(self, deliver: Deliver) -> None:
        """Send the call by `deliver`. Raises what that raises."""
        self.run_id = await deliver(self.ticket)

    async def progress(self, within: float) -> bytes:
        """What the method reports before it returns; raises as `reply` does where nothing came within the seconds."""
        with trio.move_on_after(within):
            await self._heard.wait()
        return await self.reply(0) if self._progress is None else self._progress

    async def reply(self, within: float = inf) -> bytes:
        """What the method returns. Raises its refusal, NoReply (Overdue after the seconds), StoreUnavailable, and what
        the call was ended with."""
        with trio.move_on_after(within):
            await self._over.wait()
        if not self._over.is_set():
            raise Overdue
        if self._ended is not None:
            raise self._ended
        take = partial(self._fleet.link.script, TAKE, [_reply_key(self.ticket)], [])
        held = await insist(take) if self.replied else None
        if held is None:
            raise NoReply
        reply = msgspec.msgpack.decode(held, type=CallReply)
        if reply.refused:
            raise _refusal(reply)
        return reply.body

    def cancel(self) -> None:
        """Tell the method that its caller no longer needs it. The reply still comes: it says what was done."""
        self._fleet.messages.post(self.run_id, kind="cancel", ticket=self.ticket)

    def end(self, why: Exception) -> None:
        """Wait no longer: `reply` and `progress` raise `why`."""
        if not self.replied:
            self._ended = why
            self._heard.set()
            self._over.set()

    def take(self, message: Message) -> None:
        """What the called engine sent: its progress, or that its reply can be taken."""
        if message["kind"] == b"progress":
            self._progress = message["body"]
        else:
            self.replied = True
            self._over.set()
        self._heard.set()


class Caller:
    """The other side of a call that this engine was sent."""

    def __init__(self, fleet: Fleet, run_id: str, ticket: str) -> None:
        self._fleet, self.run_id, self.ticket = fleet, run_id, ticket
        self.reported = False
        """Whether anything was reported: the reply must not overtake it."""
        self.presence = trio.CancelScope()
        """Cancelled once the caller cancels or is dead. A method may enter it to wait for what only its caller needs;
        one that doesn't enter it goes on to its end."""

    def report(self, progress: bytes) -> None:
        """Tell the caller something small before the method returns."""
        self.reported = True
        self._fleet.messages.post(self.run_id, kind="progress", ticket=self.ticket, body=progress)


Method = Callable[[bytes, Caller], Awaitable[bytes]]
"""Takes the body of a call and its caller, returns the reply's body. It must bear to be called twice for one call."""


class RemoteCalls:
    """Both sides of the remote calls of one engine."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.methods: dict[str, Method] = {}
        self._made: dict[str, RemoteCall] = {}
        self._served: dict[str, Caller] = {}
        fleet.messages.subscribe("call", self._take_call)
        fleet.messages.subscribe("cancel", self._take_cancel)
        fleet.messages.subscribe("progress", self._take_response)
        fleet.messages.subscribe("reply", self._take_response)

    # The caller's side

    async def call(self, run: str, method: str, body: bytes, within: float) -> bytes:
        """What `method` of that engine returns within so many seconds. Raises as `RemoteCall.reply` does."""
        async with self.open(partial(self._deliver, run, method, body)) as call:
            return await call.reply(within)

    async def _deliver(self, run: str, method: str, body: bytes, ticket: str) -> str:
        fields = ("kind", "call", "ticket", ticket, "caller", self._fleet.lease.run_id, "method", method, "body", body)
        if not await self._fleet.link.script(CALL, [inbox(run), lease_of(run)], fields):
            raise NoReply
        return run

    @asynccontextmanager
    async def open(self, deliver: Deliver) -> AsyncIterator[RemoteCall]:
        """A call that is sent by `deliver`, and cancelled where it is left without a reply. Raises what that raises."""
        call = RemoteCall(self._fleet)
        self._made[call.ticket] = call
        try:
            await call.send(deliver)
            with self._fleet.lease.watch(call.run_id, partial(call.end, NoReply())):
                yield call
        finally:
            del self._made[call.ticket]
            if call.run_id and not call.replied:
                call.cancel()

    async def _take_response(self, message: Message) -> None:
        call = self._made.get(message["ticket"].decode())
        if call is not None:
            call.take(message)

    # The called engine's side

    def serve(self, name: str, method: Method) -> None:
        """Let the other engines call the method `name`."""
        self.methods[name] = method

    async def _take_call(self, message: Message) -> None:
        caller = Caller(self._fleet, message["caller"].decode(), message["ticket"].decode())
        if caller.ticket not in self._served:  # else the same call has come twice
            self._served[caller.ticket] = caller
            self._fleet.tasks.start_soon(self._serve, caller, message["method"].decode(), message["body"])

    async def _take_cancel(self, message: Message) -> None:
        caller = self._served.get(message["ticket"].decode())
        if caller is not None:
            caller.presence.cancel()

    async def _serve(self, caller: Caller, method: str, body: bytes) -> None:
        try:
            with self._fleet.lease.watch(caller.run_id, caller.presence.cancel):
                reply = CallReply(await self.methods[method](body, caller))
        except Refusal as refused:
            reply = CallReply(b"", refused.code, refused.detail, refused.cause, refused.retry_after)
        except Exception:
            log.exception("remote_call_failed", method=method)
            words = "its engine could not do it; that one's log has why"
            reply = CallReply(b"", HostUnavailable.code, words, retry_after=RETRY_AFTER)
        finally:
            del self._served[caller.ticket]
        await self._reply(caller, reply)

    async def _reply(self, caller: Caller, reply: CallReply) -> None:
        """Store the reply, then send the message that it is there. It may be large, so other messages don't wait for
        it; where progress was reported, that goes first."""
        keys, args = (inbox(caller.run_id), _reply_key(caller.ticket)), (caller.ticket, _encode(reply))
        send = partial(self._fleet.link.script, REPLY, keys, args)
        if caller.reported:
            self._fleet.messages.write_later(send)
        else:
            await self._fleet.messages.write_now(send)


def _refusal(reply: CallReply) -> Refusal:
    if reply.refused == PairingCodeRefused.code:
        return PairingCodeRefused(reply.cause)
    if reply.refused == PairingExpired.code:
        return PairingExpired()
    return _REFUSALS.get(reply.refused, HostUnavailable)(reply.detail, retry_after=reply.retry_after)


def _reply_key(ticket: str) -> str:
    return f"{PREFIX}reply:{ticket}"
