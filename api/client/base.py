"""What the sync and the async client share: their construction, their requests, and the meaning of errors."""

from __future__ import annotations

import json
import platform
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import httpcore

from hatchway.api.client.flows import INSTANCES, Ask, Flow, Flows, Pause, StoredToken, Work
from hatchway.api.client.own_engine import OwnEngine
from hatchway.api.client.signers import Signer, read_signers
from hatchway.api.client.unix_paths import short_path
from hatchway.api.client.wire import CertificateRefused, ClientFault, NotAnEngine, Unreachable
from hatchway.engine.base import http_calls
from hatchway.engine.base.errors import Refusal
from hatchway.engine.settings import kinds

if TYPE_CHECKING:
    from hatchway.engine.keys.keys import PrivateKey

T = TypeVar("T")

LARGEST_ANSWER = 16 * 1024 * 1024
"""Bytes of an answer that is read whole."""

HUNG_UP = "the engine hung up before the operator's answer"

AGENT = f"hatchway ({platform.system()})"
"""User-Agent: what a session of ours is called where nobody gives it a label."""

_ADDRESS = kinds.url()
"""What an engine's address is, as for the command."""

CONNECT_WAIT = 5.0
"""Seconds in which a connection must be made."""

MOST_CONNECTIONS, MOST_IDLE, IDLE_FOR = 100, 20, 5.0
"""Connections at once, those of them that are kept while nothing is asked, and for how many seconds."""


def _forget(stored: StoredToken | None) -> None:
    """The default of `on_token`: tokens are kept in memory only."""


class ClientBase:
    """The part of a client that does no input or output."""

    def __init__(
        self,
        url: str,
        *,
        key: PrivateKey | Path | str | bytes | None = None,
        passphrase: bytes | None = None,
        sign_with: Callable[[], Iterable[Signer]] | None = None,
        stored: StoredToken | None = None,
        lifetime: str | None = None,
        label: str | None = None,
        on_token: Callable[[StoredToken | None], None] = _forget,
        tls: ssl.SSLContext | None = None,
        home: Path | None = None,
        socket: Path | None = None,
        ssh: str = "ssh",
        remote_command: str | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """A client of the engine at `url`. `key` is a PEM file or its bytes, or `agent:` for the RSA keys of the SSH
        agent, `agent:NAME` for the one of that fingerprint or comment; `sign_with` may ask for a passphrase.

        `label` is what people tell its sessions by. `stored` is used if it came from `url`; `on_token` gets every new
        token, and None after logout: without it a session that a call has begun by itself ends with the client.

        `home` is the engine's folder on this host, where there is one (default as for the command): while its engine is
        down, or listens elsewhere, nothing is sent to a port of loopback, and `Unreachable` or `ClientFault` raised.
        Where `socket` is given, the engine is reached by that Unix socket of its folder, and `url` only names it. With
        `ssh://[USER@]HOST[:PORT]` it is the host's, by the command `ssh` and, there, `remote_command`.

        Raises ClientFault where `url` is no engine's address.
        """
        try:
            url = _checked(url)
        except ValueError as error:
            raise ClientFault(f"{url!r} is no engine's address: {error}") from None
        reader = sign_with or (None if key is None else lambda: read_signers(key, passphrase))
        self.flows = Flows(url, reader, stored, lifetime, on_token, wall, label)
        self._leaves = on_token is _forget
        self._tls = tls
        self._own = OwnEngine(home)
        self._socket = socket
        self._ssh, self._remote_command = ssh, remote_command
        self._left = ExitStack()
        """What is closed when the client is."""
        self._is_open = False

    def _reach(self) -> None:
        """Behind SSH: be connected to the host. Raises SshFault, EngineUnavailable."""
        if not self.flows.url.startswith("ssh://") or self._socket is not None:
            return
        from hatchway.api.client.ssh.shared import engine_behind, target_of  # for those who dial so

        target = target_of(self.flows.url, self._ssh)
        behind = self._left.enter_context(engine_behind(target, self._remote_command))
        self._socket = behind.socket
        self.flows.dial_as(behind.dialled)

    def _socket_path(self) -> str | None:
        return None if self._socket is None else self._left.enter_context(short_path(self._socket))

    def _check_own(self) -> None:
        """Raises ClientFault where a port of loopback may belong to another program than this host's engine. A Unix
        socket in the engine's folder can't."""
        if self._socket is None:
            self._own.check(self.flows.url)

    def _connections(self) -> dict[str, Any]:
        """The options of httpcore's pool of connections. Over a Unix socket there is no TLS."""
        secure = self.flows.url.startswith("https:") and self._socket is None
        return {
            "uds": self._socket_path(),
            "ssl_context": (self._tls or _known_authorities()) if secure else None,
            "max_connections": MOST_CONNECTIONS,
            "max_keepalive_connections": MOST_IDLE,
            "keepalive_expiry": IDLE_FOR,
        }

    def _request(self, ask: Ask) -> httpcore.Request:
        if not self._is_open:
            raise RuntimeError("a client is used within its `with` block: with Client(...) as engine")
        dialled = self.flows.dialled
        base = urlsplit(self.flows.url if self._socket is None else f"http://{dialled}")
        body = b"" if ask.body is None else _json(ask.body)
        headers = {
            # The Host is spelled out even where its port is the scheme's own: the challenge names what was dialled.
            "Host": dialled,
            "Accept": "*/*",
            "Accept-Encoding": "identity",
            "Connection": "keep-alive",
            "User-Agent": AGENT,
            **({"Content-Length": str(len(body))} if body or ask.method == "POST" else {}),
            **({"Content-Type": "application/json"} if body else {}),
            **ask.headers,
        }
        path = f"{base.path.rstrip('/')}/{ask.path.lstrip('/')}"
        return httpcore.Request(
            ask.method,
            httpcore.URL(
                scheme=base.scheme,
                host=base.hostname or "",
                port=base.port,
                target=http_calls.target(path, urlencode(ask.query)),
            ),
            headers=list(headers.items()),
            content=body,
            extensions=http_calls.waits(ask.wait, connect=CONNECT_WAIT),
        )

    def _failed(self, fault: Exception, *, begun: bool = False) -> Unreachable:
        """The client's own fault for one of the connection; `begun` where the answer has begun."""
        unsent = isinstance(fault, (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.PoolTimeout))
        if (untrusted := _certificate_fault(fault)) is not None:
            return CertificateRefused(f"the certificate of {self.flows.url} is refused: {untrusted.verify_message}")
        words = "no engine answers at" if unsent else "the connection ended before the whole answer of"
        secure = self._socket is None and self.flows.url.startswith("http:") and not unsent and not begun
        hint = "; an engine with TLS is dialled by https://" if secure else ""
        return Unreachable(f"{words} {self.flows.url}: {fault or type(fault).__name__}{hint}", sent=not unsent)


def _checked(url: str) -> str:
    """The address, without a slash at its end. Unlike the command's it may have a path. Raises ValueError."""
    slash, path = url.partition("://")[2].partition("/")[1:]
    if set(path) & set("?#"):
        raise ValueError("an address without a query is wanted, such as http://127.0.0.1:7420")
    return f"{_ADDRESS.read(url.removesuffix(slash + path))}{slash}{path}".rstrip("/")


def _json(body: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(body), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _known_authorities() -> ssl.SSLContext:
    """Trust in the authorities that Mozilla trusts, whatever this host's own list says."""
    import certifi

    return ssl.create_default_context(cafile=certifi.where())


def _certificate_fault(fault: BaseException) -> ssl.SSLCertVerificationError | None:
    """The error of the certificate, where that is why a connection failed; else None. httpcore itself tells only that
    the connection failed."""
    while not isinstance(fault, ssl.SSLCertVerificationError):
        if (before := fault.__cause__ or fault.__context__) is None:
            return None
        fault = before
    return fault


class Driven(Generic[T]):
    """Drives a flow: `step` is what the client is to do next, None once there is a `result`."""

    step: Ask | Pause | Work | None
    result: T

    def __init__(self, flow: Flow[T]) -> None:
        self._flow = flow
        self.go_on(None)

    def go_on(self, answer: object) -> None:
        """The step was done; `answer` is what came of it. Raises what the flow does."""
        self._advance(lambda: self._flow.send(answer))

    def fail(self, fault: ClientFault | Refusal) -> None:
        """The step, a Work, raised this. Raises what the flow does: the same, where it knows no other way."""
        self._advance(lambda: self._flow.throw(fault))

    def _advance(self, resume: Callable[[], Ask | Pause | Work]) -> None:
        try:
            self.step = resume()
        except StopIteration as stop:
            self.step, self.result = None, stop.value


def longer(body: bytearray, chunk: bytes) -> None:
    """Add a chunk to a body that is read whole. Raises NotAnEngine past LARGEST_ANSWER."""
    if len(body) + len(chunk) > LARGEST_ANSWER:
        raise NotAnEngine("the answer is larger than any engine's")
    body += chunk


def session_path(session: str) -> str:
    """The path of one session."""
    return f"/api/auth/sessions/{quote(session, safe='')}/"


def instance_path(identity: str) -> str:
    """The path of one instance."""
    return f"{INSTANCES}{quote(identity, safe='')}/"


def log_ask(identity: str, stream: str, follow: bool) -> Ask:
    """The request for an instance's log. A followed log may be silent for any time."""
    query = {"stream": stream, "follow": "true" if follow else "false"}
    return Ask("GET", f"{instance_path(identity)}log/", query, wait=None if follow else 30.0, stream=True)
