"""One record a step: log line, audit entry, event and test subject at once. Section 6."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from engine.clock import Clock


class Origin(NamedTuple):
    """Who is behind an event: the identity that acts, the socket's peer, and the request it came with."""

    identity: str | None = None
    address: str | None = None
    request_id: str | None = None


NOBODY = Origin()
"""A timer, or the engine itself."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """What happened to one actor. No field ever holds a code, token, nonce, signature or key.

    `time` is in epoch seconds, `seq` grows by one a record and never repeats on one engine. `kind` is `transition` (a
    row was taken), `refusal` (none was, `target` is None and `cause` says why) or `notice` (the engine's own news).
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


Sink = Callable[[Record], None]


class Records:
    """Numbers the records and hands each to every sink, in order. A sink is plain and quick, and must not raise."""

    def __init__(self, clock: Clock, *sinks: Sink, last_seq: int = 0) -> None:
        self._clock = clock
        self._seq = last_seq
        self.sinks = list(sinks)

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
    ) -> None:
        """A row was taken: `event` led from `source` to `target`. `cause` says why where the event alone doesn't."""
        seq = self._seq = self._seq + 1
        now = self._clock.wall()
        self._publish(Record(now, seq, "transition", chart, actor, event, source, target, effects, *origin, cause))

    def refusal(
        self, chart: str, actor: str, event: str, cause: str, origin: Origin = NOBODY, source: str | None = None
    ) -> None:
        """No row was taken: nothing changed in `source`. `actor` is `-` where the event found none."""
        seq = self._seq = self._seq + 1
        now = self._clock.wall()
        self._publish(Record(now, seq, "refusal", chart, actor, event, source, None, (), *origin, cause))

    def notice(self, chart: str, actor: str, event: str, cause: str | None = None, origin: Origin = NOBODY) -> None:
        """News of the engine that no chart holds: a start, a key registered, a setting reloaded."""
        seq = self._seq = self._seq + 1
        now = self._clock.wall()
        self._publish(Record(now, seq, "notice", chart, actor, event, None, None, (), *origin, cause))

    def _publish(self, record: Record) -> None:
        for sink in self.sinks:
            sink(record)
