"""One pairing code and all that may happen to it, as a world for the explorer: the real runtime and services."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import trio
import trio.testing
from trio.testing import MockClock

from hatchway.api.http.endpoints import auth
from hatchway.api.http.request import Request
from hatchway.api.testing.explorer import World
from hatchway.engine.access.tokens import Tokens
from hatchway.engine.base.clock import TrioClock
from hatchway.engine.base.errors import PairingCodeRefused, PairingExpired
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.keys.keys import generate_token_key
from hatchway.engine.runtime import Runtime
from hatchway.engine.runtime.records import Origin, Records
from hatchway.engine.sessions.sessions import Sessions
from hatchway.engine.settings.settings import Settings
from hatchway.statecharts.pairing import CLAIM_WINDOW, DECISION_WINDOW
from tests.pairings.seen_services import SeenLocks, SeenPairings, WaitingStore
from tests.seeds import drawn
from tests.support.fakes import Watchers

token_key = cache(generate_token_key)

AGES = {"fresh": (0.0, (CLAIM_WINDOW,)), "old": (CLAIM_WINDOW - 1, (1.0, DECISION_WINDOW - 1))}
"""How old the code is as everybody comes, and the jumps of the clock: to where both windows end at once; or to the end
of the claim's and then to that of a decision begun before it. An event is before, or at, the end of its window."""


class CodeWorld(World):
    """One code that is out, and all that may happen to it: each a task of its own."""

    waits_only = True
    clock_jumps = False

    def __init__(self, happenings: tuple[str, ...], age: str, sees_looks: bool) -> None:
        self.happenings, self.sees_looks = happenings, sees_looks
        self.age, self.jumps = AGES[age]
        self.clock = TrioClock(tick=float("inf"))
        self.watch = Watchers()
        self.told: list[str] = []
        self.lines: dict[str, list[Any]] = {"A": [], "B": []}
        self.refused: set[str] = set()
        self.scope = trio.CancelScope()
        self.said_yes = self.a_is_done = self.time_is_over = False

    def _build(self) -> None:
        """The services; they look at the clock as they are made."""
        self.stores = WaitingStore(self.clock), WaitingStore(self.clock)
        self.runtime = Runtime(self.clock, Records(self.clock, self.watch))
        settings = Settings()
        keys = AuthorizedKeys(Path("/nonexistent/authorized_keys"))
        tokens = Tokens("urn:engine", token_key())
        self.sessions = Sessions(self.runtime, self.stores[0], keys, tokens, lambda: settings)
        self.pairings = SeenPairings(
            self.runtime, self.stores[1], lambda: settings, self.sessions.start, self.sessions.end
        )
        self.pairings.claims = []

    def state(self) -> Hashable:
        """All that the future depends on."""
        locks = [sorted(one.taken.items()) for one in SeenLocks.seen]
        actors = [
            (actor.id, actor.state, actor.version, actor.deadline, actor.timer > 0)
            for chart in ("session", "pairing")
            for actor in self.runtime.actors(chart)
        ]
        stored = [sorted(store.holds) for store in self.stores]
        claims = [(claim.origin.address, claim.answered, claim.given_up) for claim in self.pairings.claims]
        lines = [(address, *map(_kind_of, lines)) for address, lines in self.lines.items()]
        told = [self.told, lines, sorted(self._refused()), self.said_yes, self.scope.cancel_called]
        looks = self._looks() if self.sees_looks else None
        return str((trio.current_time(), locks, actors, stored, len(self.pairings), claims, told, looks))

    def _looks(self) -> Hashable:
        """When the timers look next: told by nothing but the timers themselves, since nobody else is to see it."""
        asleep_until, woken, entries = self.runtime.timers.snapshot("elapsed")
        return str((asleep_until, woken, [(due, actor.id, fires) for due, actor, fires in entries]))

    def _refused(self) -> frozenset[str]:
        """Who was refused, and heard of it."""
        return frozenset(self.refused - ({"A"} if self.scope.cancel_called else set()))

    def outcome(self) -> Hashable:
        lines = [(address, *map(_kind_of, lines)) for address, lines in self.lines.items()]
        live = len(list(self.runtime.actors("session")))
        return tuple(self.told), tuple(lines), self._refused(), self.scope.cancel_called, live

    def idle(self, task: Any) -> bool:
        """The timers look at their clocks and find nothing due: nobody sees it, and they look again when there is."""
        return task.name == "timers" and not self.sees_looks and not self._due()

    def commutes(self, task: Any) -> bool:
        """While somebody waits for the code's lock, whoever comes waits behind: now or after its holder. Once the code
        is over, only a console that may still be told, or hang up, meets what others do."""
        name = str(task.name)
        if self._holds_before_others(name):
            return True
        if name == "leave" and self.a_is_done:
            return True
        if any(True for _ in self.runtime.actors("pairing")) or name in ("leave", "timers"):
            return False
        if name == "approve":
            return all(claim.answered for claim in self.pairings.claims)  # else its session is being made
        claims = (claim for claim in self.pairings.claims if f"claim_{claim.origin.address}".lower() == name)
        claim = next(claims, None)
        if not name.startswith("claim") or claim is None:
            return True  # it finds nothing, or is refused
        return claim.answered and (name == "claim_b" or self.scope.cancel_called)

    def _holds_before_others(self, name: str) -> bool:
        """Whether the task has the code's lock, and somebody whom nobody cancels waits for it."""
        found = next((held for one in SeenLocks.seen if (held := one.held(self.name))), None)
        if found is None or found[0] != name:
            return False
        decided = self.stores[1].changing == self.name or self.time_is_over
        may_be_cancelled = {"claim_a"} if "leave" in self.happenings and not self.scope.cancel_called else set()
        return decided and bool(set(found[1]) - may_be_cancelled)

    def _due(self) -> bool:
        now = {"session": self.clock.wall(), "pairing": self.clock.elapsed()}
        return any(
            actor.timer and actor.deadline is not None and actor.deadline <= now[chart]
            for chart in now
            for actor in self.runtime.actors(chart)
        )

    async def main(self) -> None:
        SeenLocks.seen.clear()
        self._build()
        with drawn(1):
            await self._run()
        self.check()

    async def _run(self) -> None:
        issued = await self.pairings.issue(FIVE, 3600, lambda event, **_: self.told.append(event), Origin("operator"))
        self.name, self.code = issued.id, issued.code
        self._jump(self.age)
        async with trio.open_nursery() as timers:
            timers.start_soon(self.runtime.run, name="timers")
            async with trio.open_nursery() as nursery:
                for happening in (*self.happenings, "time"):
                    nursery.start_soon(getattr(self, happening), name=happening)
            await trio.testing.wait_all_tasks_blocked()
            timers.cancel_scope.cancel()

    async def claim_a(self) -> None:
        with self.scope:
            await self._claim("A")
        self.a_is_done = True

    async def claim_b(self) -> None:
        await self._claim("B")

    async def _claim(self, address: str) -> None:
        request = Request("POST", "/api/auth/pair/request/", b"", (), b"", (address, 40000), ("127.0.0.1", 7420))
        invocation: Any = SimpleNamespace(
            engine=self,
            request=request,
            forwarded=None,
            origin=Origin(None, address),
            fields=auth.PairFields(self.code),
        )
        try:
            stream: Any = (await auth.pair(invocation)).stream
        except PairingCodeRefused:
            self.refused.add(address)
            return
        try:
            async for line in stream:
                await trio.lowlevel.checkpoint()  # it is sent
                if line.strip():
                    self.lines[address].append(msgspec.json.decode(line))
        finally:
            await stream.aclose()

    async def leave(self) -> None:
        """A's console hangs up: the server cancels whatever it has reached."""
        self.scope.cancel()

    async def approve(self) -> None:
        self.said_yes = True
        with suppress(PairingExpired):
            await self.pairings.answer(self.name, True, Origin("operator"))

    async def reject(self) -> None:
        with suppress(PairingExpired):
            await self.pairings.answer(self.name, False, Origin("operator"))

    async def withdraw(self) -> None:
        await self.pairings.withdraw(self.name, Origin("operator"))

    async def time(self) -> None:
        first, *more = self.jumps
        self._jump(first)
        for seconds in more:
            await trio.lowlevel.checkpoint()
            self._jump(seconds)
        self.time_is_over = True

    def _jump(self, seconds: float) -> None:
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, MockClock)
        clock.jump(seconds)

    def check(self) -> None:
        """The end: whatever happened in whatever order."""
        self.watch.check()
        sessions = [record for record in self.watch.records if (record.chart, record.event) == ("session", "start")]
        tokens = [line for lines in self.lines.values() for line in lines if "token" in line]
        live = list(self.runtime.actors("session"))
        assert len(sessions) <= 1, "the code signed in twice"
        assert len(tokens) <= len(sessions)
        assert self.said_yes or not sessions, "a session that nobody approved"
        assert not len(self.pairings), "the code never came to an end"
        assert not self.stores[1].holds, "the code's end was not stored"
        assert self.told[-1] in ("approved", "rejected", "expired", "withdrawn", "left"), self.told
        assert [event for event in self.told if event != "claimed"] == self.told[-1:], "the terminal was told twice"
        assert len(live) == len(tokens), "a session that no console holds, or the reverse"
        for address, lines in self.lines.items():
            if address != "A" or not self.scope.cancel_called:
                out = address in self.refused or f"claim_{address.lower()}" not in self.happenings
                wanted = [] if out else [True, False]
                assert ["accepted" in line for line in lines] == wanted, "a claim without its last item"


def _kind_of(line: dict[str, Any]) -> str:
    return "accepted" if "accepted" in line else "token" if "token" in line else str(line["code"])
