"""Records as they are handed on, and the choice of those that a target gets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec


class Parcel(NamedTuple):
    """One record on its way: its number, its JSON as it stands in the journal, and the same decoded."""

    seq: int
    data: bytes
    record: dict[str, Any]

    @property
    def name(self) -> str:
        """Chart and event, such as `session.start`."""
        return f"{self.record['chart']}.{self.record['event']}"


class NotTaken(Exception):
    """The target did not take the records, this time. `retry_after` in seconds, where it says so."""

    def __init__(self, why: str, retry_after: float | None = None) -> None:
        super().__init__(why)
        self.retry_after = retry_after


class Choice(msgspec.Struct, frozen=True):
    """What a target gets: what fits all that is given; with nothing given everything.

    `events` are names such as `start` or `session.start`. `new_address` is a sign-in from an address from which its
    identity has not signed in before, as far back as the journal reaches.
    """

    kinds: tuple[str, ...] = ()
    charts: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    new_address: bool = False

    @property
    def text(self) -> str:
        """The same choice has the same text."""
        return msgspec.json.encode(self).decode()


class Chooser:
    """Applies a choice, record after record."""

    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self._seen: set[tuple[str, str]] = set()

    def take(self, parcel: Parcel) -> bool:
        """Whether the target gets this record."""
        choice, record = self._choice, parcel.record
        fits = (
            (not choice.kinds or record["kind"] in choice.kinds)
            and (not choice.charts or record["chart"] in choice.charts)
            and (not choice.events or record["event"] in choice.events or parcel.name in choice.events)
        )
        return self._is_new(parcel) and fits if choice.new_address else fits

    def _is_new(self, parcel: Parcel) -> bool:
        record = parcel.record
        if parcel.name != "session.start" or record["kind"] != "transition":
            return False
        whence = (record["identity"] or "", record["address"] or "")
        is_new = whence not in self._seen
        self._seen.add(whence)
        return is_new

    def learn(self, parcels: Iterable[Parcel]) -> None:
        """Note the sign-ins of records that are not handed on, since they came before the position."""
        if self._choice.new_address:
            for parcel in parcels:
                self._is_new(parcel)
