"""The gateway: every request passes here, whichever server read it, on its way to an endpoint of the one table.

A server, or the adapter of a framework, makes a `Request` and sends the `Response`. In between the gateway screens the
request (target, Host, Origin, size), finds its endpoint, has the backend respond, and measures. The backend is the
engine of this process, or a worker's client of it. It is the backend that authenticates, before it calls the endpoint:
an engine alone knows sessions, and a worker that gives a response again must not ask for one.

Which Host and Origin headers name this engine is checked before routing, against DNS rebinding and foreign pages:
`Addresses`, below the gateway.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable
from functools import lru_cache

from hatchway.api.http.backend import Backend
from hatchway.api.http.endpoint import Endpoint, Route, Routes
from hatchway.api.http.problems import BadRequest, BodyTooLarge, ForeignOrigin, MisdirectedRequest, problem_response
from hatchway.api.http.proxies import forwarded_scheme
from hatchway.api.http.request import NOSNIFF, Request, Response
from hatchway.engine.base.errors import Refusal
from hatchway.engine.base.loopback import (
    LOOPBACKS,
    is_localhost,
    is_loopback_address,
    is_loopback_name,
    loopbacks_here,
)
from hatchway.engine.settings.settings import Settings

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]{2,45}\]|[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)(?::(?P<port>[0-9]{1,5}))?")
_ORIGIN = re.compile(r"(?P<scheme>https?)://(?P<host>[^/?#@]+)")
_PORTS = {"http": "80", "https": "443"}
_WILDCARDS = {"127.0.0.1": "0.0.0.0", "::1": "::"}  # noqa: S104 - compared with, not bound


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


class Addresses:
    """The host:port pairs of this engine: what it listens on, and what the setting `addresses` has.

    A loopback name counts only on a connection that reached a loopback address. People who dial such a name expect
    their own host, or the end of their own tunnel, so no other connection may get a challenge for it. A loopback name
    in the setting counts always.
    """

    lacking: str | None
    """The loopback address of this host that the engine does not listen on, so that `localhost` may be another's."""

    def __init__(
        self,
        bound: tuple[tuple[str, int], ...],
        configured: tuple[str, ...],
        loopbacks: tuple[str, ...] = (),
        added: tuple[str, ...] = (),
    ) -> None:
        """`bound` is where the engine listens, `loopbacks` which loopback addresses this host has: one of them that is
        not bound is another's. `added` holds for a while: a loopback one is the near end of a tunnel, and counts only
        on a connection that a tunnel may have brought, to a loopback address or the Unix socket."""
        self._ports = frozenset(str(port) for _, port in bound if port)
        literals = {host for host, _ in bound if host not in _WILDCARDS.values()}
        reached = {one for one in LOOPBACKS for host, _ in bound if host in (one, _WILDCARDS[one])}
        self.lacking = next((one for one in loopbacks if reached and one not in reached), None)
        # A loopback address that this host lacks can be dialled at the other end of a tunnel, and means this engine.
        ours = {one for one in LOOPBACKS if reached and one != self.lacking}
        names = ({"localhost"} if len(ours) == len(LOOPBACKS) else set()) | {_bracketed(one) for one in ours}
        tunnels = {one for one in added if is_loopback_name(one.rpartition(":")[0])}
        self._local = frozenset(f"{name}:{port}" for name in names for port in self._ports) | tunnels
        self._known = frozenset(
            {f"{_bracketed(host)}:{port}" for host in literals if not is_loopback_address(host) for port in self._ports}
            | {address.lower() for address in configured}
            | (set(added) - tunnels)
        )

    def check_host(self, host: str | None, scheme: str | None, local: str | None) -> None:
        """Raises MisdirectedRequest for a foreign Host. `local` is the address of ours that the connection reached,
        None on a Unix socket; `scheme` the one that a proxy of ours says was dialled, None where nobody says."""
        if host in self._known or (host in self._local and _is_local(local)):
            return
        found = _HOST.fullmatch((host or "").lower())
        if found is None:
            raise BadRequest("send one Host header, as host:port")
        name, port = found["name"], found["port"]
        if not any(self._is_ours(name, one, local) for one in _ports(port, scheme)):
            raise self._misdirected(name, _ports(port, scheme), local)

    def check_origin(self, origin: str, local: str | None) -> None:
        """Raises ForeignOrigin for a page that is not ours."""
        found = _ORIGIN.fullmatch(origin.lower())
        host = _HOST.fullmatch(found["host"]) if found else None
        if not found or not host:
            raise ForeignOrigin("this page is of another origin: open the console at the engine's own address")
        port = host["port"] or _PORTS[found["scheme"]]
        if not self._is_ours(host["name"], port, local):
            raise ForeignOrigin(
                f"this page is of another origin, {host['name']}:{port}: open the console at the engine's own address,"
                " or add the one that people dial to the setting `addresses`"
            )

    def _is_ours(self, name: str, port: str, local: str | None) -> bool:
        if f"{name}:{port}" in self._known:
            return True
        if local is None and is_localhost(name) and port == "80":
            return True  # `http://localhost/`, as clients write that dial the Unix socket by its path
        # A literal address is not subject to DNS rebinding: the connection itself has reached it.
        if port in self._ports and local is not None and name == _bracketed(local):
            return True
        return _is_local(local) and f"{'localhost' if is_localhost(name) else name}:{port}" in self._local

    def _misdirected(self, name: str, ports: tuple[str, ...], local: str | None) -> Refusal:
        if len(ports) > 1:  # no header says which of the two was dialled
            shown, add = name, f"what people dial, {name}:443 (https) or {name}:80 (http),"
        else:
            shown, add = f"{name}:{ports[0]}", "it"
        words = f"{shown} is not an address of this engine"
        if is_loopback_name(name) and self._ports.intersection(ports):
            words += self._why_not_local(local)
        words += f": add {add} to the setting `addresses`"
        if is_loopback_name(name):
            ours = min(self._ports, default="7420")
            own = f"{ours}:127.0.0.1:{ours}" if local is not None else f"{ours}:.../http.sock"
            words += f", or reach the engine's own port by `ssh -L {own}`"
            if len(ports) == 1 and not self._ports.intersection(ports):
                words += (
                    f", or have the engine answer at the tunnel that you have for a while, on the engine's host:"
                    f" `hatchway engine address add {shown} --for 8h` (`list` shows them, `remove` ends one)"
                )
        return MisdirectedRequest(words)

    def _why_not_local(self, local: str | None) -> str:
        if not _is_local(local):
            return f" for a connection that reached {local}, which is no loopback address"
        if self.lacking is not None:
            return f", since another process may have {_bracketed(self.lacking)} at that port"
        return ""


def _ports(port: str | None, scheme: str | None) -> tuple[str, ...]:
    """The ports that a Host may mean. Without one it is that of the scheme that people dialled, which ends at a proxy
    as often as here."""
    if port is not None:
        return (port,)
    return ("443", "80") if scheme is None else (_PORTS[scheme],)


@lru_cache(maxsize=64)
def _is_local(local: str | None) -> bool:
    return local is None or is_loopback_address(local)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
