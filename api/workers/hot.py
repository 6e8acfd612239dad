"""A door's own answers at the hot doors: an inspection that was answered before, a challenge, a signature looked at."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import NamedTuple

from api.http import auth
from api.http.auth import VerifyFields
from api.http.bodies import read_fields, read_object
from api.http.call import JSON, NO_STORE, NOSNIFF
from api.http.doors import DOORS
from api.http.front import Front, spellings
from api.http.lane import HotDoors
from api.http.proxies import forwarded_for
from api.transport.lane import LaneAnswer, LaneRequest
from api.workers.desk import Desk
from engine.durations import lifetime
from engine.errors import Refusal
from engine.records import Origin
from engine.trust.challenges import Challenge, decode_signature
from engine.trust.limits import source_of
from engine.trust.signers import Signed, is_quick, signer_of, whose
from engine.validity import Mark

KEPT = 8192
"""Inspections kept, each under its exact Authorization header: a kilobyte each, 8 MiB together."""

VERIFY, INSPECT = "/api/auth/verify/", "/api/auth/inspect/"

Reply = LaneAnswer | Awaitable[LaneAnswer | None] | None


class Kept(NamedTuple):
    """What the engine answered: good while its mark holds, the keys' file is the same, and until `until` (epoch)."""

    answer: LaneAnswer
    mark: Mark
    keys: int
    until: float


class Proof(NamedTuple):
    """A signature that was found good."""

    challenge: Challenge
    identity: str
    lifetime: int


class Hot:
    """Takes what a lane takes. What it can't answer well itself the engine answers; None leaves it to the app."""

    def __init__(self, desk: Desk, front: Front) -> None:
        self._desk, self._front = desk, front
        challenge = tuple(row for row in DOORS if row.serve is auth.challenge)
        self._challenge = HotDoors(desk, front, challenge)  # type: ignore[arg-type]
        self._doors = {
            (method, path.encode()): serve
            for method, door, serve in (
                (b"GET", INSPECT, self._inspect),
                (b"POST", VERIFY, self._verify),
                (b"GET", challenge[0].path, self._challenged),
            )
            for path in spellings(door)
        }
        self._kept: dict[bytes, Kept] = {}
        self._shut: dict[str, float] = {}

    def __call__(self, request: LaneRequest) -> Reply:
        path = request.target.partition(b"?")[0]
        serve = self._doors.get((request.method, path))
        settings = self._desk.settings
        if serve is None or not settings.lane or len(request.body) > settings.limits.body_bytes:
            return None
        try:
            self._front.screen(path.decode("ascii"), request.headers, _peer(request), request.server)
        except Refusal:
            return None
        return serve(request)

    def _challenged(self, request: LaneRequest) -> Reply:
        if self._desk.challenges is None:
            return self._ask(request)
        return self._challenge(request)

    async def _ask(self, request: LaneRequest) -> LaneAnswer | None:
        return (await self._desk.ask(request)).answer

    def _inspect(self, request: LaneRequest) -> Reply:
        began = time.perf_counter()
        token = _only(request, b"authorization")
        if token is None:
            return self._ask(request)
        kept = self._kept.get(token)
        if kept is not None:
            if self._holds(kept):
                self._desk.metrics.answered("GET", INSPECT, kept.answer.status, time.perf_counter() - began)
                return kept.answer
            del self._kept[token]
        return self._inspect_anew(request, token)

    def _holds(self, kept: Kept) -> bool:
        desk = self._desk
        return (
            kept.until > desk.clock.wall()
            and desk.validity.holds(kept.mark, desk.clock.elapsed())
            and kept.keys == desk.keys.version()
        )

    async def _inspect_anew(self, request: LaneRequest, token: bytes) -> LaneAnswer | None:
        keys = self._desk.keys.version()  # before the engine looks: a later change shows
        told = await self._desk.ask(request)
        if told.answer is not None and told.mark is not None and keys >= 0:
            if len(self._kept) >= KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[token] = Kept(told.answer, told.mark, keys, told.until)
        return told.answer

    def _verify(self, request: LaneRequest) -> Reply:
        if self._desk.challenges is None:
            return self._ask(request)
        origin = self._origin(request)
        source = source_of(origin.address or "")
        if self._shut.get(source, 0.0) > self._desk.clock.elapsed():
            return self._ask_for(request, source)  # the engine knows what to refuse without a look
        return self._prove(request, origin, source)

    async def _prove(self, request: LaneRequest, origin: Origin, source: str) -> LaneAnswer | None:
        """Everything but a good signature is for the engine: it refuses, records and counts."""
        began = time.perf_counter()
        proof = self._proof(request)
        body = None if proof is None else await self._desk.admit(*proof, origin)
        if body is None:
            return await self._ask_for(request, source)
        self._desk.metrics.answered("POST", VERIFY, 200, time.perf_counter() - began)
        return LaneAnswer(200, (JSON, NO_STORE, NOSNIFF), body)

    async def _ask_for(self, request: LaneRequest, source: str) -> LaneAnswer | None:
        """The engine's answer to a verify; whether it said that this source is past its limit is remembered."""
        answer = await self._ask(request)
        if answer is not None and answer.status == 429:
            wait = next((int(value) for name, value in answer.headers if name == b"retry-after"), 0)
            if len(self._shut) >= KEPT:
                del self._shut[next(iter(self._shut))]
            self._shut[source] = self._desk.clock.elapsed() + wait
        return answer

    def _proof(self, request: LaneRequest) -> Proof | None:
        desk, kind = self._desk, _only(request, b"content-type")
        assert desk.challenges is not None
        try:
            value = read_object(kind, request.body, desk.settings.limits.json_depth)
            fields = read_fields(VerifyFields, value)
            if fields.algorithm not in ("RS256", "PS256"):
                return None
            seconds, _ = lifetime(fields.lifetime)
            challenge = desk.challenges.read(fields.nonce)
            identity, signature = whose(challenge, fields.identity), decode_signature(fields.signature)
            signed = Signed(identity, fields.algorithm, fields.nonce.encode("ascii"), signature)
            if not is_quick(signed, desk.keys):
                return None
            entry = signer_of(signed, desk.keys)
        except Refusal:
            return None
        return Proof(challenge, entry.key.identity, seconds)

    def _origin(self, request: LaneRequest) -> Origin:
        peer = _peer(request)
        forwarded = forwarded_for(request.headers, peer, self._desk.settings.trusted_proxies)
        return Origin(None, forwarded or peer, self._front.request_id())


def _peer(request: LaneRequest) -> str:
    return request.peer[0] if request.peer else ""


def _only(request: LaneRequest, name: bytes) -> bytes | None:
    """The value of a header that is there once."""
    values = [value for key, value in request.headers if key == name]
    return values[0] if len(values) == 1 else None
