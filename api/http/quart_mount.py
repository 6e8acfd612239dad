"""Every door of the table mounted on a Quart-Trio app, its own errors as problems; the front stands before it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from quart import Response, request
from quart_trio import QuartTrio
from werkzeug.datastructures import Headers
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from api.http import problems
from api.http.call import Answer
from api.http.door import Door
from api.http.front import App, Front, spellings
from api.http.problems import problem_answer
from engine.errors import NotFound


def mount(front: Front, doors: tuple[Door, ...]) -> App:
    """The Quart app behind this front."""
    quart = QuartTrio("hatchway", static_folder=None)
    quart.url_map.merge_slashes = False  # the hot table knows no `//` either
    for door, path in ((row, path) for row in doors for path in spellings(row.path)):
        quart.add_url_rule(
            _rule(path),
            endpoint=f"{door.method} {path}",
            view_func=_view(front, door),
            methods=[door.method],
            provide_automatic_options=False,
            strict_slashes=True,  # both spellings are mounted, and a third is none
        )
    quart.register_error_handler(HTTPException, _not_routed)
    return cast(App, quart)


def _rule(path: str) -> str:
    """`{name}` is how the table and OpenAPI write a parameter, `<name>` how Quart does."""
    return path.replace("{", "<").replace("}", ">")


def _view(front: Front, door: Door) -> Callable[..., Awaitable[Response]]:
    async def view(**params: Any) -> Response:
        scope: Any = request.scope
        call = front.call(scope, scope["hatchway.body"], scope["hatchway.request_id"], params)
        answer = front.respond(door, call)
        if not isinstance(answer, Answer):
            answer = await answer
        if isinstance(answer.body, bytes):
            return _response(answer)
        scope["hatchway.stream"] = answer.body
        if call.method != "HEAD":
            return _response(answer)
        response = _response(answer._replace(body=b""))  # a stream that nobody is sent would be held for nothing
        del response.headers["content-length"]
        return response

    return view


def _response(answer: Answer) -> Response:
    headers = Headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.headers)
    response = Response(answer.body, answer.status, headers)
    if all(name != "content-type" for name, _ in headers):
        del response.headers["content-type"]  # Quart would call an empty answer HTML
    if answer.status in (204, 304):
        del response.headers["content-length"]  # a 304 would belie the length of the 200 (RFC 9110 section 8.6)
    response.timeout = None  # a held stream ends when it ends
    return response


async def _not_routed(error: HTTPException) -> Response:
    if isinstance(error, MethodNotAllowed):
        allow = ", ".join(sorted(method for method in error.valid_methods or () if method != "OPTIONS"))
        return _response(problem_answer(problems.MethodNotAllowed(allow)))
    return _response(problem_answer(NotFound("there is nothing at this path")))
