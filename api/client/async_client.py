"""The async half of the Python client, for trio and asyncio; `api.client.client` says how both are used."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import httpcore

from hatchway.api.client import wire
from hatchway.api.client.base import HUNG_UP, ClientBase, Driven, instance_path, log_ask, longer, session_path
from hatchway.api.client.flows import LEFT_WITHIN, Ask, Flow, Pause, Reply, Work
from hatchway.engine.base import http_calls
from hatchway.engine.base.errors import Refusal

T = TypeVar("T")
Pieces = AbstractAsyncContextManager[AsyncGenerator[bytes, None]]


class AsyncClient(ClientBase):
    """One engine, from trio or asyncio. An async context manager; the calls are those of `Client`."""

    async def __aenter__(self) -> AsyncClient:
        if self.flows.url.startswith("ssh://"):
            await anyio.to_thread.run_sync(self._reach)
        self._http = httpcore.AsyncConnectionPool(**self._connections())
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            if self._leaves:
                with anyio.move_on_after(LEFT_WITHIN, shield=True):
                    await self.run(self.flows.leave())
        finally:
            self._is_open = False
            await self._http.aclose()
            self._left.close()

    async def sign_in(self, lifetime: str | None = None) -> wire.SignedIn:
        """Sign in by the key; `lifetime` such as `30m` or `2h` (section 4.2)."""
        return await self.run(self.flows.sign_in(lifetime))

    async def pair(self, code: str, accepted: Callable[[wire.Accepted], None]) -> wire.SignedIn:
        """Sign in by a pairing code; `accepted` is told when the operator is asked (section 4.4)."""
        reply, lines = await self.run(self.flows.pair(code)), wire.LineReader()
        async with self._reading(reply.response) as pieces:
            async for piece in pieces:
                for line in lines.feed(piece):
                    told = self.flows.pair_line(line, reply)
                    if isinstance(told, wire.SignedIn):
                        return told
                    accepted(told)
        raise wire.NotAnEngine(HUNG_UP)

    async def renew(self) -> wire.SignedIn:
        """The same session with a new token."""
        return await self.run(self.flows.renew())

    async def inspect(self) -> wire.Inspection:
        """Whether the session is valid, whose it is, what it may do."""
        return await self.run(self.flows.inspect())

    async def logout(self) -> None:
        """End the session."""
        await self.run(self.flows.logout())

    async def sessions(self) -> list[dict[str, Any]]:
        """The live sessions of this identity; all of them with MASTER."""
        return await self.run(self.flows.sessions())

    async def revoke(self, session: str) -> None:
        """End a session by its id."""
        await self.delete(session_path(session))

    async def start_instance(self, **fields: Any) -> wire.Started:
        """Start a container instance. Fields: `image`; `identity`, its name; `command`, `env` and `volume`, lists of
        strings; `cpu`, `memory`, `gpu`, `fakeroot`; for Slurm `partition`, `account`, `time_limit` (section 2.6)."""
        return await self.run(self.flows.start_instance(fields))

    async def instances(self) -> list[dict[str, Any]]:
        """The instances of the engine, and of the others of its fleet."""
        return await self.run(self.flows.instances())

    async def instance(self, identity: str) -> dict[str, Any]:
        """One instance: what was asked for, its state, and how it ended."""
        return wire.as_type(await self.get(instance_path(identity)), dict[str, Any])

    async def stop_instance(self, identity: str) -> Any:
        """Stop an instance, and wait until it has ended."""
        return await self.delete(instance_path(identity))

    def instance_log(self, identity: str, stream: str = "out", *, follow: bool = False) -> Pieces:
        """The log of an instance: `async with` it, then `async for` its pieces as they come."""
        return self.stream(log_ask(identity, stream, follow))

    async def get(self, path: str, **query: str) -> Any:
        """The JSON value at `path`."""
        return await self.run(self.flows.json(Ask("GET", path, query)))

    async def delete(self, path: str) -> Any:
        """What a DELETE at `path` answers."""
        return await self.run(self.flows.json(Ask("DELETE", path)))

    @asynccontextmanager
    async def stream(self, ask: Ask) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        """The answer to a call with the token, in pieces as they come."""
        reply = await self.run(self.flows.call(ask._replace(stream=True)))
        async with self._reading(reply.response) as pieces:
            yield pieces

    async def run(self, flow: Flow[T]) -> T:
        """Drive a flow of `api.client.flows` to its result."""
        driven = Driven(flow)
        while driven.step is not None:
            if isinstance(driven.step, Pause):
                await anyio.sleep(driven.step.seconds)
                driven.go_on(None)
            elif isinstance(driven.step, Work):
                try:
                    done = await anyio.to_thread.run_sync(driven.step.do, abandon_on_cancel=True)
                except (wire.ClientFault, Refusal) as fault:
                    driven.fail(fault)
                else:
                    driven.go_on(done)
            else:
                driven.go_on(await self._send(driven.step))
        return driven.result

    async def _send(self, ask: Ask) -> Reply | wire.Unreachable:
        try:
            request = self._request(ask)
            if self._socket is None and self._own.is_in_question(self.flows.url):
                await anyio.to_thread.run_sync(self._check_own)
            response = await self._http.handle_async_request(request)
            if ask.stream and response.status == 200:
                return Reply(200, http_calls.fields(response.headers), b"", response)
            body = bytearray()
            async with self._reading(response) as pieces:
                async for piece in pieces:
                    longer(body, piece)
            return Reply(response.status, http_calls.fields(response.headers), bytes(body))
        except http_calls.FAULTS as fault:
            return self._failed(fault)
        except wire.Unreachable as fault:
            return fault

    async def _pieces(self, raw: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        try:
            async for piece in raw:
                yield piece
        except http_calls.FAULTS as fault:
            raise self._failed(fault, begun=True) from None

    @asynccontextmanager
    async def _reading(self, response: httpcore.Response) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        """The pieces of a response, which is closed at the end, however it comes."""
        raw = response.aiter_stream()
        try:
            async with aclosing(self._pieces(raw)) as pieces:
                yield pieces
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()
                # httpcore nests generators: those that were not read to their end are, else trio warns of them.
                with suppress(*http_calls.FAULTS):
                    async for _ in raw:
                        pass
