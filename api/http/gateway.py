"""The gateway: every request passes here, whichever server read it, on its way to an endpoint of the one table.

A server, or the adapter of a framework, makes a `Request` and sends the `Response`. In between the gateway screens the
request (target, Host, Origin, size), finds its endpoint, has the backend respond, and measures. The backend is the
engine of this process, or a worker's client of it. It is the backend that authenticates, before it calls the endpoint:
an engine alone knows sessions, and a worker that gives a response again must not ask for one.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable

from hatchway.api.http.addresses import Addresses
from hatchway.api.http.backend import Backend
from hatchway.api.http.endpoint import Endpoint, Route, Routes
from hatchway.api.http.problems import BadRequest, BodyTooLarge, problem_response
from hatchway.api.http.proxies import forwarded_scheme
from hatchway.api.http.request import NOSNIFF, Request, Response
from hatchway.engine.base.errors import Refusal
from hatchway.engine.base.loopback import LOOPBACKS, loopbacks_here
from hatchway.engine.settings.settings import Settings


class Gateway:
    """The way of every request: screen it, find its endpoint, have the `backend` authenticate and respond, measure.

    `bound` are the addresses and ports that are listened on: their loopback names are the engine's own. `added` are the
    host:port pairs that count as its own for a while, such as the near ends of tunnels.
    """

    def __init__(self, backend: Backend, endpoints: tuple[Endpoint, ...]) -> None:
        self.backend = backend
        self._routes = Routes(endpoints)
        self.find = self._routes.find
        self._addresses: tuple[object, Addresses] = (None, Addresses((), ()))
        self.bound: tuple[tuple[str, int], ...] = tuple((address, self.settings.port) for address in LOOPBACKS)
        self.added: tuple[str, ...] = ()

    def use_bound(self, bound: tuple[tuple[str, int], ...]) -> None:
        """Take up the addresses and ports that are listened on, once the sockets are open."""
        self.bound = bound

    def use_added(self, added: tuple[str, ...]) -> None:
        """Take up the host:port pairs that count as the engine's own from now on, besides `bound` and the setting."""
        self.added = added

    @property
    def settings(self) -> Settings:
        """The settings as they are now: a reload replaces them."""
        return self.backend.settings

    @property
    def addresses(self) -> Addresses:
        """The addresses that name this engine now, by what is bound, the setting `addresses`, and what was added."""
        now = (self.bound, self.settings.addresses, self.added)
        if self._addresses[0] != now:
            self._addresses = now, Addresses(*now[:2], loopbacks_here(), self.added)
        return self._addresses[1]

    def handle(self, request: Request) -> Response | Awaitable[Response] | None:
        """The response to a whole request of the plain-request parser, at once where nothing has to be waited for.

        None leaves the request to h11, and so to `admit` and `respond`: where its endpoint is not `plain`, or the
        setting `lane` (so the parser was called once) is off.
        """
        route, settings = self._routes.exact.get((request.method, request.path)), self.backend.settings
        if route is None or not route.endpoint.plain or not settings.lane:
            return None
        try:
            self._screen(request)
            _check_size(len(request.body), route, settings)
        except Refusal as refused:
            return problem_response(refused)
        return self.respond(route, request)

    async def admit(self, head: Request, route: Route | None, length: int, *, has_body: bool) -> Response | None:
        """What refuses a request before its body is read; None where the body may come, after which `respond` is
        called.

        `length` is the body's as the client has announced it.
        """
        try:
            self._screen(head)
            _check_size(length, route, self.settings)
        except Refusal as refused:
            return problem_response(refused)
        if not has_body or route is None or route.endpoint.access == "open":
            return None
        began = time.perf_counter()
        response = await self.backend.check_head(route, head)
        return None if response is None else self._finish(route, response, began)

    def respond(self, route: Route, request: Request) -> Response | Awaitable[Response]:
        """The response to a request that was screened, its time measured."""
        began = time.perf_counter()
        response = self.backend.respond(route, request)
        if isinstance(response, Response):
            return self._finish(route, response, began)
        return self._finish_later(route, response, began)

    async def _finish_later(self, route: Route, waiting: Awaitable[Response], began: float) -> Response:
        return self._finish(route, await waiting, began)

    def _finish(self, route: Route, response: Response, began: float) -> Response:
        self.backend.measured(route, response, time.perf_counter() - began)
        if NOSNIFF in response.headers:
            return response
        return response._replace(headers=(*response.headers, NOSNIFF))

    def _screen(self, request: Request) -> None:
        """Check target, Host and Origin. Raises BadRequest, MisdirectedRequest, ForeignOrigin."""
        path, server = request.path, request.server
        if not path.startswith("/") or path.startswith("//"):
            raise BadRequest("the request target must be a path that begins with one /")
        host, origins = None, []
        for name, value in request.headers:
            if name == b"host":
                host = value if host is None else b""
            elif name == b"origin":
                origins.append(value)
        local, trusted = server[0] if server else None, self.settings.trusted_proxies
        scheme = forwarded_scheme(request.headers, request.peer, trusted) if trusted else None
        addresses = self.addresses
        addresses.check_host((host or b"").decode("latin-1"), scheme, local)
        for origin in origins:
            addresses.check_origin(origin.decode("latin-1"), local)


def most_bytes(route: Route | None, settings: Settings) -> int:
    """How many bytes the body of a request at this endpoint may have."""
    limits = settings.limits
    return limits.instance_body_bytes if route is not None and route.endpoint.large else limits.body_bytes


def _check_size(length: int, route: Route | None, settings: Settings) -> None:
    most = most_bytes(route, settings)
    if length > most:
        raise BodyTooLarge(f"the body is larger than {most} bytes")
