"""A worker's backend: it answers what it can by itself or from its cache, asks the engine for the rest, and counts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from hatchway.api.http.backend import RequestIds
from hatchway.api.http.bodies import read_body
from hatchway.api.http.endpoint import Function, Route
from hatchway.api.http.endpoints import auth
from hatchway.api.http.endpoints.auth import VerifyFields, check_proof, make_challenge
from hatchway.api.http.problems import problem_response
from hatchway.api.http.proxies import forwarded_for
from hatchway.api.http.request import Request, Response
from hatchway.api.workers.engine_client import EngineClient
from hatchway.api.workers.messages import RequestCount, Responded
from hatchway.engine.access.challenges import ChallengeFacts, decode_signature
from hatchway.engine.access.devices import Device
from hatchway.engine.access.limits import source_of
from hatchway.engine.access.signers import Signed, is_quick, signer_of, whose
from hatchway.engine.base.clock import Clock
from hatchway.engine.base.errors import FileRefused, Refusal
from hatchway.engine.journal.metrics import FINEST
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.runtime.records import Origin
from hatchway.engine.sessions.versions import VersionCounters, VersionSnapshot
from hatchway.engine.settings.settings import Settings

CACHED = 8192
"""Responses that are cached at most: a kilobyte each, 8 MiB together."""

Key = tuple[str, bytes]
"""A path, and the exact value of the Authorization header."""

SOURCES = 8192
"""Addresses remembered at most that are past their limit of failures."""


def key_of(request: Request) -> Key | None:
    """The key under which the response to a request may be cached; None for a request without a token, or with two, and
    for a traced one, whose response has an id of its own."""
    if request.method != "GET":
        return None
    token = None
    for name, value in request.headers:
        if name == b"traceparent" or (name == b"authorization" and token is not None):
            return None
        if name == b"authorization":
            token = value
    return None if token is None else (request.path, token)


class CachedResponse(NamedTuple):
    """A response of the engine's. It is valid while the version counters stand as in `snapshot` and authorized_keys has
    the version `keys`, and until `until`, in epoch seconds."""

    response: Response
    snapshot: VersionSnapshot
    keys: int
    until: float


class ResponseCache:
    """Responses of the engine's that may be given again, `CACHED` at most: the oldest makes room for a new one."""

    def __init__(self, clock: Clock, counters: VersionCounters, keys: AuthorizedKeys) -> None:
        self._clock, self._counters, self._keys = clock, counters, keys
        self._responses: dict[Key, CachedResponse] = {}

    def get(self, key: Key) -> Response | None:
        """The response, if it is still valid; else None."""
        cached = self._responses.get(key)
        if cached is None:
            return None
        if (
            cached.until > self._clock.wall()
            and self._counters.is_current(cached.snapshot, self._clock.elapsed())
            and cached.keys == self.keys_version()
        ):
            return cached.response
        del self._responses[key]
        return None

    def keys_version(self) -> int:
        """Which content authorized_keys has; -1 while that is refused, or not settled: nothing is cached under it."""
        try:
            return self._keys.version() if self._keys.settled() else -1
        except FileRefused:
            return -1

    def put(self, key: Key, reply: Responded, keys: int) -> None:
        """Cache the engine's response, where it may be given again. `keys` is the `keys_version` from before the engine
        was asked, so that a change since then makes the response invalid."""
        if reply.response is None or reply.snapshot is None or keys < 0:
            return
        if len(self._responses) >= CACHED:
            del self._responses[next(iter(self._responses))]
        self._responses[key] = CachedResponse(reply.response, reply.snapshot, keys, reply.until)


class WorkerCounts:
    """Counts the requests that a worker answers, until the engine is sent the counts for its metrics."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, int], RequestCount] = {}

    def answered(self, method: str, path: str, status: int, seconds: float) -> None:
        """The worker has answered; `path` as the table of endpoints has it."""
        row = self._rows.get((method, path, status))
        if row is None:
            row = self._rows[method, path, status] = RequestCount(method, path, status, [0] * (len(FINEST) + 1), 0.0)
        row.buckets[bisect_left(FINEST, seconds)] += 1
        row.seconds += seconds

    def take(self) -> list[RequestCount]:
        """The counts since the last `take`."""
        rows, self._rows = list(self._rows.values()), {}
        return rows


class WorkerBackend:
    """Issues challenges, verifies signatures, and gives cached responses again while they are valid. All else is for
    the engine."""

    def __init__(self, client: EngineClient) -> None:
        self._client, self._request_id = client, RequestIds()
        self._cache = ResponseCache(client.clock, client.counters, client.keys)
        self.counts = WorkerCounts()
        """The requests that were answered since the engine was sent the last counts."""
        self._limited_until: dict[str, float] = {}
        self._here: dict[Function, Callable[[Request], Response | Awaitable[Response]]] = {
            auth.challenge: self._challenge,
            auth.verify: self._verify,
        }

    @property
    def settings(self) -> Settings:
        """The engine's settings, as the last `Configure` has them."""
        return self._client.settings

    def measured(self, route: Route, response: Response, seconds: float) -> None:
        """Count the response. The worker sends the counts to the engine every second."""
        self.counts.answered(route.endpoint.method, route.endpoint.path, response.status, seconds)

    def respond(self, route: Route, request: Request) -> Response | Awaitable[Response]:
        """The response, by this process where it can, else by the engine."""
        here = self._here.get(route.endpoint.function)
        if here is not None:
            # The response to a traced one has the engine's name of the request beside the sender's.
            return here(request) if request.traceparent is None else self._ask(request)
        key = key_of(request)
        if key is None:
            return self._ask(request)
        return self._cache.get(key) or self._ask_and_cache(request, key)

    async def check_head(self, route: Route, head: Request) -> Response | None:
        """The engine's answer to the head of a request."""
        return await self._client.check_head(head)

    async def _ask(self, request: Request) -> Response:
        reply = await self._client.ask(request)
        assert reply.response is not None
        return reply.response

    async def _ask_and_cache(self, request: Request, key: Key) -> Response:
        await self._client.settle_keys()
        keys = self._cache.keys_version()
        reply = await self._client.ask(request)
        self._cache.put(key, reply, keys)
        assert reply.response is not None
        return reply.response

    def _challenge(self, request: Request) -> Response | Awaitable[Response]:
        if self._client.challenges is None:
            return self._ask(request)
        try:
            return make_challenge(self._client.issue_challenge, request)
        except Refusal as refused:
            return problem_response(refused)

    def _verify(self, request: Request) -> Awaitable[Response]:
        if self._client.challenges is None:
            return self._ask(request)
        forwarded = forwarded_for(request.headers, request.peer, self.settings.trusted_proxies)
        origin = Origin(None, forwarded or request.peer, self._request_id())
        source = source_of(origin.address or "")
        if self._limited_until.get(source, 0.0) > self._client.clock.elapsed():
            return self._ask_for(request, source)  # the engine may refuse it without checking the signature
        return self._prove(request, origin, source)

    async def _prove(self, request: Request, origin: Origin, source: str) -> Response:
        """Verify the signature here, and have the engine start the session. All else goes to the engine whole, which
        refuses, records and counts."""
        await self._client.settle_keys()
        signer = self._signer(request)
        body = None if signer is None else await self._client.start_session(*signer, origin=origin)
        return await self._ask_for(request, source) if body is None else Response(200, body)

    async def _ask_for(self, request: Request, source: str) -> Response:
        """The engine's response to a verify. Remembers until when the engine refuses this source."""
        response = await self._ask(request)
        if response.status == 429:
            wait = next((int(value) for name, value in response.headers if name == b"retry-after"), 0)
            if len(self._limited_until) >= SOURCES:
                del self._limited_until[next(iter(self._limited_until))]
            self._limited_until[source] = self._client.clock.elapsed() + wait
        return response

    def _signer(self, request: Request) -> tuple[ChallengeFacts, str, int, Device] | None:
        """The challenge, the identity whose key signed it, the lifetime asked for, and by what device; None unless the
        signature is good."""
        client = self._client
        assert client.challenges is not None
        try:
            fields = read_body(VerifyFields, request, self.settings.limits.json_depth)
            proof = check_proof(fields, request.header(b"user-agent") or b"", self.settings.key_types)
            challenge = client.challenges.read(proof.nonce)
            identity, signature = whose(challenge, proof.identity), decode_signature(proof.signature)
            signed = Signed(identity, proof.algorithm, proof.nonce.encode("ascii"), signature)
            if not is_quick(signed, client.keys):
                return None
            entry = signer_of(signed, client.keys)
        except Refusal:
            return None
        return challenge, entry.key.identity, proof.lifetime, proof.device
