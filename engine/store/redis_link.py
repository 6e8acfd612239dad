"""Connections to the fleet's store, by coredis: every call has a time limit and fails as StoreUnavailable."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import Any, TypeVar

import structlog
import trio

from hatchway.engine.base.errors import EngineUnavailable, StoreUnavailable
from hatchway.engine.settings.redis_address import RedisAddress
from hatchway.engine.store.scripts import Script

log = structlog.get_logger(__name__)

PATIENCE = 1.0
"""Seconds that one call may take; coredis itself waits for ever for a server that hangs."""

RETRY_AFTER = 2
"""Seconds after which a client may ask again."""

CONNECTIONS = 64
"""To one server at most."""

RECONNECT_AFTER = 3.0
"""Seconds without one answer, after which all connections are made anew."""

REPLICA_MS = 800
"""Milliseconds in which a replica must have taken a change, where there is a Sentinel."""

AWAY = "the fleet's store can't be reached; try again"

UNCONFIRMED = "no replica of its primary confirms a change in time: with Sentinel one must follow it"

T = TypeVar("T")


class RedisLink:
    """One store's address and the connections to it. `run` keeps them; calls fail while they are gone."""

    def __init__(self, address: RedisAddress) -> None:
        try:
            import coredis
        except ImportError:
            raise EngineUnavailable(
                "a store shared by several engines needs the extra `fleet`: pip install 'hatchway[fleet]'"
            ) from None
        self._coredis: Any = coredis
        self.absent = coredis.PureToken.NX
        self.address = address
        self.replicated = bool(address.sentinels)
        """Whether every change waits for a replica."""
        self._client: Any = None
        self._failing_since = inf
        """Elapsed seconds since when every call has failed; infinity while calls succeed."""
        self._given_up = False
        self.why = "not connected yet"
        """The last failure, in words for the log and for commands on this host."""
        self._for_anybody = True
        """Whether these words don't say where the store is."""
        self._told_lost = False

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Any]:
        never = self._coredis.retry.NoRetryPolicy()
        more: dict[str, Any] = {"connect_timeout": PATIENCE}
        if self.address.tls is not None:
            more["ssl_context"] = self.address.tls.context()
        if not self.address.sentinels:
            client = self._coredis.Redis.from_url(
                self.address.url, retry_policy=never, decode_components=True, max_connections=CONNECTIONS, **more
            )
            async with client:
                yield client
            return
        location = self._coredis.connection.TCPLocation
        sentinel = self._coredis.Sentinel(
            [location(host, port) for host, port in self.address.sentinels],
            sentinel_kwargs=dict(more),
            retry_policy=never,
            username=self.address.username,
            password=self.address.password,
            db=self.address.database,
            **more,
        )
        async with sentinel, sentinel.primary_for(self.address.service) as client:
            yield client

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Stay connected, for ever. `task_status` is started when the first attempt has succeeded or failed."""
        pause, told = 0.05, False
        while True:
            try:
                async with self._open() as client:
                    self._client, pause = client, 0.05
                    if not told:
                        told = True
                        task_status.started()
                    await self._wait_broken()
            except Exception as error:  # whatever broke the pool, a new one is made
                self._lost(error)
            finally:
                self._client = None
            if not told:
                told = True
                task_status.started()
            if not self._told_lost:  # a store may be away for hours
                log.warning("store_lost", why=self.why)
            self._told_lost = True
            await trio.sleep(pause)
            pause = min(pause * 2, 1.0)

    async def _wait_broken(self) -> None:
        """Return when every call has failed for `RECONNECT_AFTER` seconds. The pool may still believe in its
        connections then."""
        self._failing_since = inf
        while trio.current_time() - self._failing_since < RECONNECT_AFTER:  # noqa: ASYNC110 - time itself is what is waited for
            await trio.sleep(0.5)

    def give_up(self, why: str) -> StoreUnavailable:
        """Have every call fail from now on. Returns the refusal to raise."""
        if not self._given_up:
            log.error("store_given_up", why=why)
        self._given_up, self.why, self._for_anybody = True, why, True
        return self.unavailable()

    async def call(self, ask: Callable[[Any], Awaitable[T]], seconds: float = PATIENCE) -> T:
        """The server's answer to `ask`, within `seconds`. Raises StoreUnavailable: then nobody knows whether it was
        done."""
        client = None if self._given_up else self._client
        if client is None:
            raise self.unavailable()
        try:
            with trio.fail_after(seconds):
                answer = await ask(client)
            self._failing_since, self._told_lost = inf, False
        except (Exception, BaseExceptionGroup) as error:
            await _pass_on_cancelled(error)
            self._failing_since = inf if self._is_answer(error) else min(self._failing_since, trio.current_time())
            raise self._lost(error) from error
        return answer

    def was_refused(self, lost: StoreUnavailable) -> bool:
        """Whether the server itself refused the call that failed so: then nothing was done."""
        return lost.__cause__ is not None and self._is_answer(lost.__cause__)

    def _is_answer(self, error: BaseException) -> bool:
        """Whether the error is a server's own answer, as of one that is full: then its connections are sound.

        The answer of a server that became a replica does not count: its connections are given up, since the name may
        lead to another server by now.
        """
        known = self._coredis.exceptions
        return isinstance(error, known.ResponseError) and not isinstance(error, known.ReadOnlyError)

    def _lost(self, error: BaseException) -> StoreUnavailable:
        if not self._given_up:
            self.why, self._for_anybody = self._words(_first(error))
        return self.unavailable()

    def _words(self, error: BaseException) -> tuple[str, bool]:
        """What went wrong, and whether anybody may read it: what can't be reached is named by its address, a cluster's
        node names another by its own, and who may not do something there is named."""
        known = self._coredis.exceptions
        if isinstance(error, known.ReplicationError):
            return UNCONFIRMED, True
        if isinstance(error, trio.TooSlowError | TimeoutError):
            return "no answer in time", True
        if isinstance(error, known.ResponseError):
            return _line(str(error)), not isinstance(error, known.AskError | known.AuthorizationError)
        return _line(_with_its_root(error)), False

    def unavailable(self) -> StoreUnavailable:
        """The refusal of a call that fails now."""
        why = f"the fleet's store can't be reached ({self.why}); try again"
        return StoreUnavailable(why if self._for_anybody else AWAY, why=why, retry_after=RETRY_AFTER)

    async def script(self, script: Script, keys: Sequence[str], args: Sequence[Any], *, durable: bool = False) -> Any:
        """Run a script. A `durable` one is confirmed by a replica too, where there is a Sentinel."""

        async def ask(client: Any) -> Any:
            if not (durable and self.replicated):
                return await self._evaluate(client, script, keys, args)
            with client.ensure_replication(1, REPLICA_MS):
                return await self._evaluate(client, script, keys, args)

        return await self.call(ask)

    async def _evaluate(self, client: Any, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        try:
            return await client.evalsha(script.digest, keys, args)
        except self._coredis.exceptions.NoScriptError:
            return await client.eval(script.text, keys, args)

    @asynccontextmanager
    async def one_connection(self) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
        """A function that runs commands over one connection, for the block. While the connection lasts it leads to one
        server, so that no command sees an older state than the command before it.

        Raises StoreUnavailable where there is no connection, and the function where it is lost. What else the block
        raises is not the store's fault, and goes through as it is.
        """
        client = None if self._given_up else self._client
        if client is None:
            raise self.unavailable()
        async with self._told_as_lost():
            with trio.fail_after(2 * PATIENCE):
                connection = await client.connection_pool.get_connection()

        async def ask(*command: Any, seconds: float = PATIENCE) -> Any:
            async with self._told_as_lost():
                with trio.fail_after(seconds):
                    return await connection.create_request(*command, disconnect_on_cancellation=True)

        try:
            yield ask
        finally:
            # The order matters: coredis counts a connection that is returned broken as in use for ever.
            client.connection_pool.release(connection)
            connection.invalidate()

    @asynccontextmanager
    async def _told_as_lost(self) -> AsyncIterator[None]:
        """Raises StoreUnavailable for whatever the block raises, which does nothing but ask the store."""
        try:
            yield
        except (Exception, BaseExceptionGroup) as error:
            await _pass_on_cancelled(error)
            raise self._lost(error) from error


async def _pass_on_cancelled(error: BaseException) -> None:
    """Raises trio.Cancelled, or the error where it holds one, if this task was cancelled: coredis turns a cancellation
    during a connect into an error of its own."""
    if isinstance(error, BaseExceptionGroup) and error.subgroup((trio.Cancelled, KeyboardInterrupt)) is not None:
        raise error
    await trio.lowlevel.checkpoint_if_cancelled()


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _with_its_root(error: BaseException) -> str:
    root = error
    while (before := root.__cause__ or root.__context__) is not None:
        root = before
    said = str(error) or type(error).__name__
    if root is not error and isinstance(root, OSError):  # a certificate, a refused connection
        said = f"{said}: {root}"
    return said


def _line(words: str) -> str:
    return words.splitlines()[0][:200] if words else ""
