"""A worker's backend: what the worker can answer well by itself it does, and asks the engine for the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from hatchway.api.http.backend import RequestIds
from hatchway.api.http.bodies import read_body
from hatchway.api.http.endpoint import Function, Route
from hatchway.api.http.endpoints import auth
from hatchway.api.http.endpoints.auth import VerifyFields, check_proof, make_challenge
from hatchway.api.http.problems import problem_response
from hatchway.api.http.proxies import forwarded_for
from hatchway.api.http.request import Request, Response
from hatchway.api.workers.engine_client import EngineClient
from hatchway.api.workers.response_cache import Key, ResponseCache, key_of
from hatchway.engine.access.challenges import ChallengeFacts, decode_signature
from hatchway.engine.access.limits import source_of
from hatchway.engine.access.signers import Signed, is_quick, signer_of, whose
from hatchway.engine.base.errors import Refusal
from hatchway.engine.runtime.records import Origin
from hatchway.engine.settings.settings import Settings

SOURCES = 8192
"""Addresses past their limit that are remembered."""


class WorkerBackend:
    """Challenges are issued here, signatures verified here, and responses given again while they hold."""

    def __init__(self, client: EngineClient) -> None:
        self._client, self._cache, self._request_id = client, ResponseCache(client), RequestIds()
        self._limited_until: dict[str, float] = {}
        self._here: dict[Function, Callable[[Request], Response | Awaitable[Response]]] = {
            auth.challenge: self._challenge,
            auth.verify: self._verify,
        }

    @property
    def settings(self) -> Settings:
        """The engine's, as it told them last."""
        return self._client.settings

    def measured(self, route: Route, response: Response, seconds: float) -> None:
        """Count the response; the engine is told from time to time."""
        self._client.metrics.answered(route.endpoint.method, route.endpoint.path, response.status, seconds)

    def respond(self, route: Route, request: Request) -> Response | Awaitable[Response]:
        """From here where that can be, else from the engine."""
        here = self._here.get(route.endpoint.function)
        if here is not None:
            # The response to a traced one has the engine's name of the request beside the sender's.
            return here(request) if request.traceparent is None else self._ask(request)
        key = key_of(request)
        if key is None:
            return self._ask(request)
        return self._cache.get(key) or self._ask_and_keep(request, key)

    async def refuse(self, route: Route, request: Request) -> Response | None:
        """What the engine says of the head of a request."""
        return await self._client.refuse(request)

    async def _ask(self, request: Request) -> Response:
        told = await self._client.ask(request)
        assert told.response is not None
        return told.response

    async def _ask_and_keep(self, request: Request, key: Key) -> Response:
        keys = self._client.keys.version()
        told = await self._client.ask(request)
        self._cache.put(key, told, keys)
        assert told.response is not None
        return told.response

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
            return self._ask_for(request, source)  # the engine knows what to refuse without a look
        return self._prove(request, origin, source)

    async def _prove(self, request: Request, origin: Origin, source: str) -> Response:
        """Everything but a good signature is for the engine: it refuses, records and counts."""
        signer = self._signer(request)
        body = None if signer is None else await self._client.admit(*signer, origin)
        return await self._ask_for(request, source) if body is None else Response(200, body)

    async def _ask_for(self, request: Request, source: str) -> Response:
        """The engine's response to a verify; whether it said that this source is past its limit is remembered."""
        response = await self._ask(request)
        if response.status == 429:
            wait = next((int(value) for name, value in response.headers if name == b"retry-after"), 0)
            if len(self._limited_until) >= SOURCES:
                del self._limited_until[next(iter(self._limited_until))]
            self._limited_until[source] = self._client.clock.elapsed() + wait
        return response

    def _signer(self, request: Request) -> tuple[ChallengeFacts, str, int] | None:
        """What was signed, by whom, and the lifetime asked for; None unless the signature is good."""
        client = self._client
        assert client.challenges is not None
        try:
            proof = check_proof(read_body(VerifyFields, request, self.settings.limits.json_depth))
            challenge = client.challenges.read(proof.nonce)
            identity, signature = whose(challenge, proof.identity), decode_signature(proof.signature)
            signed = Signed(identity, proof.algorithm, proof.nonce.encode("ascii"), signature)
            if not is_quick(signed, client.keys):
                return None
            entry = signer_of(signed, client.keys)
        except Refusal:
            return None
        return challenge, entry.key.identity, proof.lifetime
