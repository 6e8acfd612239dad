"""The messages between the engine and its workers, by the channel and at the relay's socket."""

from __future__ import annotations

import msgspec

from hatchway.api.http.request import Headers, Request, Response
from hatchway.engine.access.challenges import ChallengeFacts
from hatchway.engine.access.devices import Device
from hatchway.engine.runtime.records import Origin
from hatchway.engine.sessions.versions import VersionSnapshot
from hatchway.engine.settings.sources import EncodedSettings


class Configure(msgspec.Struct, array_like=True, tag=1):
    """The settings and keys that a worker uses from now on. `own_key` is the engine's public key, in OpenSSH's form;
    `mac_key` makes and recognises challenges, and is empty where the worker leaves them to the engine. `added` are the
    addresses that count for a while."""

    home: bytes
    settings: EncodedSettings
    bound: tuple[tuple[str, int], ...]
    own_key: str
    mac_key: bytes
    added: tuple[str, ...] = ()


class Stop(msgspec.Struct, array_like=True, tag=2):
    """The engine ends: accept no connection, and finish the requests that are under way."""


class Responded(msgspec.Struct, array_like=True, tag=3):
    """The engine's response to the `HandleRequest` of that number; to a `CheckHead` what refuses it, None for nothing.

    While the version counters stand as in `snapshot`, and until `until` (epoch seconds), the same request has the same
    response. Without a snapshot it is not to be given again.
    """

    number: int
    response: Response | None
    snapshot: VersionSnapshot | None = None
    until: float = 0.0


class SessionStarted(msgspec.Struct, array_like=True, tag=4):
    """The response's body for the `StartSession` of that number; None where no session was started."""

    number: int
    body: bytes | None


ToWorker = Configure | Stop | Responded | SessionStarted


class Configured(msgspec.Struct, array_like=True, tag=1):
    """The last `Configure` is in force."""


class HandleRequest(msgspec.Struct, array_like=True, tag=2):
    """A screened request at a plain endpoint, for the engine to answer."""

    number: int
    request: Request


class StartSession(msgspec.Struct, array_like=True, tag=3):
    """The key of this identity has signed the challenge; a session is asked for."""

    number: int
    challenge: ChallengeFacts
    identity: str
    lifetime: int
    origin: Origin
    device: Device


class RequestCount(msgspec.Struct, array_like=True, tag=4):
    """How many requests of one method, path and status the worker answered since its last `RequestCounts`.

    `buckets` counts them by the bounds of `metrics.FINEST`; `seconds` is their time in all.
    """

    method: str
    path: str
    status: int
    buckets: list[int]
    seconds: float


class RequestCounts(msgspec.Struct, array_like=True, tag=5):
    """What the worker answered since the last message of this type."""

    rows: list[RequestCount]


class CheckHead(msgspec.Struct, array_like=True, tag=6):
    """A request whose body has not been read: may it come? A `Responded` says what refuses it, if anything does."""

    number: int
    request: Request


ToEngine = Configured | HandleRequest | StartSession | RequestCounts | CheckHead


class RelayedRequest(msgspec.Struct, array_like=True):
    """A whole request that the worker leaves to the engine's app, and what else an ASGI scope says of it."""

    request: Request
    scheme: str
    http_version: str
    raw_path: bytes


BROKEN = -1


class Part(msgspec.Struct, array_like=True):
    """A part of the app's answer: the first has a status and the headers. BROKEN for a status says that the app has
    failed, and that no more will come."""

    status: int
    headers: Headers
    body: bytes
    more: bool
