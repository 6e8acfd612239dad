"""What a gateway asks of an engine, and the engine of this process, which answers by calling an endpoint's function."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Awaitable
from typing import Protocol

import structlog

from hatchway.api.http.endpoint import Invocation, Route, bearer
from hatchway.api.http.problems import problem_response
from hatchway.api.http.request import Request, Response, traced
from hatchway.engine.base.errors import FileRefused, PermissionDenied, Refusal, TokenRefused
from hatchway.engine.engine import Engine
from hatchway.engine.settings.settings import Settings

log = structlog.get_logger(__name__)


class Backend(Protocol):
    """What a gateway asks of an engine: in process, or over a worker's channel."""

    @property
    def settings(self) -> Settings:
        """The settings as they are now: a reload replaces them."""

    def measured(self, route: Route, response: Response, seconds: float) -> None:
        """Count a response that the gateway has got, after so many seconds."""

    def respond(self, route: Route, request: Request) -> Response | Awaitable[Response]:
        """The response to a request that was screened, at once where nothing has to be waited for. Raises nothing."""

    async def refuse(self, route: Route, request: Request) -> Response | None:
        """What refuses a request whose body has not been read; None where the body may come. Raises nothing."""


class RequestIds:
    """A name for each request, in logs and records: no two of one process, or of two runs, are alike."""

    def __init__(self) -> None:
        self._run, self._count = secrets.token_hex(3), itertools.count(1)

    def __call__(self) -> str:
        return f"{self._run}-{next(self._count)}"


STALE = frozenset({"stale", "ended", "expired"})
"""Causes for which a good token may be refused, where this engine has not heard yet what another one did."""


NOT_ASKED = "key_not_asked"
"""Why a token may be refused that is good: a program of the site knows its key, and has not been asked for a minute."""


class EngineBackend:
    """The backend over an engine of this process. Every refusal becomes a problem here."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._request_id = engine, RequestIds()

    @property
    def settings(self) -> Settings:
        """The engine's settings."""
        return self._engine.settings

    def measured(self, route: Route, response: Response, seconds: float) -> None:
        """Count the response."""
        endpoint = route.endpoint
        self._engine.metrics.answered(endpoint.method, endpoint.path, response.status, seconds)

    def respond(self, route: Route, request: Request) -> Response | Awaitable[Response]:
        """The endpoint's response: the one place where an endpoint's function is called."""
        invocation = Invocation(self._engine, route, request, self._request_id())
        response, trace = self._respond(route, invocation), request.traceparent
        if trace is None:
            return response
        if isinstance(response, Response):
            return traced(response, invocation.request_id, trace)
        return _traced_later(response, invocation.request_id, trace)

    def _respond(self, route: Route, invocation: Invocation) -> Response | Awaitable[Response]:
        try:
            result = _call(invocation)
        except Refusal as refused:
            if self._may_be_stale(route, refused):
                return _finish(invocation, _look_again(invocation))
            return _refuse(invocation, refused)
        except Exception:
            return _fault(invocation)
        return result if isinstance(result, Response) else _finish(invocation, result)

    async def refuse(self, route: Route, request: Request) -> Response | None:
        """Token, permission and license, looked at before the body is read."""
        invocation = Invocation(self._engine, route, request, self._request_id())
        try:
            try:
                invocation.authorize()
            except Refusal as refused:
                if not self._may_be_stale(route, refused):
                    raise
                await self._engine.sessions.look_again(bearer(request))
                invocation.authorize()
        except Refusal as refused:
            response = _refuse(invocation, refused)
            return response if isinstance(response, Response) else await response
        except Exception:
            return _fault(invocation)
        return None

    def _may_be_stale(self, route: Route, refused: Refusal) -> bool:
        if route.endpoint.access == "open":
            return False
        return refused.cause == NOT_ASKED or (self._engine.fleet is not None and refused.cause in STALE)


def _call(invocation: Invocation) -> Response | Awaitable[Response]:
    invocation.authorize()
    invocation.read_fields()
    return invocation.endpoint.function(invocation)


async def _traced_later(waiting: Awaitable[Response], request_id: str, trace: str) -> Response:
    return traced(await waiting, request_id, trace)


async def _look_again(invocation: Invocation) -> Response:
    await invocation.engine.sessions.look_again(bearer(invocation.request))
    result = _call(invocation)
    return result if isinstance(result, Response) else await result


async def _finish(invocation: Invocation, waiting: Awaitable[Response]) -> Response:
    try:
        return await waiting
    except Refusal as refused:
        response = _refuse(invocation, refused)
        return response if isinstance(response, Response) else await response
    except Exception:
        return _fault(invocation)


def _refuse(invocation: Invocation, refused: Refusal) -> Response | Awaitable[Response]:
    if isinstance(refused, TokenRefused) and refused.cause in ("expired", "key_expired", "key_unregistered"):
        return _settle(invocation, refused)
    return _problem(invocation, refused)


async def _settle(invocation: Invocation, refused: TokenRefused) -> Response:
    try:
        await invocation.engine.sessions.settle(bearer(invocation.request))
    except Refusal as unsettled:
        log.warning("session_not_settled", why=unsettled.detail)
    return _problem(invocation, refused)


def _problem(invocation: Invocation, refused: Refusal) -> Response:
    if isinstance(refused, PermissionDenied) and invocation.endpoint.event:
        chart, event = invocation.endpoint.event.split(".")
        invocation.engine.records.refusal(chart, "-", event, refused.code, invocation.origin)
    if isinstance(refused, FileRefused):  # its detail holds paths of the host, which only the operator may read
        log.error("file_refused", why=refused.detail, request_id=invocation.request_id)
        refused = FileRefused("a file of the engine is not as it must be: its log names it, and what mends it")
    # Section 4.3 promises that a client of inspect may look at `valid` alone.
    path = invocation.request.path
    more = {"valid": False} if refused.code == "invalid_token" and path.startswith("/api/auth/inspect") else {}
    return problem_response(refused, **more)


class InternalError(Refusal):
    """An error of ours; the log says more."""

    code = "internal_error"


def _fault(invocation: Invocation) -> Response:
    request_id = invocation.request_id
    log.exception("endpoint_failed", path=invocation.request.path, request_id=request_id)
    return problem_response(InternalError(f"something went wrong in the engine; its log has it under {request_id}"))
