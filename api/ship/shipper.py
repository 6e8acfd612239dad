"""Hands records on, in order, from where it left off, for as long as it runs: at least once each, whatever fails.

The journal itself is the queue, on disk and bounded: the engine writes it and waits for nobody. A position is kept for
each target; it moves once the target surely has what is behind it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from threading import Event

import msgspec
import structlog

from hatchway.api.ship.records import Choice, Chooser, NotTaken, Parcel
from hatchway.api.ship.targets import Target
from hatchway.engine.base import files
from hatchway.engine.base.clock import Clock
from hatchway.engine.base.errors import FileRefused
from hatchway.engine.journal import shipments
from hatchway.engine.journal.files import read_after
from hatchway.engine.journal.shipments import Shipment

log = structlog.get_logger(__name__)

LOOK_INTERVAL = 0.25
"""Seconds between two looks for new records."""

SAVE_INTERVAL = 1.0
"""Seconds at most that a position which moved is not written down, where nothing was handed on."""

SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two tries: doubled each time, and drawn, so that many do not come back at once."""

_decode = msgspec.json.Decoder().decode


class Shipper:
    """One target's."""

    def __init__(self, home: Path, name: str, target: Target, choice: Choice, clock: Clock) -> None:
        """`name` is the address of the target. Raises FileRefused."""
        self._folder, self._target, self._clock = home / "log", target, clock
        self._path = shipments.path_of(home, name, choice.text)
        files.make_private_dir(self._path.parent)
        self.state = shipments.read(self._path) or Shipment(shipments.shown(name))
        """How far it is."""
        self._written = self.state
        self._written_at = clock.elapsed()
        self._choice = choice
        self._times: dict[int, float] = {}

    def begin_now(self, seq: int) -> None:
        """A target that never had anything begins behind record `seq`."""
        if not self.state.seq:
            self.state = msgspec.structs.replace(self.state, seq=seq)
            self._save()

    def run(self, stop: Event, *, once: bool = False) -> None:
        """Until `stop` is set; or, `once`, until all that is there was handed on."""
        pause = SHORTEST_PAUSE
        while not stop.is_set():
            try:
                for _ in self._ship(stop, once=once):
                    pause = SHORTEST_PAUSE
                break
            except (OSError, NotTaken, FileRefused) as fault:
                self._fail(str(fault) or type(fault).__name__)
                asked = fault.retry_after if isinstance(fault, NotTaken) else None
                stop.wait(asked or pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
                pause = min(2 * pause, LONGEST_PAUSE)
        self._target.close()
        self._save()

    def _ship(self, stop: Event, *, once: bool) -> Iterator[None]:
        """Hand on what is there and what comes; yields whenever something was taken. Raises OSError, NotTaken."""
        sent, chooser = self.state.seq, self._chooser()
        while not stop.is_set():
            moved = False
            for batch in self._batches(sent, chooser):
                chosen = [parcel for parcel, wanted in batch if wanted]
                if chosen:
                    self._target.send(chosen)
                moved, sent = True, batch[-1][0].seq
                self._settle(sent, len(chosen), batch[-1][0].record["time"])
                yield
                if stop.is_set():
                    break
            if not moved:
                self._settle(sent, 0, 0.0)
                if once:
                    break
                stop.wait(LOOK_INTERVAL)
        self._move(self._target.finish(sent))

    def _chooser(self) -> Chooser:
        chooser = Chooser(self._choice)
        if self._choice.new_address:
            chooser.learn(parcel for parcel in self._parcels(0) if parcel.seq <= self.state.seq)
        return chooser

    def _parcels(self, after: int) -> Iterator[Parcel]:
        for lines in read_after(self._folder, after):
            for line in lines:
                yield Parcel(line.seq, line.data, _decode(line.data))

    def _batches(self, after: int, chooser: Chooser) -> Iterator[list[tuple[Parcel, bool]]]:
        parcels = self._parcels(after)
        while batch := list(islice(parcels, self._target.most)):
            gone = batch[-1].seq - after - len(batch)
            if gone:
                log.warning("records_missed", count=gone, before=batch[-1].seq)
                self.state = msgspec.structs.replace(self.state, missed=self.state.missed + gone)
            after = batch[-1].seq
            yield [(parcel, chooser.take(parcel)) for parcel in batch]

    def _settle(self, sent: int, count: int, time: float) -> None:
        """What was sent counts as taken once the target surely has it."""
        if time:
            self._times[sent] = time
        if count:
            self.state = msgspec.structs.replace(self.state, sent=self.state.sent + count)
        self._move(self._target.settled(sent))

    def _move(self, seq: int) -> None:
        if seq > self.state.seq:
            known = [number for number in self._times if number <= seq]
            time = max((self._times.pop(number) for number in known), default=self.state.time)
            self.state = msgspec.structs.replace(self.state, seq=seq, time=time, error=None, error_at=None)
        if self.state != self._written and (
            self.state.sent > self._written.sent or self._clock.elapsed() - self._written_at >= SAVE_INTERVAL
        ):
            self._save()

    def _fail(self, why: str) -> None:
        self._target.close()
        self._times.clear()
        if self.state.error != why:
            log.warning("records_not_taken", target=self.state.target, why=why)
        failures, now = self.state.failures + 1, self._clock.wall()
        self.state = msgspec.structs.replace(self.state, failures=failures, error=why[:200], error_at=now)
        self._save()

    def _save(self) -> None:
        try:
            shipments.write(self._path, self.state)
        except (OSError, FileRefused) as error:
            log.warning("position_not_written", why=str(error))
        else:
            self._written, self._written_at = self.state, self._clock.elapsed()
