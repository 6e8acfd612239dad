"""Every endpoint of the table as a route of a Quart-Trio app, whose own errors become problems."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from quart import Response as QuartResponse
from quart import request as quart_request
from quart_trio import QuartTrio
from werkzeug.datastructures import Headers
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from hatchway.api.http import problems
from hatchway.api.http.asgi import REQUEST, STREAM, App
from hatchway.api.http.endpoint import Endpoint, Route, spellings
from hatchway.api.http.gateway import Gateway
from hatchway.api.http.problems import problem_response
from hatchway.api.http.request import Request, Response
from hatchway.engine.base.errors import NotFound


def mount(gateway: Gateway, endpoints: tuple[Endpoint, ...]) -> App:
    """The Quart app, for requests that this gateway has admitted."""
    quart = QuartTrio("hatchway", static_folder=None)
    quart.url_map.merge_slashes = False  # the gateway's table knows no `//` either
    for endpoint, path in ((row, path) for row in endpoints for path in spellings(row.path)):
        quart.add_url_rule(
            _rule(path),
            endpoint=f"{endpoint.method} {path}",
            view_func=_view(gateway, endpoint),
            methods=[endpoint.method],
            provide_automatic_options=False,
            strict_slashes=True,  # the path is mounted with and without its slash; Quart need not redirect
        )
    quart.register_error_handler(HTTPException, _not_routed)
    return cast(App, quart)


def _rule(path: str) -> str:
    """`{name}` is how the table and OpenAPI write a parameter, `<name>` how Quart does."""
    return path.replace("{", "<").replace("}", ">")


def _view(gateway: Gateway, endpoint: Endpoint) -> Callable[..., Awaitable[QuartResponse]]:
    async def view(**params: str) -> QuartResponse:
        scope: Any = quart_request.scope
        request: Request = scope[REQUEST]
        response = gateway.respond(Route(endpoint, params), request)
        if not isinstance(response, Response):
            response = await response
        if response.stream is None:
            return _translated(response)
        scope[STREAM] = response.stream
        if request.method != "HEAD":
            return _translated(response)
        head = _translated(response._replace(stream=None))  # the stream is sent by itself, below
        del head.headers["content-length"]
        return head

    return view


def _translated(response: Response) -> QuartResponse:
    headers = Headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers)
    body = response.body if response.stream is None else response.stream
    translated = QuartResponse(body, response.status, headers)
    if all(name != "content-type" for name, _ in headers):
        del translated.headers["content-type"]  # Quart would call an empty response HTML
    if response.status in (204, 304):
        del translated.headers["content-length"]  # a 304 would belie the length of the 200 (RFC 9110 section 8.6)
    translated.timeout = None  # a held stream ends when it ends
    return translated


async def _not_routed(error: HTTPException) -> QuartResponse:
    if isinstance(error, MethodNotAllowed):
        allow = ", ".join(sorted(method for method in error.valid_methods or () if method != "OPTIONS"))
        return _translated(problem_response(problems.MethodNotAllowed(allow)))
    return _translated(problem_response(NotFound("there is nothing at this path")))
