"""The engine as one worker knows it: settings and keys as last sent, and calls over the channel."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

import structlog
import trio

from hatchway.api.http.request import Request, Response
from hatchway.api.workers.channel import Channel
from hatchway.api.workers.messages import (
    CheckHead,
    Configure,
    HandleRequest,
    Responded,
    SessionStarted,
    StartSession,
    Stop,
    ToWorker,
)
from hatchway.engine.access.challenges import ANY, ChallengeFacts, Challenges
from hatchway.engine.access.devices import Device
from hatchway.engine.base.clock import SystemClock
from hatchway.engine.base.errors import FileRefused
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.keys.keys import PublicKey, parse_openssh
from hatchway.engine.runtime.records import Origin
from hatchway.engine.sessions.versions import VersionCounters
from hatchway.engine.settings.settings import Settings
from hatchway.engine.settings.sources import decode_settings

log = structlog.get_logger(__name__)

ENGINE_GONE = 70
"""Exit code of a worker whose engine is gone (EX_SOFTWARE, sysexits.h)."""

Order = Configure | Stop
"""A message that is for the worker as a whole, and no reply to a call."""

Reply = Responded | SessionStarted


class EngineClient:
    """The engine as one worker knows it. `challenges` is None where the worker leaves them to the engine.

    `counters` are the version counters in shared memory. `post` sends a message over the channel, `hear` takes each
    message that comes: a reply wakes the call that waits for it, an order goes to `obey`. `first` has the settings and
    keys to begin with.
    """

    settings: Settings
    own_key: PublicKey
    challenges: Challenges | None

    def __init__(
        self,
        counters: VersionCounters,
        keys: AuthorizedKeys,
        post: Callable[[Any], None],
        obey: Callable[[Order], None],
        first: Configure,
    ) -> None:
        self.counters, self.keys = counters, keys
        self.clock = SystemClock()
        self._post, self._obey = post, obey
        self._numbers = itertools.count(1)
        self._calls: dict[int, _Call] = {}
        self.configure(first)

    def configure(self, told: Configure) -> None:
        """Take up settings and keys."""
        self.settings, self.own_key = decode_settings(told.settings), parse_openssh(told.own_key)
        self.challenges = Challenges(self.clock, told.mac_key) if told.mac_key else None

    async def settle_keys(self) -> None:
        """Wait until authorized_keys is settled, or refused."""
        with suppress(FileRefused):
            await self.keys.settle()

    def issue_challenge(self, host: str, identity: str | None) -> tuple[str, str]:
        """As `KeySignIn.challenge`: the identity and the nonce."""
        assert self.challenges is not None
        return identity or self.own_key.identity, self.challenges.issue(host, identity or ANY)

    async def ask(self, request: Request) -> Responded:
        """The engine's response to a screened request at a plain endpoint."""
        reply = await self._call(lambda number: HandleRequest(number, request))
        assert isinstance(reply, Responded)
        return reply

    async def check_head(self, request: Request) -> Response | None:
        """The engine's refusal of a request whose body has not been read; None where the body may come."""
        reply = await self._call(lambda number: CheckHead(number, request))
        assert isinstance(reply, Responded)
        return reply.response

    async def start_session(
        self, challenge: ChallengeFacts, identity: str, lifetime: int, device: Device, origin: Origin
    ) -> bytes | None:
        """Have the engine start a session for the key that signed the challenge. Returns the response's body; None
        where the engine refuses."""
        reply = await self._call(lambda number: StartSession(number, challenge, identity, lifetime, origin, device))
        assert isinstance(reply, SessionStarted)
        return reply.body

    async def _call(self, message: Callable[[int], object]) -> Reply:
        """Send the message, which is given the call's number, and wait for the engine's reply with that number."""
        number, call = next(self._numbers), _Call()
        self._calls[number] = call
        try:
            self._post(message(number))
            await call.replied.wait()
        finally:
            del self._calls[number]
        assert call.reply is not None
        return call.reply

    async def listen(self, channel: Channel[ToWorker]) -> None:
        """Take the engine's messages for as long as it lives. Then this process ends."""
        await channel.read(self.hear)
        end_without_engine()

    def hear(self, message: ToWorker) -> None:
        """Take a message of the engine's."""
        if isinstance(message, Order):
            self._obey(message)
            return
        call = self._calls.get(message.number)
        if call is not None:  # else the client has left meanwhile
            call.reply = message
            call.replied.set()


def end_without_engine() -> NoReturn:
    """End the process at once, with all its connections: without the engine no session can be checked."""
    log.error("worker_without_engine")
    os._exit(ENGINE_GONE)


class _Call:
    """A call that waits for its reply."""

    __slots__ = ("replied", "reply")

    def __init__(self) -> None:
        self.replied = trio.Event()
        self.reply: Reply | None = None
