"""Somebody who follows the engine's events in virtual time, and reads them as browsers do."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from tests.support.fakes import Browser, Reply

EVENTS = "/api/events/"


class Event(NamedTuple):
    name: str
    id: int | None
    data: Any


def read_events(body: bytes) -> list[Event]:
    """The events of a stream, as WHATWG HTML 9.2.6 reads them; comments and `retry` are passed over."""
    found = []
    for block in body.decode().split("\n\n"):
        fields = [line.partition(": ") for line in block.splitlines() if line and not line.startswith((":", "retry"))]
        values = {name: value for name, _, value in fields}
        if "data" in values:
            number = int(values["id"]) if "id" in values else None
            found.append(Event(values.get("event", "message"), number, json.loads(values["data"])))
    return found


class Reader:
    """Somebody who follows the stream, from the record after `last` if that is given."""

    def __init__(self, browser: Browser, token: str, last: str | None = None) -> None:
        self.reply = Reply()
        self._browser, self._token = browser, token
        self._headers = {} if last is None else {"last-event-id": last}

    async def run(self) -> None:
        await self._browser.talk(self.reply, "GET", EVENTS, token=self._token, headers=self._headers)

    @property
    def events(self) -> list[Event]:
        return read_events(self.reply.body)

    @property
    def ids(self) -> list[int | None]:
        return [event.id for event in self.events]
