"""What a worker knows of its engine, and how it asks over the channel."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import trio

from hatchway.api.http.request import Request, Response
from hatchway.api.workers.messages import CheckHead, Configure, HandleRequest, Responded, SessionStarted, StartSession
from hatchway.api.workers.request_counts import WorkerCounts
from hatchway.engine.access.challenges import ANY, ChallengeFacts, Challenges
from hatchway.engine.base.clock import SystemClock
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.keys.keys import PublicKey, parse_openssh
from hatchway.engine.runtime.records import Origin
from hatchway.engine.sessions.versions import VersionCounters
from hatchway.engine.settings.settings import Settings
from hatchway.engine.settings.sources import decode_settings


class EngineClient:
    """One for each worker process. `challenges` is None where they are left to the engine."""

    settings: Settings
    own_key: PublicKey
    challenges: Challenges | None

    def __init__(self, validity: VersionCounters, keys: AuthorizedKeys, post: Callable[[Any], None]) -> None:
        self.validity, self.keys = validity, keys
        self.clock = SystemClock()
        self.metrics = WorkerCounts()
        self._post = post
        self._numbers = itertools.count(1)
        self._waiting: dict[int, _Waiting] = {}

    def configure(self, told: Configure) -> None:
        """Go by this from now on."""
        self.settings, self.own_key = decode_settings(told.settings), parse_openssh(told.own_key)
        self.challenges = Challenges(self.clock, told.mac_key) if told.mac_key else None

    def issue_challenge(self, host: str, identity: str | None) -> tuple[str, str]:
        """As the engine's sessions do."""
        assert self.challenges is not None
        return identity or self.own_key.identity, self.challenges.issue(host, identity or ANY)

    async def ask(self, request: Request) -> Responded:
        """The engine's response to a screened request at a plain endpoint."""
        told = await self._wait(lambda number: HandleRequest(number, request))
        assert isinstance(told, Responded)
        return told

    async def refuse(self, request: Request) -> Response | None:
        """What refuses a request, by the engine's word, before its body is read."""
        told = await self._wait(lambda number: CheckHead(number, request))
        assert isinstance(told, Responded)
        return told.response

    async def admit(self, challenge: ChallengeFacts, identity: str, lifetime: int, origin: Origin) -> bytes | None:
        """The new session of the key that signed the challenge, as the answer's body; None if the engine refuses it."""
        told = await self._wait(lambda number: StartSession(number, challenge, identity, lifetime, origin))
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
        """The engine has answered."""
        waiting = self._waiting.get(told.number)
        if waiting is not None:  # else its client has left
            waiting.told = told
            waiting.event.set()


class _Waiting:
    __slots__ = ("event", "told")

    def __init__(self) -> None:
        self.event = trio.Event()
        self.told: Responded | SessionStarted | None = None
