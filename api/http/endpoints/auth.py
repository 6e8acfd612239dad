"""Endpoints of sign-in by key or pairing code, and of the caller's own session (sections 4.1 to 4.4)."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

import msgspec
import structlog
import trio

from hatchway.api.http.endpoint import Invocation
from hatchway.api.http.problems import problem
from hatchway.api.http.request import NO_STORE, NOSNIFF, Request, Response, json_response
from hatchway.api.http.schema.parts import described
from hatchway.engine.access.challenges import LIFETIME
from hatchway.engine.access.devices import device_of
from hatchway.engine.access.principal import IssuedSession
from hatchway.engine.base.durations import InvalidDuration, format_duration, lifetime
from hatchway.engine.base.errors import InvalidRequest, Refusal
from hatchway.engine.pairings.pairings import Claim, Claimant
from hatchway.engine.sessions.key_sign_in import Proof
from hatchway.statecharts.pairing import DECISION_WINDOW

log = structlog.get_logger(__name__)

HEARTBEAT = 5.0
"""Seconds between the blank lines that keep a proxy from giving up on a waiting claim."""

FIRST_LINE_AFTER = 0.05
"""Seconds by which a claim's stream is delayed where a proxy has passed the request on. A proxy that gets a response
before it has sent the whole request may cut the response off (Caddy does at random), and the code would be lost."""

_IDENTITY = re.compile(IDENTITY := r"[A-Za-z0-9:+/=_-]{1,128}")
_NO_IDENTITY = {"identity": "must be one key identity, such as SHA256:... from `hatchway key list`"}
_LIFETIME_SHOWN = format_duration(LIFETIME)


class VerifyFields(msgspec.Struct, forbid_unknown_fields=True):
    """The signed challenge (section 4.2). `algorithm` is RS256 or PS256, `lifetime` a duration.

    `identity` says whose signature it is: then that key alone is tried.
    """

    nonce: str
    signature: Annotated[str, described(description="Base64 or base64url, as long as the key's modulus.")]
    algorithm: Annotated[str, described(enum=["RS256", "PS256"], description="EdDSA too where key_types says.")] = (
        "RS256"
    )
    lifetime: Annotated[str, described(pattern="^([0-9]+h|[0-9]+m([0-9]+s)?)$")] | None = None
    identity: Annotated[str, described(pattern=f"^{IDENTITY}$")] | None = None
    label: Annotated[str, described(pattern="^[!-~][ -~]{0,63}$", description="For people.")] | None = None


class PairFields(msgspec.Struct, forbid_unknown_fields=True):
    """The pairing code as typed (section 4.4)."""

    code: Annotated[str, described(description="Case, spaces and hyphens don't matter.")]


def session_fields(issued: IssuedSession) -> dict[str, Any]:
    """The fields of a response that hands out a session. When its key expires is told only where that is near."""
    fields = issued._asdict()
    if issued.key_expires_at is None:
        del fields["key_expires_at"]
    return fields


def challenge(invocation: Invocation) -> Response:
    """A fresh nonce to sign, for one identity or for any key (section 4.1)."""
    return make_challenge(invocation.engine.key_sign_in.challenge, invocation.request)


def make_challenge(issue: Callable[[str, str | None], tuple[str, str]], request: Request) -> Response:
    """The response to a request for a challenge. `issue` makes one for a host and an identity, as
    `KeySignIn.challenge` does. Raises InvalidRequest."""
    identity, nonce = issue((request.header(b"host") or b"").decode().lower(), _identity(request.query))
    return json_response({"identity": identity, "nonce": nonce, "lifetime": _LIFETIME_SHOWN})


def _identity(query: bytes) -> str | None:
    if not query:
        return None
    values = [query[9:]] if query.startswith(b"identity=") and b"&" not in query else _identities(query)
    if not values:
        return None
    # A fingerprint may hold `+`, which many clients send unescaped. It has no spaces, so a space stands for a `+`.
    text = _unquoted(values[0]).replace(b" ", b"+").decode("latin-1")
    if len(values) > 1 or not _IDENTITY.fullmatch(text):
        raise InvalidRequest(_NO_IDENTITY)
    return text


def _unquoted(value: bytes) -> bytes:
    """As `unquote_to_bytes`, in a third of the time for the escapes that a fingerprint has. (None of what they stand
    for begins another escape.)"""
    for escape, sign in ((b"%3A", b":"), (b"%2B", b"+"), (b"%2F", b"/"), (b"%3D", b"=")):
        value = value.replace(escape, sign)
    return unquote_to_bytes(value) if b"%" in value else value


def _identities(query: bytes) -> list[bytes]:
    return [value for name, _, value in (part.partition(b"=") for part in query.split(b"&")) if name == b"identity"]


def check_proof(fields: VerifyFields, agent: bytes, types: tuple[str, ...]) -> Proof:
    """Check what can be checked of the fields without keys and challenges; `agent` is the User-Agent, `types` are those
    of the keys that may sign in. Raises InvalidRequest."""
    if fields.algorithm == "EdDSA" and "ed25519" not in types:
        raise InvalidRequest({"algorithm": "must be RS256 or PS256: the engine's setting key_types names no ed25519"})
    if fields.algorithm not in ("RS256", "PS256", "EdDSA"):
        raise InvalidRequest({"algorithm": "must be RS256 or PS256"})
    try:
        seconds, _ = lifetime(fields.lifetime)
    except InvalidDuration as refused:
        raise InvalidRequest({"lifetime": refused.detail}) from None
    if fields.identity is not None and not _IDENTITY.fullmatch(fields.identity):
        raise InvalidRequest(_NO_IDENTITY)
    device = device_of(fields.label, agent)
    return Proof(fields.nonce, fields.signature, fields.algorithm, seconds, fields.identity, device)


async def verify(invocation: Invocation) -> Response:
    """A session for the key that signed the nonce (section 4.2)."""
    agent, types = invocation.request.header(b"user-agent") or b"", invocation.engine.settings.key_types
    proof = check_proof(invocation.fields, agent, types)
    signed_in = await invocation.engine.key_sign_in.verify(proof, invocation.origin)
    return json_response(session_fields(signed_in))


def inspect(invocation: Invocation) -> Response:
    """Whether the session is still good, and what it may do now (section 4.3)."""
    principal = invocation.principal
    session, identity, method, permissions, expires_at, key_expires_at = principal
    fields = {
        "valid": True,
        "session": session,
        "identity": identity,
        "method": method,
        "permissions": permissions,
        "expires_at": expires_at,
    }
    if key_expires_at is not None:
        fields["key_expires_at"] = key_expires_at
    return json_response(fields, depends_on=principal)


async def renew(invocation: Invocation) -> Response:
    """A new token of the same session, its lifetime counted from now (section 3.2)."""
    renewed = await invocation.engine.sessions.renew(invocation.principal, invocation.origin)
    return json_response(session_fields(renewed))


async def logout(invocation: Invocation) -> Response:
    """The session ends, with every token of it (section 3.2)."""
    await invocation.engine.sessions.logout(invocation.principal, invocation.origin)
    return Response(204, b"", (NO_STORE,))


def pair(invocation: Invocation) -> Awaitable[Response]:
    """Claim a code and wait for the operator (section 4.4): a stream of lines, or one answer where asked for."""
    named = _media_types(invocation.request)
    return _claim(invocation, b"application/json" not in named or bool(named & {b"application/x-ndjson", b"*/*"}))


def _media_types(request: Request) -> set[bytes]:
    """The media types in the Accept headers; weights are ignored (RFC 9110 section 12.5.1)."""
    values = b",".join(value for name, value in request.headers if name == b"accept")
    return {part.partition(b";")[0].strip().lower() for part in values.split(b",")}


async def _claim(invocation: Invocation, streamed: bool) -> Response:
    request = invocation.request
    claim = await invocation.engine.pairings.claim(
        invocation.fields.code,
        _claimant(invocation),
        invocation.origin,
    )
    try:
        if not streamed:
            return json_response(session_fields(await claim.wait_answer()))
        if request.passed_on:
            await trio.sleep(FIRST_LINE_AFTER)
    except trio.Cancelled:
        await _leave(invocation, claim)
        raise
    return Response(200, b"", _STREAM_HEADERS, _ClaimLines(invocation, claim))


def _claimant(invocation: Invocation) -> Claimant:
    request = invocation.request
    return Claimant(
        request.peer,
        invocation.forwarded,
        request.header(b"user-agent") or b"",
        request.from_this_host,
        request.client is None,
        (request.header(b"host") or b"").decode("latin-1").lower(),
    )


_STREAM_HEADERS = (
    (b"content-type", b"application/x-ndjson"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),  # without it nginx sends the first line with the last one
    NOSNIFF,
)


class _ClaimLines:
    """The lines of a claim's response. Where it is closed before the outcome was sent, begun or not, it ends the
    claim."""

    def __init__(self, invocation: Invocation, claim: Claim) -> None:
        self._invocation, self._claim, self._over = invocation, claim, False
        self._lines = self._write()

    def __aiter__(self) -> _ClaimLines:
        return self

    async def __anext__(self) -> bytes:
        return await anext(self._lines)

    async def _write(self) -> AsyncGenerator[bytes]:
        claim = self._claim
        yield _line({"accepted": True, "match": claim.match, "expires_in": int(DECISION_WINDOW)})
        while not claim.answered:
            with trio.move_on_after(HEARTBEAT):
                await claim.wait_answered()
            if not claim.answered:
                yield b"\n"
        yield _line(await _last_item(claim))
        self._over = True

    async def aclose(self) -> None:
        with trio.CancelScope(shield=True):
            await self._lines.aclose()
        if not self._over:
            self._over = True
            await _leave(self._invocation, self._claim)


async def _last_item(claim: Claim) -> dict[str, Any]:
    try:
        return session_fields(await claim.wait_answer())
    except Refusal as refused:
        return problem(refused)


async def _leave(invocation: Invocation, claim: Claim) -> None:
    """The console hung up: void its code, and end a session whose token it can't have got."""
    with trio.CancelScope(shield=True):
        try:
            await invocation.engine.pairings.leave(claim)
            if isinstance(claim.result, IssuedSession):
                await invocation.engine.sessions.end(claim.result.token, "console_hung_up")
        except Refusal as refused:
            log.warning("claim_not_left", why=refused.detail)  # claim and session end by their own time


def _line(value: dict[str, Any]) -> bytes:
    return msgspec.json.encode(value) + b"\n"
