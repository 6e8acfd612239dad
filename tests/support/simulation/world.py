"""The whole engine in virtual time: its medium, its lives and deaths, and the faults that dice put in its way."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio
from trio.testing import memory_stream_pair

from hatchway.api.host.operator_lines import Lines
from hatchway.api.host.operator_socket import OperatorSocket
from hatchway.api.http.app import make_app
from hatchway.engine.base.clock import TrioClock
from hatchway.engine.base.errors import StoreUnavailable
from hatchway.engine.engine import Engine, open_engine
from hatchway.engine.settings.settings import Settings
from hatchway.engine.store.memory import MemoryStore
from hatchway.engine.store.protocol import Change
from tests.support.fakes import Browser, Reply, added_addresses
from tests.support.simulation.ledger import Ledger
from tests.support.simulation.people import people

HORIZON = 100.0
"""Virtual seconds in which people come and faults happen; then everything settles, and is looked at."""


class Killed(Exception):
    """The process is gone: whoever waited for its store never learns more."""


class SimulatedStore(MemoryStore):
    """The medium as one life of the engine sees it: slow, failing now and then, and gone with its process."""

    shields_commit = False

    blind = False
    """Planted: any version is taken."""

    def __init__(self, world: World, clock: TrioClock, held: MemoryStore | None = None) -> None:
        super().__init__(clock)
        self._world = world
        self.killed = trio.Event()
        if held is not None:  # what nonces were used is forgotten with the engine that made them
            self._actors, self._identity = held._actors, held._identity

    async def commit(self, change: Change) -> None:
        await self._wait()
        if self._world.store_fails():
            self._world.disturb(f"store: no {change.chart} {change.actor}")
            raise StoreUnavailable("the store can't be written (simulated); try again", retry_after=5)
        if self.blind:
            held = await self.load(change.chart, change.actor)
            change = msgspec.structs.replace(change, expected=held.version if held else 0)
        await super().commit(change)
        await self._wait()

    async def _wait(self) -> None:
        with trio.move_on_after(self._world.latency()):
            await self.killed.wait()
        if self.killed.is_set():
            raise Killed


@contextmanager
def cut_short() -> Iterator[None]:
    """What is in here may end because its engine is killed."""
    try:
        yield
    except (Killed, BaseExceptionGroup) as error:
        if isinstance(error, BaseExceptionGroup) and error.split((Killed, trio.Cancelled))[1] is not None:
            raise


class Heard(Reply):
    """An answer, and whether it came whole."""

    whole = False


class Life:
    """One process of the engine, from its start to its death."""

    def __init__(self, engine: Engine, stores: tuple[SimulatedStore, ...], nursery: trio.Nursery) -> None:
        self.engine, self.stores, self.nursery = engine, stores, nursery
        self.app = make_app(engine)
        self.socket = OperatorSocket(engine, dict, lambda: None, engine.reload, added_addresses())
        self.over = trio.Event()

    def kill(self) -> None:
        """kill -9: nothing it does from now on is seen by anybody."""
        for store in self.stores:
            store.killed.set()
        self.engine.records.sinks.clear()
        self.over.set()
        self.nursery.cancel_scope.cancel()


class World:
    """One seed's run: the dice, the engine's lives, the people, the faults, and the ledger that judges them."""

    def __init__(self, seed: int, home: Path) -> None:
        self.seed, self.home = seed, home
        self.dice = random.Random(seed)
        self.clock = TrioClock()
        self.medium: SimulatedStore | None = None
        self.life: Life | None = None
        self.alive, self.last_life = trio.Event(), trio.Event()
        self.ledger = Ledger(self)
        self.failing = self.dice.choice((0.0, 0.0, 0.03, 0.15))
        self.slowness = self.dice.choice((0.0, 0.01, 0.2))
        self.disk_full = False
        self.settling = False

    # What the medium asks

    def store_fails(self) -> bool:
        return not self.settling and (self.disk_full or self.dice.random() < self.failing)

    def latency(self) -> float:
        return self.dice.uniform(0, self.slowness) if self.slowness else 0.0

    def disturb(self, what: str) -> None:
        """Something happened after which timers may be later."""
        self.ledger.note(what)
        self.ledger.highest()
        self.ledger.disturbed_at = trio.current_time()

    # What people do

    async def now_living(self) -> Life:
        while self.life is None:
            await self.alive.wait()
        return self.life

    async def ask(self, method: str, path: str, value: Any = None, *, patience: float = 1e9, **more: Any) -> Heard:
        """One request to the engine as soon as it lives; hung up after `patience`."""
        life, reply = await self.now_living(), Heard()
        address = more.pop("address", "127.0.0.1")
        talk = partial(self._talk, reply, Browser(life.app, address=address), method, path, value, **more)
        life.nursery.start_soon(talk)
        with trio.move_on_after(patience):
            await reply.done.wait()
        if not reply.done.is_set():
            reply.hang_up.set()
            self.ledger.note(f"hang-up {method} {path}")
        return reply

    async def _talk(self, reply: Heard, browser: Browser, *request: Any, **more: Any) -> None:
        with cut_short():
            await browser.talk(reply, *request, **more)
        await trio.lowlevel.checkpoint()  # a process that was killed meanwhile has sent nothing more
        reply.whole = True

    async def dial_operator(self) -> tuple[Life, Lines, trio.abc.Stream]:
        """A connection to the operator socket."""
        life = await self.now_living()
        ours, theirs = memory_stream_pair()
        life.nursery.start_soon(self._serve_operator, life, theirs)
        return life, Lines(ours), ours

    async def _serve_operator(self, life: Life, stream: trio.abc.Stream) -> None:
        try:
            await life.socket.talk(stream)
        finally:
            await trio.aclose_forcefully(stream)

    # Lives and faults

    async def run(self) -> None:
        """The whole run. Raises Violation."""
        plan = self._lives()
        async with trio.open_nursery() as outer:
            async with trio.open_nursery() as coming:
                for person in people(self):
                    coming.start_soon(person)
                for fault in self._faults():
                    coming.start_soon(fault)
                outer.start_soon(self._live_on, plan)
            self.settling = True
            await self.last_life.wait()
            await trio.sleep(70)
            await self.ledger.settle()
            outer.cancel_scope.cancel()

    def _lives(self) -> list[tuple[float, bool]]:
        """How long each life but the last lasts, and whether it is killed."""
        return [(self.dice.uniform(1, 60), self.dice.random() < 0.7) for _ in range(self.dice.choice((0, 1, 1, 2)))]

    async def _live_on(self, plan: list[tuple[float, bool]]) -> None:
        for seconds, killed in [*plan, (float("inf"), False)]:
            codes = SimulatedStore(self, self.clock)
            self.medium = SimulatedStore(self, self.clock, self.medium)
            await self._live(seconds, killed, self.medium, codes)
            await trio.sleep(self.dice.uniform(0, 3))

    async def _live(self, seconds: float, killed: bool, medium: SimulatedStore, codes: SimulatedStore) -> None:
        opening = partial(open_engine, self.home, Settings, self.clock, inline=True, store=medium, codes=codes)
        # A task of the engine's own may be in the middle of a change when the engine is killed.
        with cut_short():
            async with opening() as engine, trio.open_nursery() as nursery:
                engine.records.sinks.append(self.ledger.watch())
                self.life = life = Life(engine, (medium, codes), nursery)
                self.disturb("the engine starts")
                self.ledger.taken_up(engine)
                self.alive.set()
                if seconds == float("inf"):
                    self.last_life.set()
                await trio.sleep(seconds)
                self.life, self.alive = None, trio.Event()
                self.disturb("kill" if killed else "stop")
                if not killed:
                    engine.stopping.set()
                    await trio.sleep(5)
                life.kill()

    def _faults(self) -> Iterator[Callable[[], Awaitable[None]]]:
        for _ in range(self.dice.choice((0, 0, 1, 2))):
            yield partial(self._jump, self.dice.uniform(0, HORIZON), self.dice.choice((-7200, -90, -5, 5, 90, 7200)))
        for _ in range(self.dice.choice((0, 0, 1))):
            yield partial(self._fill, self.dice.uniform(0, HORIZON), self.dice.uniform(0.1, 10))

    async def _jump(self, when: float, seconds: float) -> None:
        await trio.sleep(when)
        self.ledger.highest()
        self.ledger.jumps += 1
        self.clock.skew += seconds
        self.disturb(f"the wall clock jumps {seconds} s")

    async def _fill(self, when: float, seconds: float) -> None:
        await trio.sleep(when)
        self.disk_full = True
        await trio.sleep(seconds)
        self.disk_full = False
        self.disturb("the disk has room again")
