"""Shapes of what endpoints take and return, for the description of the API (`/openapi.json`) alone."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from hatchway.engine.access.principal import Method
from hatchway.engine.runtime.records import Record
from hatchway.statecharts.pairing import DECISION_WINDOW

MOST_ROWS = 200
"""Rows of a list in one page."""

Epoch = Annotated[int, Meta(description="Seconds since the epoch.")]
Permissions = Annotated[list[str], Meta(description="Names of permissions; `:READ` after a name: may look only.")]


class Shape(msgspec.Struct, forbid_unknown_fields=True):
    """An object that has these fields and no others."""


class ChallengeShape(Shape):
    """What is to be signed (section 2.1)."""

    identity: str
    nonce: Annotated[str, Meta(pattern=r"^hatchway-auth-v1\.")]
    lifetime: Annotated[str, Meta(pattern="^[0-9]+m[0-9]+s$")]


KeyExpiry = Annotated[Epoch, Meta(description="When the session's key expires, from a week before.")]


class SessionShape(Shape, omit_defaults=True):
    """A token and what it is good for (section 2.2)."""

    token: str
    permissions: Permissions
    expires_at: Epoch
    key_expires_at: KeyExpiry | msgspec.UnsetType = msgspec.UNSET


class InspectionShape(Shape, omit_defaults=True):
    """A session that is still good, and what it may do now (section 4.3)."""

    valid: Literal[True]
    session: str
    identity: str
    method: Method
    permissions: Permissions
    expires_at: Epoch
    key_expires_at: KeyExpiry | msgspec.UnsetType = msgspec.UNSET


class AcceptedShape(Shape):
    """First item of a pairing: the code was accepted, the operator is asked. `match` is shown on both sides."""

    accepted: Literal[True]
    match: Annotated[str, Meta(pattern="^[0-9]{2}$")]
    expires_in: Annotated[int, Meta(description="Seconds for the answer.", le=int(DECISION_WINDOW))]


class LiveSessionShape(Shape):
    """One live session."""

    session: str
    identity: str
    comment: Annotated[str, Meta(description="That of its key.")] | None
    method: Method
    permissions: Permissions
    started_at: Epoch
    expires_at: Epoch
    address: str
    label: Annotated[str, Meta(description="What people tell the session by; by default its program and system.")]
    agent: Annotated[str, Meta(description="The program that asked for the session, as it named itself.")]
    used_at: Epoch
    current: Annotated[bool, Meta(description="Whether it is the caller's own.")]


Next = Annotated[str, Meta(description="There is more: the `after` of the next page.")]


class LiveSessionsShape(Shape, omit_defaults=True):
    """The live sessions that the caller may see, a page of them, in the order of their starts."""

    sessions: Annotated[list[LiveSessionShape], Meta(max_length=MOST_ROWS)]
    next: Next | msgspec.UnsetType = msgspec.UNSET


class KeyShape(Shape, rename={"from_": "from"}):
    """An authorized key. What is null is not limited, or not known."""

    identity: str
    comment: str
    permissions: Permissions
    bits: int
    expires_at: Epoch | None
    from_: str | None
    instances: int | None
    lifetime: Annotated[int, Meta(description="Seconds of the longest session.")] | None
    registered_at: Epoch | None
    used_at: Epoch | None


class KeysShape(Shape, omit_defaults=True):
    """The keys that may sign in, a page of them, in the order of their identities."""

    keys: Annotated[list[KeyShape], Meta(max_length=MOST_ROWS)]
    next: Next | msgspec.UnsetType = msgspec.UNSET


class StatusPayloadShape(Shape):
    """0, or the runtime's exit code."""

    code: int
    message: str


class StatusShape(Shape):
    """The first item (section 2.7)."""

    kind: Literal["status"]
    payload: StatusPayloadShape


class NameShape(Shape):
    """The second item: the instance's identity."""

    kind: Literal["entity"]
    payload: str


class RunningPayloadShape(Shape):
    """What the runtime lists."""

    img: str
    instance: str
    ip: str
    log_err_path: str
    log_out_path: str
    pid: int


class RunningShape(Shape):
    """The third item."""

    kind: Literal["entity"]
    payload: RunningPayloadShape


class InstanceShape(Shape):
    """An instance: its state, where it is, what was asked for, what the runtime says, how its command ended."""

    identity: str
    state: Literal["requested", "starting", "queued", "running", "stopping", "stopped", "failed"]
    host: Annotated[str, Meta(description="The host of the engine that runs it, which alone knows and ends it.")]
    host_answers: Annotated[
        bool, Meta(description="Whether that engine does; where not, all the rest is what it told last.")
    ]
    progress: Annotated[str | None, Meta(description="What a start is doing; of a queued one, Slurm's reason.")]
    owner: str
    image: str
    command: list[str]
    env: Annotated[list[str], Meta(description="Names only.")]
    volume: list[str]
    cpu: str | None
    memory: str | None
    gpu: str | None
    fakeroot: bool
    partition: str | None
    account: str | None
    time_limit: Annotated[int | None, Meta(description="Seconds.")]
    job: Annotated[str | None, Meta(description="Slurm's number.")]
    node: Annotated[str | None, Meta(description="Where it runs, if not on `host`.")]
    requested_at: Epoch
    started_at: Epoch | None
    ended_at: Epoch | None
    exit_code: int | None
    failure: str | None
    img: str | None
    ip: str | None
    pid: int | None
    log_out_path: str | None
    log_err_path: str | None


class InstancesShape(Shape, omit_defaults=True):
    """The instances of this engine, and of the others of its fleet, live or ended lately: a page of them, by name."""

    instances: Annotated[list[InstanceShape], Meta(max_length=MOST_ROWS)]
    may_ask: Annotated[
        list[Literal["partition", "account", "time_limit"]],
        Meta(description="The fields of Slurm's that a start may have here; none where the platform is another."),
    ]
    next: Next | msgspec.UnsetType = msgspec.UNSET


Issuer = Annotated[str, Meta(description="The `iss` of this engine's tokens, or its fleet's.", pattern="^urn:uuid:")]


class JwkShape(Shape):
    """A public key of session tokens (RFC 8037)."""

    kty: Literal["OKP"]
    crv: Literal["Ed25519"]
    x: str
    kid: str
    use: Literal["sig"]
    alg: Literal["EdDSA"]


class JwksShape(Shape):
    """A JWK Set (RFC 7517), with the `iss` and `aud` of the tokens that its keys verify."""

    issuer: Issuer
    keys: list[JwkShape]


class AliveShape(Shape):
    """The process answers."""

    status: Literal["ok"]


class ReadyShape(Shape):
    """Sign-ins can be served. `certificate` is the SHA-256 fingerprint of the engine's own, None without TLS."""

    status: Literal["ready"]
    issuer: Issuer
    certificate: str | None


class SpotShape(Shape):
    """A point of the picture, in pixels."""

    x: float
    y: float


class ChartStateShape(Shape):
    """A state and its box; `x`, `y` is the upper left corner."""

    name: str
    x: float
    y: float
    width: float
    height: float
    final: bool


class ChartRowShape(Shape):
    """A row and its line; `ours` marks one that the specification does not have."""

    state: str
    event: str
    guard: str
    target: str
    effects: list[str]
    ours: bool
    label: SpotShape
    points: list[Annotated[list[float], Meta(min_length=2, max_length=2)]]


class ChartDelayShape(Shape):
    """Leaving a state by time: a number of seconds, or the name of the rule that tells it."""

    state: str
    event: str
    seconds: float | str
    clock: Literal["elapsed", "wall"]


class ChartShape(Shape):
    """A chart with its layout."""

    name: str
    initial: Literal["none"]
    final: list[str]
    states: list[ChartStateShape]
    rows: list[ChartRowShape]
    delays: list[ChartDelayShape]
    width: float
    height: float


class GapShape(Shape):
    """The records after `after`, up to and with `until`, can't be had any more."""

    after: int
    until: int


class HistoryShape(Shape, omit_defaults=True):
    """A page of records, oldest first. `next` goes on behind it, and is null at the end; a page may have none and yet a
    `next`: so much was looked through. `states` tells how many actors were in which state before the first of them."""

    records: list[Record]
    next: int | None
    states: dict[str, dict[str, int]] | msgspec.UnsetType = msgspec.UNSET


class OverviewShape(Shape):
    """What happened in each stretch of `step` seconds from `since` on; `sessions` were alive at its end."""

    since: float
    step: int
    sign_ins: list[int]
    refusals: list[int]
    sessions: list[int]


class ProblemShape(Shape, omit_defaults=True):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: Annotated[str, Meta(description="A sentence for people.")]
    code: Annotated[str, Meta(description="A stable word for programs.")]
    errors: Annotated[dict[str, str], Meta(description="Each wrong field, and why.")] | msgspec.UnsetType = (
        msgspec.UNSET
    )
    valid: Literal[False] | msgspec.UnsetType = msgspec.UNSET
    items: list[StatusShape] | msgspec.UnsetType = msgspec.UNSET
