"""The Python client: `Client` for plain code, `AsyncClient` for trio and asyncio. The command is built on it.

    with Client("http://127.0.0.1:7420", key="rsa.pem") as engine:
        engine.sign_in(lifetime="2h")
        print(engine.start_instance(image="demo.sif", command=["sleep", "60"]).ip)

With `key="agent:"` the SSH agent signs, and no private key is read. A token is renewed past half its lifetime when it
is used, replaced once if the engine refuses it, and sent to no other address. No redirect is followed; proxies and
`.netrc` of the environment are not looked at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, TypeVar

import httpcore

from hatchway.api.client import wire
from hatchway.api.client.base import HUNG_UP, ClientBase, Driven, instance_path, log_ask, longer, session_path
from hatchway.api.client.flows import Ask, Flow, Pause, Reply, Work
from hatchway.engine.base import http_calls
from hatchway.engine.base.errors import Refusal

T = TypeVar("T")


class Client(ClientBase):
    """One engine, from plain code. A context manager."""

    def __enter__(self) -> Client:
        self._reach()
        self._http = httpcore.ConnectionPool(**self._connections())
        self._is_open = True
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._leaves:
                self.run(self.flows.leave())
        finally:
            self._is_open = False
            self._http.close()
            self._left.close()

    def sign_in(self, lifetime: str | None = None) -> wire.SignedIn:
        """Sign in by the key; `lifetime` such as `30m` or `2h` (section 4.2)."""
        return self.run(self.flows.sign_in(lifetime))

    def pair(self, code: str, accepted: Callable[[wire.Accepted], None]) -> wire.SignedIn:
        """Sign in by a pairing code; `accepted` is told when the operator is asked (section 4.4)."""
        reply, lines = self.run(self.flows.pair(code)), wire.LineReader()
        with closing(reply.response):
            for piece in self._pieces(reply):
                for line in lines.feed(piece):
                    told = self.flows.pair_line(line, reply)
                    if isinstance(told, wire.SignedIn):
                        return told
                    accepted(told)
        raise wire.NotAnEngine(HUNG_UP)

    def renew(self) -> wire.SignedIn:
        """The same session with a new token."""
        return self.run(self.flows.renew())

    def inspect(self) -> wire.Inspection:
        """Whether the session is valid, whose it is, what it may do."""
        return self.run(self.flows.inspect())

    def logout(self) -> None:
        """End the session."""
        self.run(self.flows.logout())

    def sessions(self) -> list[dict[str, Any]]:
        """The live sessions of this identity; all of them with MASTER."""
        return self.run(self.flows.sessions())

    def revoke(self, session: str) -> None:
        """End a session by its id."""
        self.delete(session_path(session))

    def start_instance(self, **fields: Any) -> wire.Started:
        """Start a container instance. Fields: `image`; `identity`, its name; `command`, `env` and `volume`, lists of
        strings; `cpu`, `memory`, `gpu`, `fakeroot`; for Slurm `partition`, `account`, `time_limit` (section 2.6)."""
        return self.run(self.flows.start_instance(fields))

    def instances(self) -> list[dict[str, Any]]:
        """The instances of the engine, and of the others of its fleet."""
        return self.run(self.flows.instances())

    def instance(self, identity: str) -> dict[str, Any]:
        """One instance: what was asked for, its state, and how it ended."""
        return wire.as_type(self.get(instance_path(identity)), dict[str, Any])

    def stop_instance(self, identity: str) -> Any:
        """Stop an instance, and wait until it has ended."""
        return self.delete(instance_path(identity))

    def instance_log(self, identity: str, stream: str = "out", *, follow: bool = False) -> Iterator[bytes]:
        """The log of an instance, in pieces as they come."""
        with self.stream(log_ask(identity, stream, follow)) as pieces:
            yield from pieces

    def get(self, path: str, **query: str) -> Any:
        """The JSON value at `path`."""
        return self.run(self.flows.json(Ask("GET", path, query)))

    def delete(self, path: str) -> Any:
        """What a DELETE at `path` answers."""
        return self.run(self.flows.json(Ask("DELETE", path)))

    @contextmanager
    def stream(self, ask: Ask) -> Iterator[Iterator[bytes]]:
        """The answer to a call with the token, in pieces as they come."""
        reply = self.run(self.flows.call(ask._replace(stream=True)))
        with closing(reply.response):
            yield self._pieces(reply)

    def run(self, flow: Flow[T]) -> T:
        """Drive a flow of `api.client.flows` to its result."""
        driven = Driven(flow)
        while driven.step is not None:
            if isinstance(driven.step, Pause):
                time.sleep(driven.step.seconds)
                driven.go_on(None)
            elif isinstance(driven.step, Work):
                try:
                    done = driven.step.do()
                except (wire.ClientFault, Refusal) as fault:
                    driven.fail(fault)
                else:
                    driven.go_on(done)
            else:
                driven.go_on(self._send(driven.step))
        return driven.result

    def _send(self, ask: Ask) -> Reply | wire.Unreachable:
        try:
            request = self._request(ask)
            self._check_own()
            response = self._http.handle_request(request)
            if ask.stream and response.status == 200:
                return Reply(200, http_calls.fields(response.headers), b"", response)
            with closing(response):
                body = bytearray()
                for chunk in response.iter_stream():
                    longer(body, chunk)
            return Reply(response.status, http_calls.fields(response.headers), bytes(body))
        except http_calls.FAULTS as fault:
            return self._failed(fault)
        except wire.Unreachable as fault:
            return fault

    def _pieces(self, reply: Reply) -> Iterator[bytes]:
        try:
            yield from reply.response.iter_stream()
        except http_calls.FAULTS as fault:
            raise self._failed(fault, begun=True) from None
