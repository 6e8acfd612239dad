"""A fleet's engines keep each other's heads: who rewrites the journal of one would have to reach all the others too."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import structlog

from hatchway.engine.base import files
from hatchway.engine.base.errors import FileRefused
from hatchway.engine.fleet.fleet import Fleet
from hatchway.engine.fleet.lease import inbox
from hatchway.engine.fleet.messages import Message
from hatchway.engine.journal.heads import LONGEST_HEAD, Heads, append_head
from hatchway.engine.store.scripts import SEND

log = structlog.get_logger(__name__)

FOLDER = "witnessed"
"""In the journal's folder: a file for each other engine, a head a line."""


class Witness:
    """One engine's part: it tells its own heads, and keeps the others'."""

    def __init__(self, fleet: Fleet, heads: Heads, folder: Path) -> None:
        self._fleet, self._folder = fleet, folder / FOLDER
        files.make_private_dir(self._folder)
        heads.subscribers.append(self._tell)
        fleet.messages.subscribe("head", self._take)

    def _tell(self, signed: str) -> None:
        self._fleet.messages.write_later(partial(self._send, signed))

    async def _send(self, signed: str) -> None:
        fields = ("kind", "head", "home", self._fleet.lease.engine_id, "head", signed)
        for run in await self._fleet.others():
            await self._fleet.link.script(SEND, [inbox(run)], fields)

    async def _take(self, message: Message) -> None:
        home, signed = message["home"].decode("ascii", "replace"), message["head"].decode("ascii", "replace")
        name = re.sub(r"[^A-Za-z0-9]+", "-", home).strip("-")[:80]
        if not name or len(signed) > LONGEST_HEAD or not re.fullmatch(r"[\w-]+\.[\w-]+\.[\w-]+", signed):
            log.warning("head_not_kept", why="it has not the form of a head")
            return
        try:
            append_head(self._folder / name, signed)
        except (OSError, FileRefused) as error:
            log.warning("head_not_kept", why=str(error))
