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
from hatchway.engine.base.errors import FOREIGN, FileRefused, PermissionDenied, Refusal, TokenRefused
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

    async def check_head(self, route: Route, head: Request) -> Response | None:
        """What refuses a request whose body has not been read; None where the body may come. Raises nothing."""


class RequestIds:
    """A name for each request, in logs and records: no two of one process, or of two runs, are alike."""

    def __init__(self) -> None:
        self._run, self._count = secrets.token_hex(3), itertools.count(1)

    def __call__(self) -> str:
        return f"{self._run}-{next(self._count)}"


class EngineBackend:
    """The backend over an engine of this process. Every refusal becomes a problem here.

    An endpoint's function returns a response, at once or awaited, and so does `respond`: what need not wait is answered
    without a task switch. A token may be refused by mistake, where this engine has not heard of something yet: then
    the session service looks, and the endpoint is called once more.
    """

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
        response, trace = _begin(invocation), request.traceparent
        if trace is None:
            return response
        if isinstance(response, Response):
            return traced(response, invocation.request_id, trace)
        return _traced_later(response, invocation.request_id, trace)

    async def check_head(self, route: Route, head: Request) -> Response | None:
        """Token, permission and license, looked at before the body is read."""
        invocation = Invocation(self._engine, route, head, self._request_id())
        try:
            try:
                invocation.authorize()
            except Refusal as refused:
                if not invocation.may_be_outdated(refused):
                    raise
                await self._engine.sessions.look_again(bearer(head))
                invocation.authorize()
        except Refusal as refused:
            return await _problem_settled(invocation, refused)
        except Exception:
            return _fault(invocation)
        return None


def _begin(invocation: Invocation) -> Response | Awaitable[Response]:
    """Call the endpoint. The response is there at once where the function neither waits nor has to be called again."""
    try:
        result = _call(invocation)
    except Refusal as refused:
        if invocation.may_be_outdated(refused):
            return _end(invocation, _refresh_and_call_again(invocation))
        if invocation.engine.sessions.is_over(refused):
            return _problem_settled(invocation, refused)
        return _problem(invocation, refused)
    except Exception:
        return _fault(invocation)
    return result if isinstance(result, Response) else _end(invocation, result)


async def _end(invocation: Invocation, waiting: Awaitable[Response]) -> Response:
    """The response that is waited for, or the problem that it ends in."""
    try:
        return await waiting
    except Refusal as refused:
        return await _problem_settled(invocation, refused)
    except Exception:
        return _fault(invocation)


def _call(invocation: Invocation) -> Response | Awaitable[Response]:
    invocation.authorize()
    invocation.read_fields()
    return invocation.endpoint.function(invocation)


async def _refresh_and_call_again(invocation: Invocation) -> Response:
    await invocation.engine.sessions.look_again(bearer(invocation.request))
    result = _call(invocation)
    return result if isinstance(result, Response) else await result


async def _traced_later(waiting: Awaitable[Response], request_id: str, trace: str) -> Response:
    return traced(await waiting, request_id, trace)


async def _problem_settled(invocation: Invocation, refused: Refusal) -> Response:
    """The problem of a refusal; a session that is over by it has ended for good before the client hears so."""
    if invocation.engine.sessions.is_over(refused):
        try:
            await invocation.engine.sessions.settle(bearer(invocation.request))
        except Refusal as unsettled:
            log.warning("session_not_settled", why=unsettled.detail)
    return _problem(invocation, refused)


def _problem(invocation: Invocation, refused: Refusal) -> Response:
    if isinstance(refused, PermissionDenied) and invocation.endpoint.event:
        chart, event = invocation.endpoint.event.split(".")
        invocation.engine.records.refusal(chart, "-", event, refused.code, invocation.origin)
    if isinstance(refused, TokenRefused) and refused.cause == FOREIGN:
        invocation.engine.sessions.tell_foreign_use(bearer(invocation.request), invocation.origin)
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
