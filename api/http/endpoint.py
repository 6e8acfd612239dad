"""Endpoints are rows of the table, found by method and path. An invocation is one request at an endpoint: who asks."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from hatchway.api.http.bodies import read_body
from hatchway.api.http.problems import BadRequest
from hatchway.api.http.proxies import forwarded_for
from hatchway.api.http.request import Request, Response
from hatchway.api.http.schema.parts import Param
from hatchway.engine.access.principal import Principal, require
from hatchway.engine.base.errors import Refusal, TokenRefused
from hatchway.engine.engine import Engine
from hatchway.engine.runtime.records import Origin
from hatchway.engine.sessions.sessions import KEYS_UNSETTLED


class NoFields(msgspec.Struct, forbid_unknown_fields=True):
    """Nothing is asked: no body, or an empty object. What is brought all the same is refused, never passed over."""


class Invocation:
    """One request at one endpoint, as the endpoint's function gets it.

    It has the engine, the request, the parameters of the path, the principal (once `authorize` knows it) and the fields
    of the body (once `read_fields` has read them).
    """

    __slots__ = ("authenticated", "endpoint", "engine", "fields", "params", "request", "request_id")

    def __init__(self, engine: Engine, route: Route, request: Request, request_id: str) -> None:
        self.engine, self.request, self.request_id = engine, request, request_id
        self.endpoint, self.params = route
        self.authenticated: Principal | None = None
        self.fields: Any = None

    @property
    def principal(self) -> Principal:
        """Who asks. Only at an endpoint that needs a token."""
        assert self.authenticated is not None
        return self.authenticated

    @property
    def forwarded(self) -> str | None:
        """The client's address, where a trusted proxy tells it."""
        request = self.request
        return forwarded_for(request.headers, request.peer, self.engine.settings.trusted_proxies)

    def address(self) -> str:
        """Where the request comes from: by a trusted proxy's word, else by the connection."""
        return self.forwarded or self.request.peer

    def authenticate(self) -> Principal:
        """Whose good token the request has. Raises TokenRefused, BadRequest."""
        return self.engine.sessions.authenticate(bearer(self.request), self.address)

    @property
    def origin(self) -> Origin:
        """Who asks, for records and limits: with identity and permissions, where there is a principal."""
        principal, needed = self.authenticated, self.endpoint.access
        address, trace = self.address(), self.request.traceparent
        if principal is None:
            return Origin(None, address, self.request_id, trace)
        if needed == "session":
            return Origin(principal.identity, address, self.request_id, trace)
        return Origin(principal.identity, address, self.request_id, trace, needed, principal.permissions)

    def authorize(self) -> None:
        """Check token, permission and license, before the body is read. Raises the refusal."""
        endpoint = self.endpoint
        if endpoint.access != "open":
            self.authenticated = self.authenticate()
            if endpoint.access != "session":
                require(self.authenticated, endpoint.access)
        if endpoint.module is not None:
            self.engine.license.require(endpoint.module)

    def may_be_outdated(self, refused: Refusal) -> bool:
        """Whether the session service may find the token good after all, once it has looked again."""
        return self.endpoint.access != "open" and self.engine.sessions.may_be_outdated(refused)

    def still_allows(self, permission: str) -> bool:
        """Whether a stream may go on: the session that opened it is still good, and still has the permission. While
        authorized_keys is not settled, nothing says the contrary."""
        try:
            require(self.authenticate(), permission)
        except Refusal as refused:
            return refused.cause == KEYS_UNSETTLED
        return True

    def read_fields(self) -> None:
        """Read the body's fields, where the endpoint has any. Raises UnsupportedMediaType, NotJson, InvalidRequest."""
        kind, request = self.endpoint.body, self.request
        if kind is not None and (request.body or kind is not NoFields):
            self.fields = read_body(kind, request, self.engine.settings.limits.json_depth)


Function = Callable[[Invocation], Response | Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A row of the table: method, path, function, and what is known of the endpoint.

    `access` is `open` (no token is needed), `session` (any good token), or the permission needed. `body` is the type
    of a JSON body's fields. A request to a `plain` endpoint may be read by the plain-request parser. A `held` endpoint
    may take long, or answer with a stream. Neither kind goes through Quart. `event` is CHART.EVENT for an endpoint that
    asks for one: where the permission is missing, the journal gets that event's refusal. `asks`, `answers` and
    `refusals` are for the description.
    """

    method: str
    path: str
    function: Function
    summary: str
    access: str = "open"
    module: str | None = None
    body: type[msgspec.Struct] | None = None
    large: bool = False
    plain: bool = False
    held: bool = False
    event: str = ""
    asks: tuple[Param, ...] = ()
    answers: Mapping[int, Any] = field(default_factory=dict)
    refusals: tuple[str, ...] = ()


class Route(NamedTuple):
    """What a path leads to: an endpoint, and the parameters in the path."""

    endpoint: Endpoint
    params: Mapping[str, str]


_NO_PARAMS: Mapping[str, str] = {}


class Routes:
    """Finds the endpoint for a method and a path, by the same rules as Quart's routes. `exact` has the paths without
    parameters, by method and path."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        rows = tuple(endpoints)
        self.exact = {
            (row.method, path): Route(row, _NO_PARAMS)
            for row in rows
            if "{" not in row.path
            for path in spellings(row.path)
        }
        self._patterns = tuple((row, _pattern(row.path)) for row in rows if "{" in row.path)

    def find(self, method: str, path: str) -> Route | None:
        """The route of a request, or None. HEAD leads where GET does."""
        method = "GET" if method == "HEAD" else method
        route = self.exact.get((method, path))
        if route is not None:
            return route
        for row, pattern in self._patterns:
            if row.method == method and (match := pattern.fullmatch(path)) is not None:
                return Route(row, match.groupdict())
        return None


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", path.rstrip("/"))  # texts and names of parameters alternate
    return re.compile(
        "".join(f"(?P<{part}>[^/]+)" if at % 2 else re.escape(part) for at, part in enumerate(parts)) + "/?"
    )


def spellings(path: str) -> tuple[str, ...]:
    """A path with and without its trailing slash: both answer alike."""
    return tuple(dict.fromkeys((path, path.rstrip("/") or "/")))


def bearer(request: Request) -> str:
    """The token in the one `Authorization: Bearer` header (RFC 6750 section 2.1). Raises TokenRefused, BadRequest."""
    values = [value for name, value in request.headers if name == b"authorization"]
    if not values:
        raise TokenRefused("missing", sent=False)
    if len(values) > 1:
        raise BadRequest("send one Authorization header")
    scheme, _, token = values[0].partition(b" ")
    if scheme.lower() != b"bearer":
        raise TokenRefused("missing", sent=False)
    try:
        return token.decode("ascii")
    except UnicodeDecodeError:
        raise TokenRefused("malformed") from None
