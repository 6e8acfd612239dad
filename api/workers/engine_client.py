"""A worker's client of its engine: settings and keys as the engine has sent them, and calls over the channel."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import trio

from hatchway.api.http.request import Request, Response
from hatchway.api.workers.messages import CheckHead, Configure, HandleRequest, Responded, SessionStarted, StartSession
from hatchway.engine.access.challenges import ANY, ChallengeFacts, Challenges
from hatchway.engine.access.devices import Device
from hatchway.engine.base.clock import SystemClock
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.keys.keys import PublicKey, parse_openssh
from hatchway.engine.runtime.records import Origin
from hatchway.engine.sessions.versions import VersionCounters
from hatchway.engine.settings.settings import Settings
from hatchway.engine.settings.sources import decode_settings


class EngineClient:
    """The engine as one worker knows it. `challenges` is None where the worker leaves them to the engine.

    `post` sends a message over the channel; `counters` are the version counters in shared memory; `first` has the
    settings and keys to begin with.
    """

    settings: Settings
    own_key: PublicKey
    challenges: Challenges | None

    def __init__(
        self, counters: VersionCounters, keys: AuthorizedKeys, post: Callable[[Any], None], first: Configure
    ) -> None:
        self.counters, self.keys = counters, keys
        self.clock = SystemClock()
        self._post = post
        self._numbers = itertools.count(1)
        self._waiting: dict[int, _Waiting] = {}
        self.configure(first)

    def configure(self, told: Configure) -> None:
        """Take up settings and keys."""
        self.settings, self.own_key = decode_settings(told.settings), parse_openssh(told.own_key)
        self.challenges = Challenges(self.clock, told.mac_key) if told.mac_key else None

    def issue_challenge(self, host: str, identity: str | None) -> tuple[str, str]:
        """As `KeySignIn.challenge`: the identity and the nonce."""
        assert self.challenges is not None
        return identity or self.own_key.identity, self.challenges.issue(host, identity or ANY)

    async def ask(self, request: Request) -> Responded:
        """The engine's response to a screened request at a plain endpoint."""
        told = await self._wait(lambda number: HandleRequest(number, request))
        assert isinstance(told, Responded)
        return told

    async def check_head(self, request: Request) -> Response | None:
        """The engine's refusal of a request whose body has not been read; None where the body may come."""
        told = await self._wait(lambda number: CheckHead(number, request))
        assert isinstance(told, Responded)
        return told.response

    async def start_session(
        self, challenge: ChallengeFacts, identity: str, lifetime: int, device: Device, origin: Origin
    ) -> bytes | None:
        """Have the engine start a session for the key that signed the challenge. Returns the response's body; None
        where the engine refuses."""
        told = await self._wait(lambda number: StartSession(number, challenge, identity, lifetime, origin, device))
        assert isinstance(told, SessionStarted)
        return told.body

    async def _wait(self, asked: Callable[[int], object]) -> Responded | SessionStarted:
        number, waiting = next(self._numbers), _Waiting()
        self._waiting[number] = waiting
        try:
            self._post(asked(number))
            await waiting.event.wait()
        finally:
            del self._waiting[number]
        assert waiting.told is not None
        return waiting.told

    def hear(self, told: Responded | SessionStarted) -> None:
        """Take a message of the engine's, and wake the task that waits for it."""
        waiting = self._waiting.get(told.number)
        if waiting is not None:  # else the client has left meanwhile
            waiting.told = told
            waiting.event.set()


class _Waiting:
    __slots__ = ("event", "told")

    def __init__(self) -> None:
        self.event = trio.Event()
        self.told: Responded | SessionStarted | None = None
