"""A whole engine to test against: in memory, on loopback, with a clock that stands still until a test moves it.

It serves the real API and the console by the real server. What is simulated is time, the store and the platform of the
instances. It has a temporary folder of its own, and never opens an engine's.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio

from hatchway.api.http.app import make_app
from hatchway.api.http.asgi import App, AsgiApp, Message, Receive, Scope, Send, send_response
from hatchway.api.http.problems import problem_response
from hatchway.api.server.server import ServerLimits, open_sockets, serve
from hatchway.api.testing.faults import BreakingListener, Faults, FaultSwitch, connection_of
from hatchway.api.testing.held_clock import HeldClock, HeldTime
from hatchway.api.testing.memory import InterruptibleStore
from hatchway.api.testing.people import Answer, AuthorizedKey, Keys, People, Session, granted, lasting
from hatchway.api.testing.simulated_platform import InstanceScript, SimulatedPlatform
from hatchway.api.testing.temporary_home import images_of, prepare, temporary_folder
from hatchway.api.testing.watchers import Watchers
from hatchway.engine.base.errors import StoreUnavailable
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.engine import Engine, open_engine
from hatchway.engine.journal.logs import log_record
from hatchway.engine.keys.own_keys import PRIVATE_KEY
from hatchway.engine.runtime.records import NOBODY, Record
from hatchway.engine.settings.settings import Settings
from hatchway.engine.store.memory import MemoryStore

HEADER = (b"x-hatchway-test", b"1")
"""A header of every response of a test engine."""

FIRST_KEY = "one"
"""The name of the key that is authorized from the start."""

PATIENT = ServerLimits(header_seconds=math.inf, body_seconds=math.inf, idle_seconds=math.inf, write_seconds=1e6)
"""Limits of the server without deadlines: they would run by the engine's clock, and an advance of an hour would cut off
every client."""


class EngineUnderTest:
    """One engine and what a test may do to it. Use `open_engine_under_test`."""

    def __init__(self, home: Path, listeners: list[BreakingListener]) -> None:
        self._home, self._listeners = home, listeners
        self._keys = Keys(home / "keys")
        self._clock = HeldClock()
        self.time = HeldTime()
        self.watchers = Watchers()
        host, port = listeners[0].getsockname()[:2]
        self.host = f"{host}:{port}"
        self.url = f"http://{self.host}"
        self._settings = Settings(
            port=port, image_folders=(str(images_of(home)),), registries=("docker.io", "registry.test")
        )
        self._faults, self._left = Faults(), math.inf
        self._again = trio.Event()
        self._begun: trio.Event = trio.Event()
        self.engine: Engine
        self._app: AsgiApp
        self._people: People
        self._store: InterruptibleStore
        self.platform: SimulatedPlatform

    @property
    def key_file(self) -> Path:
        """The private key that is authorized from the start, with the five permissions."""
        return self._home / "keys" / f"{FIRST_KEY}.pem"

    @property
    def master_key_file(self) -> Path:
        """The engine's own private key, which holds MASTER."""
        return self._home / PRIVATE_KEY

    @property
    def records(self) -> list[Record]:
        """Every record since the start, or the last `reset`."""
        return list(self.watchers.records)

    @property
    def now(self) -> float:
        """Epoch seconds by the engine's clock."""
        return self._clock.wall()

    async def serve(
        self,
        app: App,
        listeners: list[BreakingListener],
        shutdown: trio.Event,
        task_status: trio.TaskStatus[list[tuple[str, int]]] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """An app of this engine's on these sockets, until `shutdown`."""
        await serve(
            app,
            listeners,
            shutdown=shutdown,
            limits=lambda: PATIENT,
            clock=self._clock,
            headers=(HEADER,),
            sleep_until=self.time.sleep_until,
            task_status=task_status,
        )

    # Time

    async def advance(self, seconds: float) -> None:
        """Let so many seconds pass; returns when all that was due has happened."""
        await self.time.advance(seconds)

    def run(self, speed: float) -> None:
        """Let time go on by itself, `speed` seconds of it in one of the host's; 0 has it stand."""
        self.time.run(speed)

    # People

    async def pair(
        self,
        permissions: list[str] | None = None,
        lifetime: str | None = None,
        answer: Answer | None = "approve",
    ) -> str:
        """A pairing code that is out. Once it is claimed its operator approves, rejects, says yes too late, or (None)
        nothing. Raises InvalidRequest, TooManyRequests, StoreUnavailable."""
        return await self._people.pair(granted(permissions), lasting(lifetime), answer)

    async def key(self, permissions: list[str] | None = None, name: str | None = None) -> AuthorizedKey:
        """A new key, authorized. Raises InvalidRequest."""
        made = self._keys.make(self.engine, name, granted(permissions))
        self.engine.key_watch.tell_changes(named={made.identity})
        return made

    async def unregister(self, key: str) -> None:
        """Take a key out of authorized_keys, by its name or identity: its sessions end. Raises InvalidRequest."""
        identity = self._keys.find(key).public.identity
        self.engine.keys.unregister(identity)
        await self.engine.sessions.end_all_of({identity})
        self.engine.key_watch.tell_changes(named={identity})

    async def sign_in(self, lifetime: str | None = None, key: str = FIRST_KEY, *, renews: bool = False) -> Session:
        """A session by key; with `renews` it renews itself at half its lifetime. Raises what `verify` does."""
        session = await self._people.sign_in(self._keys.find(key), lasting(lifetime))
        if renews:
            self._people.keep_alive(session)
        return session

    async def revoke(self, key: str | None = None) -> int:
        """End every session, or those of a key; how many there were."""
        wanted = None if key is None else self._keys.find(key).public.identity
        identities = {actor.facts.identity for actor in self.engine.runtime.actors("session")}
        return await self.engine.sessions.end_all_of({name for name in identities if wanted in (None, name)}, NOBODY)

    # What goes wrong

    @property
    def faults(self) -> FaultSwitch:
        """The faults that are set."""
        return FaultSwitch(self._faults_now, self.set_faults)

    def _faults_now(self) -> Faults:
        return msgspec.structs.replace(self._faults, times=None if self._left == math.inf else int(self._left))

    def set_faults(self, faults: Faults) -> None:
        """Set these faults, and clear all others."""
        self._faults, self._left = faults, math.inf if faults.times is None else faults.times
        self._store.set_away(faults.store_away)
        self._clock.set_off(faults.clock_off)
        self.engine.runtime.timers.look_anew()
        self.time.moved()
        for listener in self._listeners:
            listener.set_away(faults.away)

    def script(self, name: str | None = None, **script: Any) -> None:
        """What becomes of instances that start from now on: of that name, or of all others; as `InstanceScript` has it.
        Raises ValueError for what is no part of one."""
        self.set_script(name, msgspec.convert(script, InstanceScript))

    def set_script(self, name: str | None, script: InstanceScript) -> None:
        """As `script`, with a whole script."""
        self.platform.set_script(name, script)

    def end_instance(self, name: str, exit_code: int = 0) -> None:
        """An instance ends by itself, now. Raises InstanceNotFound."""
        self.platform.end(name, exit_code)

    # Starts and resets

    async def reset(self) -> None:
        """As it was at the start: no sessions, codes, instances, records, faults, nor keys but the first. Its address
        and key stay; time stands where it is."""
        self._again.set()
        await self._begun.wait()

    async def live(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the engine, and another one after each `reset`, until cancelled."""
        while True:
            prepare(self._home, self._keys, FIRST_KEY)
            self._store, codes = InterruptibleStore(self._clock), MemoryStore(self._clock)
            self.platform = SimulatedPlatform(self._home / "instances")
            opening = partial(open_engine, inline=True, run=False, platform=self.platform)
            async with (
                opening(self._home, lambda: self._settings, self._clock, store=self._store, codes=codes) as self.engine,
                trio.open_nursery() as nursery,
            ):
                self._begin(nursery)
                await nursery.start(partial(self.engine.run, watch=False))
                begun, self._begun = self._begun, trio.Event()
                begun.set()
                task_status.started()
                task_status = trio.TASK_STATUS_IGNORED
                await self._again.wait()
                self.engine.stopping.set()
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()

    def _begin(self, nursery: trio.Nursery) -> None:
        self._app, self._people = make_app(self.engine), People(self.engine, self.host, nursery)
        self.watchers = Watchers(self.watchers.broken)
        self.engine.records.sinks.remove(log_record)  # a test reads the records, not a log
        self.engine.records.sinks.append(self.watchers)
        self.engine.records.notice("engine", self.engine.identity, "start")
        if not self.key_file.exists():
            self._keys.make(self.engine, FIRST_KEY, FIVE)
        else:
            self.engine.keys.register(self._keys.find(FIRST_KEY).public, FIVE, comment=FIRST_KEY)
        self.set_faults(Faults())
        self.time.run(0)
        self._again = trio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI app that the server has: the engine's own, with the faults before it and the watchers behind it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, watchers = scope["path"], self.watchers
        if await self._hindered(scope, path):
            await send_response(
                send, problem_response(StoreUnavailable("unavailable, as the test said", retry_after=1))
            )
            return
        route = self._app.gateway.find(scope["method"], path)
        is_open = route is None or route.endpoint.access == "open"
        ended = None if is_open else watchers.asked(dict(scope["headers"]).get(b"authorization"))

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                watchers.answered(ended, message["status"], path)
            await send(message)

        await self._app(scope, receive, watched)

    async def _hindered(self, scope: Scope, path: str) -> bool:
        """Whether the request is answered 503. It may be held up here, and its connection made to break."""
        faults = self._faults
        if not path.startswith(faults.path) or not self._left:
            return False
        self._left -= 1
        if faults.drop_after is not None and (connection := connection_of(self._listeners, scope["client"])):
            connection.end_after(faults.drop_after)
        if faults.slow:
            await trio.sleep(faults.slow)
        return faults.unavailable


async def listen(port: int = 0) -> list[BreakingListener]:
    """Sockets on loopback that serve a test engine. Raises EngineUnavailable."""
    return [BreakingListener(sock) for sock in await open_sockets("127.0.0.1", port)]


@asynccontextmanager
async def open_engine_under_test(port: int = 0) -> AsyncIterator[EngineUnderTest]:
    """A test engine in this run of trio, whose clock must be a `MockClock`, until left.

    Raises EngineUnavailable where the port is taken; TypeError for another clock.
    """
    listeners = await listen(port)
    with temporary_folder() as home:
        made, shutdown = EngineUnderTest(home, listeners), trio.Event()
        async with trio.open_nursery() as nursery:
            await nursery.start(made.live)
            await nursery.start(made.serve, made, listeners, shutdown)
            try:
                yield made
            finally:
                made.time.flee()
                made.engine.stopping.set()
                shutdown.set()
                nursery.cancel_scope.cancel()
