"""A runtime with one small chart and a slow store, and what was recorded and heard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import trio

from hatchway.engine.base.clock import Clock, TrioClock
from hatchway.engine.runtime import Actor, Runtime
from hatchway.engine.runtime.records import Record, Records
from hatchway.engine.store.memory import MemoryStore
from hatchway.engine.store.protocol import Change
from hatchway.statecharts.chart import NONE, Chart, Delay, Transition, always


def in_time(data: Any) -> bool:
    return bool(data["now"] < data["deadline"])


GATE = Chart(
    name="gate",
    rows=(
        Transition(NONE, "build", always, "shut", ("squeak",)),
        Transition("shut", "open", in_time, "open", ("squeak", "draught")),
        Transition("shut", "rust", always, "stuck"),
        Transition("open", "shut", always, "shut"),
        Transition("open", "burn", always, "gone"),
    ),
    delays={"shut": Delay("patience", "rust")},
    final=frozenset({"stuck", "gone"}),
)


class Facts(msgspec.Struct, frozen=True):
    """A gate's."""

    patience: float = 30.0
    opened_by: str = ""


class SlowStore(MemoryStore):
    """Waits before each commit, so that everything else has its chance to come between; may be told to fail."""

    shields_commit = False

    def __init__(self, clock: Clock | None = None, takes: float = 0.001) -> None:
        """A commit takes `takes` seconds."""
        super().__init__(clock or TrioClock())
        self._takes = takes
        self.fail: list[Exception] = []

    async def commit(self, change: Change) -> None:
        await trio.sleep(self._takes)
        if self.fail:
            raise self.fail.pop()
        await super().commit(change)


class SmallRuntime:
    """A runtime with gates, what it recorded, and what its effects heard."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store: Any = store or SlowStore()
        self.committed: list[tuple[str, float]] = []
        self.records: list[Record] = []
        self.heard: list[str] = []
        self.runtime = Runtime(
            TrioClock(),
            Records(TrioClock(), self.records.append),
            observe_commit=lambda chart, seconds: self.committed.append((chart, seconds)),
        )
        self.runtime.register(
            GATE,
            facts=Facts,
            store=self.store,
            effects={"squeak": self._hear("squeak"), "draught": self._hear("draught")},
            rules={"patience": lambda facts, now: now + facts.patience},
        )

    def _hear(self, name: str) -> Callable[[Actor, dict[str, Any]], Awaitable[str | None]]:
        async def effect(actor: Actor, data: dict[str, Any]) -> str | None:
            await trio.sleep(0)
            self.heard.append(f"{name}:{actor.state}")
            return f"how much {name}" if name == "draught" else None

        return effect

    async def build(self, name: str = "one") -> None:
        await self.runtime.create("gate", name, "build", Facts())

    async def open(self) -> None:
        await self.runtime.send("gate", "one", "open")
