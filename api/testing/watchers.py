"""Watches promises across steps, in an engine's records and responses: a test fails where one is broken."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode

from hatchway.engine.runtime.records import Record
from hatchway.statecharts.catalogue import CHARTS

FINAL = {name: chart.final for name, chart in CHARTS.items()}


class BrokenPromise(AssertionError):
    """The engine broke a promise."""


class Watchers:
    """A sink of records that keeps them, and notes each promise that was broken.

    The promises: records are numbered upward; an actor that came to its end moves no more; a session by code follows an
    operator's yes, and a code signs in at most once; no token is answered after its session's end.
    """

    def __init__(self, broken: list[str] | None = None) -> None:
        """`broken` are the promises that were broken before."""
        self.records: list[Record] = []
        self.broken: list[str] = [] if broken is None else broken
        self._final: set[tuple[str, str]] = set()
        self._approved: set[str] = set()

    def __call__(self, record: Record) -> None:
        """Take one record."""
        if self.records and record.seq <= self.records[-1].seq:
            self.broken.append(f"record {record.seq} comes after record {self.records[-1].seq}")
        self.records.append(record)
        if record.kind == "transition":
            self._follow_actor(record)
            self._follow_code(record)

    def _follow_actor(self, record: Record) -> None:
        actor = (record.chart, record.actor)
        if record.chart == "instance" and record.source == "none":
            self._final.discard(actor)  # the name of one that ended may be another's
        if actor in self._final:
            self.broken.append(f"the {record.chart} {record.actor} moved after its end, by {record.event}")
        if record.target in FINAL.get(record.chart, ()):
            self._final.add(actor)

    def _follow_code(self, record: Record) -> None:
        identity = record.identity or ""
        if record.chart == "pairing" and record.target == "approved":
            self._approved.add(f"pairing:{record.actor}")
        if record.chart == "session" and record.event == "start" and identity.startswith("pairing:"):
            if identity not in self._approved:
                self.broken.append(f"{identity} signed in without an operator's yes, or a second time")
            self._approved.discard(identity)

    def asked(self, authorization: bytes | None) -> str | None:
        """The session that ended before a request with this header came; None where there is none."""
        name = session_of(authorization)
        return name if name is not None and ("session", name) in self._final else None

    def answered(self, ended: str | None, status: int, path: str) -> None:
        """Such a request was answered with that status."""
        if ended is not None and status < 300:
            self.broken.append(f"{path} answered {status} to a token of the session {ended}, which had ended")

    def check(self) -> None:
        """Raises BrokenPromise, with every promise that was broken."""
        if self.broken:
            raise BrokenPromise("; ".join(self.broken))

    def told(self, chart: str) -> list[tuple[str, str | None]]:
        """Event and target of each record of a chart, in order."""
        return [(record.event, record.target) for record in self.records if record.chart == chart]


def session_of(authorization: bytes | None) -> str | None:
    """The session that a bearer token names, whether or not it is good; None for anything else."""
    try:
        body = (authorization or b"").split(b" ", 1)[1].split(b".")[1]
        name = json.loads(urlsafe_b64decode(body + b"=" * (-len(body) % 4)))["sid"]
    except (ValueError, IndexError, KeyError, TypeError):
        return None
    return name if isinstance(name, str) else None
