"""Fakes and builders that several tests use: keys made once, engines in virtual time, watchers on the records."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from engine.clock import TrioClock
from engine.engine import Engine, open_engine
from engine.records import Record
from engine.settings import Settings
from engine.trust.keys import Algorithm, PrivateKey, generate_key, sign
from engine.trust.permissions import FIVE

ROOT = Path(__file__).parents[1]


def vectors() -> Path:
    """The fetched test vectors: HATCHWAY_VECTORS, or beside the checkout."""
    return Path(os.environ.get("HATCHWAY_VECTORS") or ROOT.parent / "shared" / "vectors")


def effort() -> float:
    """How long the long runs are: 1 in CI, 10 by hand."""
    return float(os.environ.get("HATCHWAY_EFFORT") or 1)


@cache
def key(name: str = "one") -> PrivateKey:
    """An RSA-2048 key of the tests, the same for one name all through a run."""
    return generate_key(2048)


def signed(nonce: str, private: PrivateKey, algorithm: Algorithm = "PS256") -> dict[str, str]:
    """The body of a verify."""
    signature = b64encode(sign(private, nonce.encode(), algorithm)).decode()
    return {"nonce": nonce, "signature": signature, "algorithm": algorithm}


class Watch:
    """A sink that keeps the records and asserts the promises across steps, in every test that uses an engine."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._final: set[tuple[str, str]] = set()
        self._approved: set[str] = set()

    def __call__(self, record: Record) -> None:
        assert not self.records or record.seq > self.records[-1].seq
        self.records.append(record)
        if record.kind != "transition":
            return
        actor = (record.chart, record.actor)
        assert actor not in self._final, f"{actor} moved after its end: {record}"
        if record.target in FINAL[record.chart]:
            self._final.add(actor)
        if record.chart == "pairing" and record.target == "approved":
            self._approved.add(f"pairing:{record.actor}")
        if record.chart == "session" and record.event == "start" and (record.identity or "").startswith("pairing:"):
            assert record.identity in self._approved, "a session that no operator approved"
            self._approved.discard(record.identity or "")  # a code works once

    def told(self, chart: str) -> list[tuple[str, str | None]]:
        """Event and target of each record of a chart, in order."""
        return [(record.event, record.target) for record in self.records if record.chart == chart]


FINAL = {
    "session": {"ended", "expired"},
    "pairing": {"approved", "rejected", "expired", "withdrawn", "left"},
    "instance": {"stopped", "failed"},
}


@asynccontextmanager
async def virtual_engine(home: Path, clock: TrioClock | None = None, **settings: Any) -> AsyncIterator[Engine]:
    """An engine in trio's time, its store written inline; `engine.watch` holds its records. Key `one` is authorized."""
    async with open_engine(home, lambda: Settings(**settings), clock or TrioClock(), inline=True) as engine:
        engine.records.sinks.append(watch := Watch())
        engine.watch = watch  # type: ignore[attr-defined]
        engine.keys.register(key().public, FIVE)
        yield engine


def watch_of(engine: Engine) -> Watch:
    """The records of a virtual engine."""
    watch: Watch = engine.watch  # type: ignore[attr-defined]
    return watch
