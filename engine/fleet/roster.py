"""The list of all engines' instances in the fleet's store: names are taken atomically, a row is its engine's alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import structlog
import trio

from hatchway.engine.base.errors import StoreUnavailable
from hatchway.engine.fleet.fleet import Fleet
from hatchway.engine.instances.request import InstanceRequest
from hatchway.engine.instances.supervisor import InstanceFacts
from hatchway.engine.store.redis import PREFIX
from hatchway.engine.store.scripts import DROP, ENTER, ROWS

log = structlog.get_logger(__name__)

ROWS_OF = PREFIX + "instances"

FULL = "|"
"""What `enter` returns in place of a host's name where the owner of an instance has as many as it may. No host is
named so."""

AT_ONCE = 64
"""Rows that are decoded in one event-loop tick: a fleet may have thousands."""

_encode = msgspec.msgpack.Encoder().encode


class InstanceReport(msgspec.Struct, array_like=True, frozen=True):
    """What an engine tells the others of an instance. Of variables it tells the names, and no values."""

    state: str
    progress: str | None
    facts: InstanceFacts


_decode = msgspec.msgpack.Decoder(InstanceReport).decode


class Row(NamedTuple):
    """An instance as its engine told it last, at `version` of its actor. The engine is `engine_id` on `host`;
    `run_id` names its last run, and `answers` says whether that is alive."""

    name: str
    engine_id: str
    generation: str
    version: int
    told: InstanceReport
    host: str
    run_id: str
    answers: bool


class Roster:
    """One engine's access to the list. Every method raises StoreUnavailable."""

    def __init__(self, fleet: Fleet) -> None:
        self._link, self.engine_id = fleet.link, fleet.lease.engine_id
        self._read: dict[bytes, InstanceReport] = {}
        """Decoded rows by their bytes. Most rows are as they were, and decoding one takes 20 us."""

    async def enter(self, name: str, version: int, live: bool, told: InstanceReport, most: int | None = None) -> str:
        """Write a row of this engine. Returns the host whose instance has the name, empty where the row is written;
        with `most`, FULL where the whole fleet has so many live instances of its owner already."""
        args = [name, self.engine_id, generation_of(told.facts), version, int(live), _encode(told)]
        args += ["", ""] if most is None else [told.facts.owner, most]
        held: bytes = await self._link.script(ENTER, [ROWS_OF], args, durable=True)
        return held.decode()

    async def drop(self, name: str, generation: str) -> None:
        """Delete the row of this engine's instance of that name and generation."""
        await self._link.script(DROP, [ROWS_OF], [name, self.engine_id, generation], durable=True)

    async def rows(self) -> list[Row]:
        """The rows of all engines."""
        answer = await self._link.script(ROWS, [ROWS_OF], [])
        rows, known = [], {}
        for place in range(0, len(answer), 4):
            row = answer[place + 1]
            try:
                known[row] = self._read.get(row) or _told(row)
            except msgspec.DecodeError as fault:  # one row that can't be decoded must not hide all others
                log.warning("instance_not_understood", name=answer[place].decode(), why=str(fault))
                continue
            rows.append(_row(answer, place, known[row]))
            if len(rows) % AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        self._read = known
        return rows

    async def row(self, name: str) -> Row | None:
        """The row of that name, None where there is none."""
        answer = await self._link.script(ROWS, [ROWS_OF], [name])
        try:
            return _row(answer, 0, _told(answer[1])) if answer else None
        except msgspec.DecodeError:
            words = (
                f"what the store holds of instance {name} is not understood here: its engine may be of a newer version"
            )
            raise StoreUnavailable(words) from None


def generation_of(facts: InstanceFacts) -> str:
    """What tells an instance from a later one of the same name at the same engine."""
    return f"{facts.requested_at:.6f}"


def without_values(request: InstanceRequest) -> InstanceRequest:
    """The request without the values of its variables."""
    return msgspec.structs.replace(request, env=tuple(f"{pair.partition('=')[0]}=" for pair in request.env))


def _told(row: bytes) -> InstanceReport:
    return _decode(row.split(b"|", 4)[4])


def _row(answer: list[Any], place: int, told: InstanceReport) -> Row:
    name, row, home_now, alive = answer[place : place + 4]
    home, generation, version, _ = row.split(b"|", 3)
    run, _, host = home_now.decode().partition("|")
    return Row(name.decode(), home.decode(), generation.decode(), int(version), told, host, run, bool(alive))
