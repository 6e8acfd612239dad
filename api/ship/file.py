"""Appends records to a file, each once: what the file holds already is looked up in it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hatchway.api.ship.records import Parcel
from hatchway.engine.base import files
from hatchway.engine.journal.files import PIECE, RecordLine, parse


class FileTarget:
    """One file, 0600, which others may move away: it is opened for each batch."""

    most = 1000

    def __init__(self, path: Path) -> None:
        self._path = path

    def send(self, parcels: Sequence[Parcel]) -> None:
        """Append what the file does not have yet. Raises OSError, FileRefused."""
        fd = files.open_append(self._path)
        try:
            last, torn = self._end()
            data = b"".join(parcel.data + b"\n" for parcel in self._lacking(parcels, last))
            if data:
                data = b"\n" * torn + data
                while data:
                    data = data[os.write(fd, data) :]
                os.fsync(fd)
        finally:
            os.close(fd)

    def _lacking(self, parcels: Sequence[Parcel], last: RecordLine | None) -> Sequence[Parcel]:
        """The records that are not in the file yet. Numbers alone do not say that: the file may hold another engine's
        records."""
        if last is None or last.seq < parcels[0].seq:
            return parcels
        for place, parcel in enumerate(parcels):
            if parcel.data == last.data:
                return parcels[place + 1 :]
        lacking = {parcel.data for parcel in parcels}
        with self._path.open("rb") as file:
            for line in file:
                lacking.discard(line.rstrip(b"\n"))
        return [parcel for parcel in parcels if parcel.data in lacking]

    def _end(self) -> tuple[RecordLine | None, bool]:
        """The last record in the file, and whether its last line was cut."""
        with self._path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - PIECE))
            data = file.read()
        found = [line for line in map(parse, data.split(b"\n")) if line]
        return found[-1] if found else None, bool(data) and not data.endswith(b"\n")

    def settled(self, sent: int) -> int:
        return sent

    def finish(self, sent: int) -> int:
        return sent

    def close(self) -> None:
        """Nothing is held open."""
