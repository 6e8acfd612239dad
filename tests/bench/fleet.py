"""What the sessions of a whole fleet cost one engine of it: to take up, to hold, to hear of, to find again.

The store is a real Redis. Its sessions are written in the store's own format, by nobody's sign-in.
"""

from __future__ import annotations

import gc
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from math import inf
from pathlib import Path
from typing import NamedTuple

import trio

from hatchway.engine.access.principal import SessionFacts
from hatchway.engine.base.base64url import encode
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.engine import Engine, open_engine
from hatchway.engine.settings.settings import Settings
from hatchway.engine.store.protocol import Stored
from hatchway.engine.store.redis import CHANGES, COUNTER, IDENTITY, PREFIX, pack
from hatchway.engine.store.scripts import COMMIT
from tests.bench.results import Plan, Results
from tests.bench.steps import isolated
from tests.support.processes import prepare
from tests.support.redis_server import RedisServer

SESSIONS = f"{PREFIX}actors:session"
BATCH = 500
FEW = 100

RATES = (100, 1000)
"""Changes a second that the other engines make."""


class Store:
    """A connection to the fleet's store, in Redis' own protocol."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._answers = self._socket.makefile("rb")

    def ask(self, *words: str | bytes | int) -> bytes:
        """One command; what comes back, or the first line of it."""
        raw = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self._socket.sendall(b"*%d\r\n" % len(raw) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in raw))
        line = self._answers.readline()
        return self._answers.read(int(line[1:]) + 2)[:-2] if line.startswith(b"$") and line[1:2] != b"-" else line

    def close(self) -> None:
        self._answers.close()
        self._socket.close()

    def fill(self, count: int) -> list[str]:
        """Live sessions, four to an identity. Returns their names."""
        names = []
        for start in range(0, count, BATCH):
            row: list[str | bytes] = []
            for number in range(start, min(start + BATCH, count)):
                name, stored = session(number)
                names.append(name)
                row += (name, pack(stored, secrets.token_hex(8)))
            self.ask("HSET", SESSIONS, *row)
        self.move(names[0], 1)
        return names

    def used(self) -> int:
        """Bytes that its data take."""
        return int(self.ask("INFO", "memory").partition(b"used_memory:")[2].split()[0])

    def move(self, name: str, version: int) -> None:
        """A change as another engine makes it: the session has a next version."""
        tag = secrets.token_hex(8)
        value = pack(session(0)[1], tag).replace(b"1:", b"%d:" % (version + 1), 1)
        keys = (SESSIONS, CHANGES, COUNTER, f"{PREFIX}done:{tag}", f"{PREFIX}used:", IDENTITY)
        args = (name, "session", version, version + 1, value, tag, "", "", "")
        assert self.ask("EVAL", COMMIT.text, len(keys), *keys, *args) == b"OK"


def session(number: int) -> tuple[str, Stored]:
    """The name of a session, and what the store has of it. It lasts longer than any measuring."""
    now = time.time()
    who, address = f"SHA256:{number // 4:043}", f"203.0.113.{number % 250}"
    facts = SessionFacts(who, "pairing", FIVE, 86_400, now, now + 604_800, address, "a laptop", "a browser", now)
    return f"{int(now * 1000):011x}{encode(secrets.token_bytes(9))}", Stored(1, "active", now + 86_400, facts)


class Cost(NamedTuple):
    """CPU seconds of the engine's thread, but for bytes. `answers` is from the start until the engine may answer. The
    next three are of one session: to take up, held by the engine, and in the store."""

    answers: float
    taken_up: float
    bytes: float
    stored: float
    found_again: float
    heard: list[float]


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@contextmanager
def changing(store: Store, names: list[str], rate: int) -> Iterator[list[int]]:
    """Sessions move, so many a second, for the block; how many did, as the only item."""
    moved, over = [0], threading.Event()

    def move() -> None:
        began = time.monotonic()
        while not over.wait(max(began + moved[0] / rate - time.monotonic(), 0)):
            name = names[moved[0] % len(names)]
            store.move(name, int(store.ask("HGET", SESSIONS, name).partition(b":")[0]))
            moved[0] += 1

    thread = threading.Thread(target=move)
    thread.start()
    try:
        yield moved
    finally:
        over.set()
        thread.join()


async def heard(store: Store, names: list[str], rate: int, seconds: float) -> float:
    """CPU seconds of the engine for one change that it hears of, in so many seconds."""
    idle = await _spent(seconds)
    with changing(store, names, rate) as moved:
        return (await _spent(seconds) - idle) / moved[0]


async def _spent(seconds: float) -> float:
    before = time.thread_time()
    await trio.sleep(seconds)
    return time.thread_time() - before


async def found_again(engine: Engine, store: Store) -> float:
    """CPU seconds from a lost connection until the engine answers from its memory again."""
    lost_at, before = engine.clock.elapsed(), time.thread_time()
    store.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await confirmed(engine, lost_at)
    return time.thread_time() - before


async def confirmed(engine: Engine, since: float) -> None:
    """Wait until the engine's memory of the sessions was confirmed after that elapsed time."""
    assert engine.fleet is not None
    while engine.fleet.confirmed_at <= since:
        await trio.sleep(0.01)


async def cost(folder: Path, count: int, seconds: float) -> Cost:
    """Of `count` sessions to an engine; changes are counted for `seconds` at each rate."""
    server = RedisServer(folder / "redis", durable=False).start()
    try:
        with closing(Store(server.port)) as store:
            empty = store.used()
            names = store.fill(count)
            stored = store.used() - empty
            prepare(folder / "home")
            resident, before = _resident(), time.thread_time()
            async with open_engine(folder / "home", lambda: Settings(store=server.url)) as engine:
                assert engine.fleet is not None
                await confirmed(engine, -inf)
                answers = time.thread_time() - before
                await engine.fleet.wait_whole()
                taken_up, held = time.thread_time() - before, _resident() - resident
                changes = [await heard(store, names, rate, seconds) for rate in RATES]
                again = await found_again(engine, store)
                return Cost(answers, taken_up / count, held / count, stored / count, again, changes)
    finally:
        server.close()


def measure(results: Results, plan: Plan) -> None:
    """An engine of a fleet with few sessions, and one of a fleet with many."""
    many = int(100_000 * plan.size)
    told: dict[int, list[Cost]] = {FEW: [], many: []}
    for _ in range(plan.rounds):
        for count, costs in told.items():
            with tempfile.TemporaryDirectory() as folder:
                costs.append(isolated(trio.run, cost, Path(folder), count, plan.seconds))
    results.add("fleet's session, taken up", "us CPU", [one.taken_up * 1e6 for one in told[many]])
    results.add("fleet's session, held", "bytes", [one.bytes for one in told[many]])
    results.add("fleet's session, in Redis", "bytes", [one.stored for one in told[many]])
    for place, rate in enumerate(RATES):
        results.add(f"fleet's change heard, {rate}/s", "us CPU", [one.heard[place] * 1e6 for one in told[many]])
    for count, costs in told.items():
        results.add(f"fleet joined, {count:,} sessions", "ms CPU", [one.answers * 1e3 for one in costs])
        results.add(f"fleet found again, {count:,} sessions", "ms CPU", [one.found_again * 1e3 for one in costs])
    for what in ("joined", "found again"):
        few, full = (f"fleet {what}, {count:,} sessions" for count in told)
        results.ratio(f"fleet {what}, {many:,} / {FEW} sessions", full, few)
