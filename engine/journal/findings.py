"""What a check of a journal finds: the first line that is false, or else what the journal holds."""

from __future__ import annotations

from pathlib import Path

import msgspec


class BadLine(Exception):
    """The first line that is not what the engine wrote, and why. `number` counts the lines of `path` from 1."""

    def __init__(self, path: Path, number: int, seq: int | None, why: str) -> None:
        super().__init__(f"{path}:{number}: {f'record {seq}: ' if seq else ''}{why}")
        self.path, self.number, self.seq, self.why = path, number, seq, why


class Findings(msgspec.Struct, frozen=True):
    """What a check saw. Times in epoch seconds.

    `steps` and `unknown` (actors whose beginning came before the first line) are by chart. `lost` records are told by
    the journal itself, `torn` lines were cut by an engine that was killed, `sifted` records have made room. `sealed` is
    the last record under a head, `unsealed` counts those after it; `witnessed` is the last under a head that was given.
    `skipped` steps are of an engine with other charts, by those charts' name.
    """

    records: int
    actors: int
    steps: dict[str, int]
    refusals: int
    notices: int
    first: int
    last: int
    since: float | None
    until: float | None
    unknown: dict[str, int]
    lost: int
    torn: int
    sifted: int
    sealed: int | None
    sealed_at: float | None
    unsealed: int
    witnessed: int | None
    witnessed_at: float | None
    skipped: dict[str, int]
