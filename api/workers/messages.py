"""What engine and worker processes say to each other: msgpack, each message after its length."""

from __future__ import annotations

from typing import Any

import msgspec

from hatchway.api.http.request import Headers, Request, Response
from hatchway.engine.access.challenges import Challenge
from hatchway.engine.runtime.records import Origin
from hatchway.engine.sessions.versions import VersionMark
from hatchway.engine.settings.sources import Plain

LENGTH = 4
"""Bytes of a message's length before it."""


class Configure(msgspec.Struct, array_like=True, tag=1):
    """What a worker goes by from now on, in place of what it had. `own_key` is the engine's, in OpenSSH's form;
    `mac_key` makes and recognises challenges, and is empty where the worker leaves them to the engine."""

    home: bytes
    settings: Plain
    bound: tuple[tuple[str, int], ...]
    own_key: str
    mac_key: bytes


class Stop(msgspec.Struct, array_like=True, tag=2):
    """The engine ends: accept nobody, end what is being answered."""


class Told(msgspec.Struct, array_like=True, tag=3):
    """The engine's response to the `Ask` of that number, or what refuses the `Enter` (None: nothing does).

    While the version counters of `mark` stand still, and until `until` (epoch seconds), the same request has the same
    response. Without a mark it is not to be given again.
    """

    number: int
    response: Response | None
    mark: VersionMark | None = None
    until: float = 0.0


class Admitted(msgspec.Struct, array_like=True, tag=4):
    """The answer's body for the `Admit` of that number; None where it was refused."""

    number: int
    body: bytes | None


ToWorker = Configure | Stop | Told | Admitted


class Ready(msgspec.Struct, array_like=True, tag=1):
    """The last `Configure` is in force."""


class Ask(msgspec.Struct, array_like=True, tag=2):
    """A screened request at a plain endpoint, for the engine to answer."""

    number: int
    request: Request


class Admit(msgspec.Struct, array_like=True, tag=3):
    """The key of this identity has signed the challenge; a session is asked for."""

    number: int
    challenge: Challenge
    identity: str
    lifetime: int
    origin: Origin


class Tallied(msgspec.Struct, array_like=True, tag=4):
    """Requests of one kind that the worker answered since it last told: how many in each of the finest buckets."""

    method: str
    path: str
    status: int
    buckets: list[int]
    seconds: float


class Counts(msgspec.Struct, array_like=True, tag=5):
    """All of them."""

    rows: list[Tallied]


class Enter(msgspec.Struct, array_like=True, tag=6):
    """A request whose body has not been read: may it come? Answered by a `Told`, whose response, if any, refuses it."""

    number: int
    request: Request


ToEngine = Ready | Ask | Admit | Counts | Enter


class Head(msgspec.Struct, array_like=True):
    """A whole request that the worker leaves to the engine's app, and who made it: the fields of an ASGI scope."""

    method: str
    scheme: str
    http_version: str
    path: str
    raw_path: bytes
    query: bytes
    headers: Headers
    client: tuple[str, int] | None
    server: tuple[str, int] | None
    body: bytes


BROKEN = -1


class Part(msgspec.Struct, array_like=True):
    """A part of the app's answer: the first has a status and the headers. BROKEN for a status says that the app has
    failed, and that no more will come."""

    status: int
    headers: Headers
    body: bytes
    more: bool


_encode = msgspec.msgpack.Encoder().encode


def frame(message: Any) -> bytes:
    """A message as it is sent."""
    data = _encode(message)
    return len(data).to_bytes(LENGTH, "big") + data


class Frames:
    """Puts what was received together again."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes | bytearray) -> list[bytes]:
        """The messages that are whole now."""
        buffer = self._data
        buffer += data
        found, begin = [], 0
        while len(buffer) >= begin + LENGTH:
            end = begin + LENGTH + int.from_bytes(buffer[begin : begin + LENGTH], "big")
            if len(buffer) < end:
                break
            found.append(bytes(buffer[begin + LENGTH : end]))
            begin = end
        del buffer[:begin]
        return found
