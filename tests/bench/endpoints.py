"""Inspect and whole sign-ins over HTTP: ours, the yardstick and the peers, all running at once, loaded by turns."""

from __future__ import annotations

import http.client
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from hatchway.engine.keys.keys import PrivateKey
from tests.bench.load import Flow, Told, flows, request, wrk
from tests.bench.peers.install import Peers
from tests.bench.results import Plan, Results
from tests.bench.servers import Server, hatchway, serving, yardstick
from tests.support.fakes import key, signed
from tests.support.ports import free_port
from tests.support.processes import prepare

HELLO = "bare hello, stock Hypercorn-trio"
LANE, ASGI, FRESH = "Hatchway", "Hatchway, lane off", "Hatchway, a few sessions"
DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
CONNECTIONS = (1, 32, 256, 1024)


class Check(NamedTuple):
    """How one server is asked whether a token is good."""

    path: str
    token: str = ""
    form: str = ""


def ask(server: Server, method: str, path: str, body: Any = None, token: str = "", form: str = "") -> Any:
    """One request, its JSON answer."""
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    headers = {"Authorization": token} if token else {}
    if form:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    elif method == "POST":
        headers["Content-Type"] = "application/json"
    client.request(method, path, form or (json.dumps(body) if body is not None else None), headers)
    answer = client.getresponse()
    data = answer.read()
    client.close()
    if answer.status != 200:
        raise RuntimeError(f"{method} {path}: {answer.status} {data[:200]!r}")
    return json.loads(data)


def sign_in_by_key(server: Server) -> str:
    """A challenge signed; the token's header."""
    return f"Bearer {ask(server, 'POST', '/api/auth/verify/', solved(server))['token']}"


def solved(server: Server) -> dict[str, str]:
    """The body that answers a fresh challenge, by the key that may sign in."""
    return solved_by(server, key())


def solved_by(server: Server, private: PrivateKey) -> dict[str, str]:
    """The body that answers a fresh challenge, by that key."""
    return signed(ask(server, "GET", challenge(private))["nonce"], private, "RS256")


def challenge(private: PrivateKey) -> str:
    """The challenge of a key, as clients ask for it."""
    return f"/api/auth/challenge/?identity={quote(private.public.identity, safe='')}"


def key_flow(server: Server, answers: Iterator[dict[str, str]]) -> Flow | None:
    """Challenge and verify; the signature was made before, so that the client is never what is measured."""
    body = next(answers, None)
    return None if body is None else _key_flow(server.port, body)


def _key_flow(port: int, body: dict[str, str]) -> Flow:
    assert (yield request("GET", challenge(key()), port)).status == 200
    assert (yield request("POST", "/api/auth/verify/", port, body)).status == 200


def device_flow(server: Server, device: str, client: str) -> Flow:
    """RFC 8628: codes, the person's yes, the token. Nobody waits here: a real client polls every five seconds."""
    codes = json.loads((yield request("POST", device, server.port, form=client)).body)
    user_code = codes["user_code"]
    if "secret" in client:  # oidc-provider stores them without the dash
        approval = request("POST", f"/approve?user_code={user_code.replace('-', '')}", server.port, form="x=1")
    else:
        approval = request("POST", "/approve", server.port, form=f"user_code={user_code}")
    assert (yield approval).status == 200
    form = f"{client}&grant_type={DEVICE}&device_code={codes['device_code']}"
    assert (yield request("POST", "/token", server.port, form=form)).status == 200


def by_device(server: Server, device: str, client: str) -> str:
    """A whole device flow, asked by hand; the access token."""
    codes = ask(server, "POST", device, form=client)
    if "secret" in client:
        ask(server, "POST", f"/approve?user_code={codes['user_code'].replace('-', '')}", form="x=1")
    else:
        ask(server, "POST", "/approve", form=f"user_code={codes['user_code']}")
    form = f"{client}&grant_type={DEVICE}&device_code={codes['device_code']}"
    return str(ask(server, "POST", "/token", form=form)["access_token"])


class Field:
    """Every server of the run, and how each is asked."""

    def __init__(self, stack: ExitStack, peers: Peers) -> None:
        self._stack = stack
        self.servers: dict[str, Server] = {}
        self.checks: dict[str, Check] = {}
        self.flows: dict[str, Callable[[int], Callable[[], Flow | None]]] = {}
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.start(HELLO, yardstick)
        self.checks[HELLO] = Check("/")
        for name, lane in ((LANE, "true"), (ASGI, "false"), (FRESH, "true")):
            home = folder / name
            prepare(home)
            server = self.start(name, hatchway, HATCHWAY_HOME=str(home), HATCHWAY_LANE=lane)
            self._by_key(name, server)
        public = folder / "public.pem"
        public.write_bytes(key().public.key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        self._start_peers(peers, public)

    def start(self, name: str, arguments: Callable[[int], list[str]], **environ: str) -> Server:
        port = free_port()
        server = self.servers[name] = self._stack.enter_context(serving(arguments(port), port, **environ))
        return server

    def _by_key(self, name: str, server: Server) -> None:
        self.checks[name] = Check("/api/auth/inspect/", sign_in_by_key(server))

        def prepared(count: int) -> Callable[[], Flow | None]:
            answers = iter([solved(server) for _ in range(count)])
            return lambda: key_flow(server, answers)

        if name != FRESH:
            self.flows[name] = prepared

    def _start_peers(self, peers: Peers, public: Path) -> None:
        if peers.python is not None:
            for algorithm in ("HS256", "EdDSA"):
                name = f"FastAPI by hand, {algorithm}"
                self._by_key(name, self.start(name, partial(peers.fastapi, algorithm, public)))
            server = self.start("Authlib", peers.authlib)
            self._by_device("Authlib", server, "/device", "client_id=bench&scope=profile", "/introspect")
            self.start("jupyter_server", peers.jupyter)
            self.checks["jupyter_server"] = Check("/api/status", "token bench")
        if peers.node is not None:
            client = "client_id=bench&client_secret=secret&scope=openid"
            server = self.start("oidc-provider", peers.oidc)
            self._by_device("oidc-provider", server, "/device/auth", client, "/token/introspection")

    def _by_device(self, name: str, server: Server, device: str, client: str, introspection: str) -> None:
        token = by_device(server, device, client)
        self.checks[name] = Check(introspection, form=f"{client.rpartition('&')[0]}&token={token}")
        self.flows[name] = lambda count: partial(device_flow, server, device, client)

    def check(self, name: str, connections: int, seconds: float, path: str | None = None) -> Told:
        """Load one server with its check, or its token at another path."""
        check = self.checks[name]
        return wrk(self.servers[name], path or check.path, connections, seconds, check.token, check.form)

    def sign_ins(self, name: str, seconds: float, connections: int = 32) -> Told:
        """Load one server with whole sign-ins."""
        return flows(self.servers[name], self.flows[name](int(2500 * min(seconds, 3))), connections, seconds)


def measure(results: Results, plan: Plan) -> None:
    """All of it; the peers where they are installed."""
    peers = Peers.found(plan.cache)
    with ExitStack() as stack:
        field = Field(stack, peers)
        for name in field.checks:
            field.check(name, 32, 1)  # warmed up
        told: dict[str, list[Told]] = {}
        for _ in range(plan.rounds):
            for name in [name for name in field.checks if name != FRESH]:
                told.setdefault(f"inspect, {name}", []).append(field.check(name, 32, plan.seconds))
            for name in field.flows:
                told.setdefault(f"sign-in, {name}", []).append(field.sign_ins(name, plan.seconds))
            listed = field.check(FRESH, 32, plan.seconds, "/api/auth/sessions/")
            told.setdefault("sessions list through Quart", []).append(listed)
            for name in (HELLO, LANE):
                for connections in CONNECTIONS:
                    crowd = field.check(name, connections, plan.seconds)
                    told.setdefault(f"inspect at {connections}, {name}", []).append(crowd)
    for name, all_told in told.items():
        _add(results, name, all_told)
    _ratios(results, told)


def _add(results: Results, name: str, told: list[Told]) -> None:
    results.add(name, "/s", [one.rate for one in told])
    results.add(f"{name}, a second of server CPU", "/s", [one.per_cpu for one in told])
    results.add(f"{name}, p50", "ms", [one.p50 * 1e3 for one in told])
    results.add(f"{name}, p99", "ms", [one.p99 * 1e3 for one in told])
    results.add(f"{name}, errors", "", [one.errors for one in told])


def _ratios(results: Results, told: dict[str, list[Told]]) -> None:
    """By CPU: on a machine that others use too, a second of the server's own is what stays a second."""
    spent = ", a second of server CPU"
    for name in told:
        kind, _, whose = name.partition(", ")
        if kind == "inspect" and whose not in (LANE, HELLO):
            results.ratio(f"inspect, Hatchway / {whose}", f"inspect, {LANE}{spent}", f"{name}{spent}")
        elif kind == "sign-in" and whose != LANE:
            results.ratio(f"sign-in, Hatchway / {whose}", f"sign-in, {LANE}{spent}", f"{name}{spent}")
    hello = f"inspect, {HELLO}{spent}"
    results.ratio(f"inspect, Hatchway / {HELLO}", f"inspect, {LANE}{spent}", hello)
    results.ratio(f"inspect, {ASGI} / {HELLO}", f"inspect, {ASGI}{spent}", hello)
    results.ratio(f"sessions list through Quart / {HELLO}", f"sessions list through Quart{spent}", hello)
    for connections in CONNECTIONS:
        crowd = f"inspect at {connections}, {LANE}"
        results.ratio(f"{crowd}, p99 / p50", f"{crowd}, p99", f"{crowd}, p50")
