"""One record a step: log line, audit entry, event and test subject at once. Section 6."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec
import trio

from hatchway.engine.base.clock import Clock


class Origin(NamedTuple):
    """Who is behind an event: the identity that acts, the socket's peer, and the request it came with.

    `traceparent` is the request's header of that name (W3C Trace Context). `asked` is the permission that the request
    needed, `held` what its session had, where the event needs one.
    """

    identity: str | None = None
    address: str | None = None
    request_id: str | None = None
    traceparent: str | None = None
    asked: str | None = None
    held: tuple[str, ...] = ()


NOBODY = Origin()
"""A timer, or the engine itself."""


class Saw(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a step or a refusal was decided on, so that anybody can decide it again.

    Where the delay of the actor's state counts elapsed time, `at` is how many seconds it had run and `of` how many it
    has, to the millisecond; `at` is less than `of` exactly where the deadline had not come. Where it counts by the wall
    clock, `deadline` is when it ends, in epoch seconds, and the record's `time` is what was compared with it. Records
    of form 2 have the elapsed time as `now` and its `deadline` instead of `at` and `of`.

    `proof` is what stood behind a sign-in, None for nothing that held. `asked` is the permission that was needed,
    `held` those that the session had. `charts` names the tables that an engine runs, `shared` says that other engines
    move the same actors.
    """

    at: float | msgspec.UnsetType = msgspec.UNSET
    of: float | msgspec.UnsetType = msgspec.UNSET
    now: float | msgspec.UnsetType = msgspec.UNSET
    deadline: float | msgspec.UnsetType = msgspec.UNSET
    proof: str | msgspec.UnsetType | None = msgspec.UNSET
    asked: str | msgspec.UnsetType = msgspec.UNSET
    held: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    charts: str | msgspec.UnsetType = msgspec.UNSET
    shared: bool | msgspec.UnsetType = msgspec.UNSET


UNPROVEN = Saw(proof=None)
"""A sign-in whose proof did not hold."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """What happened to one actor. No field ever holds a code, token, nonce, signature or key.

    `time` is in epoch seconds, `seq` grows by one a record and never repeats on one engine. `kind` is `transition` (a
    row was taken), `refusal` (none was, `target` is None and `cause` says why) or `notice` (the engine's own news).
    `count` is there where one record stands for several refusals: of one address in one second, or of many addresses.
    `saw` is there where something was decided, `traceparent` where the request brought one, `label` where a session
    begins that people tell by one. `comment` is what a key is called in authorized_keys: where it signs in, and where
    it comes, changes or goes.
    """

    time: float
    seq: int
    kind: Literal["transition", "refusal", "notice"]
    chart: str
    actor: str
    event: str
    source: str | None = None
    target: str | None = None
    effects: tuple[str, ...] = ()
    identity: str | None = None
    address: str | None = None
    request_id: str | None = None
    cause: str | None = None
    count: int | msgspec.UnsetType = msgspec.UNSET
    saw: Saw | msgspec.UnsetType = msgspec.UNSET
    traceparent: str | msgspec.UnsetType = msgspec.UNSET
    label: str | msgspec.UnsetType = msgspec.UNSET
    comment: str | msgspec.UnsetType = msgspec.UNSET


NOTICES = {
    ("engine", "start"): "the engine runs",
    ("engine", "stop"): "it stops; `cause`: why, where nobody has asked it to",
    ("engine", "reload"): "settings, license and keys were read again; `cause`: the settings that wait for a restart",
    ("engine", "certificate_shown"): "from now on this certificate is shown; `cause`: its SHA-256",
    ("engine", "address_added"): "an address counts for a while; `cause`: the address",
    ("engine", "address_removed"): "it counts no longer",
    ("engine", "address_held"): "an address counts as long as a tunnel lives; `cause`: the address",
    ("engine", "door_ended"): "a worker process ended by itself; `cause`: how",
    (
        "key",
        "register",
    ): "a key may sign in, or its line says something else; `actor`: the key, `cause`: what it grants",
    ("key", "unregister"): "a key may sign in no longer; `actor`: the key",
    ("key", "rotate_token"): "tokens are signed by another key; `actor`: its `kid`, `cause`: the one that it replaces",
}
"""Every notice by chart and event, and what it says."""

Sink = Callable[[Record], None]

SURPLUS = "too_many_requests"
"""Cause of a record that stands for the refusals past a limit."""

AT_ONCE, A_SECOND = 1000, 10.0
"""Refusals from outside that may have records of their own: so many at once, and so many a second after that."""

SURPLUS_INTERVAL = 1.0
"""Seconds between two records of the surplus of one address."""

SOURCES = 10
"""Addresses whose surplus of a second has a record each; that of all others shares one."""


class Records:
    """Numbers the records and hands each to every sink, in order. A sink is a function that is quick and never raises.

    However many refusals strangers cause, they make few records: past a rate they are counted as surplus, and `run`
    publishes the counts.
    """

    def __init__(self, clock: Clock, *sinks: Sink, last_seq: int = 0) -> None:
        self._clock = clock
        self._seq = last_seq
        self.sinks = list(sinks)
        self._room, self._room_at = float(AT_ONCE), -math.inf
        self._surplus: dict[tuple[str, str, str | None], int] = {}
        self._has_surplus = trio.Event()

    def transition(
        self,
        chart: str,
        actor: str,
        event: str,
        source: str,
        target: str,
        effects: tuple[str, ...],
        origin: Origin = NOBODY,
        cause: str | None = None,
        saw: Saw | msgspec.UnsetType = msgspec.UNSET,
        at: float | None = None,
        label: str | None = None,
        comment: str | None = None,
    ) -> None:
        """A row was taken: `event` led from `source` to `target`. `cause` says why where the event alone doesn't, `saw`
        what was decided on, `at` when by the wall clock, where that is what decided, `label` what people tell the actor
        by, as it begins, `comment` what the key is called that did it."""
        seq = self._seq = self._seq + 1
        identity, address, request_id, trace, asked, _ = origin
        self._publish(
            Record(
                self._clock.wall() if at is None else at,
                seq,
                "transition",
                chart,
                actor,
                event,
                source,
                target,
                effects,
                identity,
                address,
                request_id,
                cause,
                saw=saw if asked is None else _asked(saw, origin),
                traceparent=trace or msgspec.UNSET,
                label=label or msgspec.UNSET,
                comment=comment or msgspec.UNSET,
            )
        )

    def refusal(
        self,
        chart: str,
        actor: str,
        event: str,
        cause: str,
        origin: Origin = NOBODY,
        source: str | None = None,
        saw: Saw | msgspec.UnsetType = msgspec.UNSET,
        at: float | None = None,
        comment: str | None = None,
    ) -> None:
        """No row was taken: nothing changed in `source`. `actor` is `-` where the event found none; `comment` is what
        the key is called that asked, where it has proven that it is that key.

        What comes from outside has a record of its own while there are few; past that it is surplus.
        """
        if origin.address is not None and not self._has_room():
            self.surplus(chart, event, origin)
            return
        seq = self._seq = self._seq + 1
        now = self._clock.wall() if at is None else at
        saw = saw if origin.asked is None else _asked(saw, origin)
        self._publish(
            Record(
                now,
                seq,
                "refusal",
                chart,
                actor,
                event,
                source,
                None,
                (),
                *origin[:3],
                cause,
                saw=saw,
                traceparent=origin.traceparent or msgspec.UNSET,
                comment=comment or msgspec.UNSET,
            )
        )

    def surplus(self, chart: str, event: str, origin: Origin) -> None:
        """Count a refusal past a limit. One record a second says how many there were from an address."""
        key = (chart, event, origin.address)
        if key not in self._surplus and len(self._surplus) >= SOURCES:
            key = (chart, event, None)
        self._surplus[key] = self._surplus.get(key, 0) + 1
        self._has_surplus.set()

    def tell_surplus(self) -> None:
        """Publish the surplus that was counted since the last time."""
        told, self._surplus = self._surplus, {}
        self._has_surplus = trio.Event()
        for (chart, event, address), count in told.items():
            seq = self._seq = self._seq + 1
            now, who = self._clock.wall(), (None, address, None)
            self._publish(Record(now, seq, "refusal", chart, "-", event, None, None, (), *who, SURPLUS, count=count))

    async def run(self) -> None:
        """Publish the surplus of each second, for ever."""
        while True:
            await self._has_surplus.wait()
            await trio.sleep(SURPLUS_INTERVAL)
            self.tell_surplus()

    def _has_room(self) -> bool:
        now = self._clock.elapsed()
        self._room = min(float(AT_ONCE), self._room + (now - self._room_at) * A_SECOND)
        self._room_at = now
        if self._room < 1:
            return False
        self._room -= 1
        return True

    def notice(
        self,
        chart: str,
        actor: str,
        event: str,
        cause: str | None = None,
        origin: Origin = NOBODY,
        saw: Saw | msgspec.UnsetType = msgspec.UNSET,
        comment: str | None = None,
    ) -> None:
        """News of the engine that no chart holds, as `NOTICES` has them. `comment` is what the key is called that the
        news is of."""
        seq = self._seq = self._seq + 1
        now, named = self._clock.wall(), comment or msgspec.UNSET
        self._publish(
            Record(now, seq, "notice", chart, actor, event, None, None, (), *origin[:3], cause, saw=saw, comment=named)
        )

    def _publish(self, record: Record) -> None:
        for sink in self.sinks:
            sink(record)


def _asked(saw: Saw | msgspec.UnsetType, origin: Origin) -> Saw:
    return msgspec.structs.replace(saw or Saw(), asked=origin.asked, held=origin.held)
