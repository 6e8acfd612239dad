"""What the simulated people were told, what the records say, and the promises that both must keep."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from hatchway.engine.base.base64url import decode
from hatchway.engine.base.clock import TICK
from hatchway.engine.runtime.records import Record
from tests.support.fakes import FINAL, Watchers

if TYPE_CHECKING:
    from hatchway.engine.engine import Engine
    from tests.support.simulation.world import Heard, World

SLACK = 1.5
"""Seconds a due timer may take beyond its tick: the retry of a write that failed, and the medium's slowness."""

TIME_EVENTS = {"claim_elapsed", "decision_elapsed", "lifetime_elapsed"}


class Violation(Exception):
    """A promise was broken."""


class Known:
    """A session as its owner knows it: when it may end, and whether somebody has tried to end it."""

    def __init__(self, expires_at: float, wall: float) -> None:
        self.expect({expires_at}, wall)
        self.renewing = 0
        self.ending = 0
        self.ended = False

    def expect(self, deadlines: set[float], wall: float) -> None:
        """It may end at any of these. `latest` is the latest wall time since that was known."""
        self.deadlines, self.latest = deadlines, wall


class Asked(NamedTuple):
    """What was known as a request with a token went out."""

    ended: bool
    wall: float
    jumps: int


class Ledger:
    """Everything acknowledged, to be held against everything that comes after."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lines: list[str] = []
        self.disturbed_at = 0.0
        self.jumps = 0
        self.broken: str | None = None
        self.sessions: dict[str, Known] = {}
        self.tokens: dict[str, str] = {}
        self.uses: Counter[str] = Counter()
        self.answered_yes: set[str] = set()
        self.proved: set[str] = set()
        self.hung_up: dict[str, float] = {}
        self._highest = 0.0
        self._final: set[tuple[str, str]] = set()
        self._starts_by_key = 0
        self._deadlines: dict[tuple[str, str], tuple[float, str]] = {}

    def note(self, what: str) -> None:
        """One line of the run's story."""
        self.lines.append(f"{trio.current_time():9.4f} {what}")

    def fail(self, why: str) -> None:
        """A promise was broken where raising would not get through."""
        self.note(f"BROKEN: {why}")
        self.broken = self.broken or why

    def highest(self) -> float:
        """The latest wall time there ever was."""
        now = self.world.clock.wall()
        self._highest = max(self._highest, now)
        for known in self.sessions.values():
            known.latest = max(known.latest, now)
        return self._highest

    # What people are told

    def signed_in(self, session: dict[str, Any], proof: str) -> str:
        """A session's token came, for a nonce or a code; gives the token."""
        token: str = session["token"]
        self.uses[proof] += 1
        if self.uses[proof] > 1:
            raise Violation(f"signed in twice with one {proof}")
        name = json.loads(decode(token.split(".")[1]))["sid"]
        self.note(f"signed in {name} by {proof}")
        self.sessions[name] = Known(session["expires_at"], self.world.clock.wall())
        self.tokens[token] = name
        return token

    def about(self, token: str) -> Asked:
        """To be called before a token is sent."""
        return Asked(self.known(token).ended, self.world.clock.wall(), self.jumps)

    def known(self, token: str) -> Known:
        return self.sessions[self.tokens[token]]

    def judge(self, token: str, asked: Asked, reply: Heard, *, taken: int = 200) -> bool:
        """Whether a whole answer about a token can be: dead ones are refused, live ones taken. Gives which it was."""
        if not reply.whole or reply.status == 503:
            return False
        name, known = self.tokens[token], self.known(token)
        own_end = json.loads(decode(token.split(".")[1]))["exp"]
        self.note(f"{name} answers {reply.status}")
        if reply.status == taken:
            if asked.ended:
                raise Violation(f"the ended session {name} answered again")
            if asked.wall >= own_end and asked.jumps == self.jumps:
                raise Violation(f"a token of {name} was taken after its end")
            return True
        if reply.status != 401:
            raise Violation(f"{reply.status}: {reply.body!r}")
        may_be_over = known.ending or known.ended or self.highest() >= min(known.deadlines | {own_end})
        if not may_be_over:
            raise Violation(f"the acknowledged session {name} is lost")
        if known.latest >= max(known.deadlines | {own_end}) + 1 and not known.renewing:
            known.ended = True
        return False

    # What the records say

    def watch(self) -> Callable[[Record], None]:
        """The sink of one life."""
        return Watch(self)

    def ended(self, record: Record) -> None:
        if (record.chart, record.actor) in self._final:
            self.fail(f"{record.chart} {record.actor} moved after its end: {record.event}")
        if record.target in FINAL[record.chart]:
            self._final.add((record.chart, record.actor))

    def started(self, record: Record) -> None:
        """A session started by key: each stands behind a nonce that was really signed."""
        self._starts_by_key += 1
        if self._starts_by_key > len(self.proved):
            self.fail(f"session {record.actor} started without a verified signature")

    def timed(self, record: Record) -> None:
        """No time event comes later than a tick after its deadline, faults and starts apart."""
        key, life = (record.chart, record.actor), self.world.life
        now = {"wall": self.world.clock.wall(), "elapsed": trio.current_time()}
        if record.event in TIME_EVENTS and key in self._deadlines:
            deadline, clock = self._deadlines[key]
            late = min(now[clock] - deadline, now["elapsed"] - self.disturbed_at)
            if now[clock] < deadline:
                self.fail(f"{record.event} of {record.actor} came {-late:.3f} s early")
            if late > TICK + SLACK:
                self.fail(f"{record.event} of {record.actor} came {late:.3f} s late")
        actor = life and life.engine.runtime.peek(record.chart, record.actor)
        if actor and actor.deadline is not None:
            self._deadlines[key] = (actor.deadline, "wall" if record.chart == "session" else "elapsed")

    def taken_up(self, engine: Engine) -> None:
        """A new life holds what the store does: a renewal too that was stored as the last one died, and never told."""
        for actor in engine.runtime.actors("session"):
            known, held = self.sessions.get(actor.id), self._deadlines.get(("session", actor.id))
            told = known is None or known.renewing or {actor.deadline} <= known.deadlines or len(known.deadlines) > 1
            if not told and held != (actor.deadline, "wall"):
                self.fail(f"session {actor.id} came back with another end")
            self._deadlines["session", actor.id] = (actor.deadline or 0.0, "wall")

    def gone(self, record: Record) -> bool:
        """Whether the console of a started session had hung up well before, with nothing in the engine's way."""
        since = self.hung_up.get(record.address or "", float("inf"))
        return since + 1 < trio.current_time() and self.disturbed_at < since

    async def settle(self) -> None:
        """The end of the run: nothing due is left, and every session is what its owner was told. Raises Violation."""
        life = await self.world.now_living()
        for chart, now in (("session", self.world.clock.wall()), ("pairing", trio.current_time())):
            for actor in life.engine.runtime.actors(chart):
                if (actor.deadline or now) < now - TICK - SLACK:
                    raise Violation(f"{chart} {actor.id} is overdue by {now - (actor.deadline or now):.1f} s")
        for actor in life.engine.runtime.actors("pairing"):
            raise Violation(f"the code of {actor.id} never came to an end: {actor.state}")
        for token in list(self.tokens):
            asked = self.about(token)
            self.judge(token, asked, await self.world.ask("GET", "/api/auth/inspect/", token=token))
        if self.broken:
            raise Violation(self.broken)


class Watch:
    """One life's records: what a code and a session may do there."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._claims: Counter[str] = Counter()
        self._watchers = Watchers()

    def __call__(self, record: Record) -> None:
        ledger = self.ledger
        ledger.note(f"record {record.chart} {record.actor} {record.event} {record.target} {record.cause or ''}")
        self._watchers(record)
        for broken in self._watchers.broken:
            ledger.fail(broken)
        if record.kind != "transition":
            return
        ledger.ended(record)
        ledger.timed(record)
        if record.event == "claim":
            self._claims[record.actor] += 1
            if self._claims[record.actor] > 1:
                ledger.fail(f"the code of {record.actor} was claimed twice")
        if record.chart == "session" and record.event == "start":
            self._session(record)

    def _session(self, record: Record) -> None:
        identity = record.identity or ""
        if not identity.startswith("pairing:"):
            self.ledger.started(record)
        elif self.ledger.gone(record):
            self.ledger.fail(f"session {record.actor} was made for a console that had gone away")
