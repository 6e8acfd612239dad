"""Responses of the engine that a worker may give again, while version counters say that nothing has changed."""

from __future__ import annotations

from typing import NamedTuple

from hatchway.api.http.request import Request, Response
from hatchway.api.workers.engine_client import EngineClient
from hatchway.api.workers.messages import Responded
from hatchway.engine.sessions.versions import VersionMark

KEPT = 8192
"""Responses that are kept at most: a kilobyte each, 8 MiB together."""

Key = tuple[str, bytes]
"""A path, and the exact value of the Authorization header."""


def key_of(request: Request) -> Key | None:
    """The key under which the response to a request may be kept; None for a request without a token, or with two, and
    for a traced one, whose response has an id of its own."""
    if request.method != "GET":
        return None
    token = None
    for name, value in request.headers:
        if name == b"traceparent" or (name == b"authorization" and token is not None):
            return None
        if name == b"authorization":
            token = value
    return None if token is None else (request.path, token)


class Kept(NamedTuple):
    """A response of the engine's. It is valid while `mark` holds and authorized_keys has the version `keys`, and until
    `until`, in epoch seconds."""

    response: Response
    mark: VersionMark
    keys: int
    until: float


class ResponseCache:
    """Responses by key, `KEPT` at most: the oldest makes room for a new one."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._kept: dict[Key, Kept] = {}

    def get(self, key: Key) -> Response | None:
        """The response, if it is still valid; else None."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        client = self._client
        if (
            kept.until > client.clock.wall()
            and client.counters.holds(kept.mark, client.clock.elapsed())
            and kept.keys == client.keys.version()
        ):
            return kept.response
        del self._kept[key]
        return None

    def put(self, key: Key, told: Responded, keys: int) -> None:
        """Keep the engine's response, where it may be given again. `keys` is the version that authorized_keys had
        before the engine was asked, so that a change since then makes the response invalid."""
        if told.response is None or told.mark is None or keys < 0:
            return
        if len(self._kept) >= KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = Kept(told.response, told.mark, keys, told.until)
