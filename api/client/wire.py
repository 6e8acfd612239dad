"""What the client reads, and refuses: responses, problems, challenges, NDJSON lines (sections 2, 4, 7)."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from hatchway.engine.base.issuer import TEST_ISSUER
from hatchway.engine.base.text import printable

NONCE_PREFIX = "hatchway-auth-v1."
NONCE_PARTS, NONCE_LENGTH = 6, 1024
LINE_LIMIT = 256 * 1024
"""Bytes of a line at most, so that a false engine can't fill the client's memory."""

SKEW_TOLD = 30
"""Seconds of difference between our clock and the engine's from which on the error of a 401 names it."""

T = TypeVar("T")


class ClientFault(Exception):
    """The call failed, in one of these ways; `detail` is a sentence for people, printable on a terminal."""

    def __init__(self, detail: str) -> None:
        self.detail = printable(detail)
        super().__init__(self.detail)


class Unreachable(ClientFault):
    """There was no complete response. `sent` says whether the engine may have got the request all the same."""

    def __init__(self, detail: str, *, sent: bool) -> None:
        super().__init__(detail)
        self.sent = sent


class CertificateRefused(Unreachable):
    """The other end has no certificate that is trusted. Nothing was sent, and another try changes nothing."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, sent=False)


class NotAnEngine(ClientFault):
    """A response that no engine gives: a body of another kind, or a redirect, which is never followed."""


class ChallengeRefused(ClientFault):
    """The client refuses to sign, since the challenge could be another engine's. Nothing was sent."""


class KeyMissing(ClientFault):
    """There is neither a token nor a key to get one with."""

    def __init__(self) -> None:
        super().__init__("there is no key to sign in with")


class Refused(ClientFault):
    """The engine refused: `status` and `code` of its problem (RFC 9457), `retry_after` in seconds where it says so, and
    `skew`, how many seconds our clock is ahead of the engine's, if known."""

    def __init__(
        self, status: int, code: str, detail: str, *, retry_after: int | None = None, skew: float | None = None
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.retry_after, self.skew = status, code, retry_after, skew

    @property
    def skew_hint(self) -> str | None:
        """The sentence on a wrong clock that a 401 gets, past 30 s (section 5, rule 2)."""
        if self.status != 401 or self.skew is None or abs(self.skew) <= SKEW_TOLD:
            return None
        return skew_words(self.skew)


class Challenge(msgspec.Struct, frozen=True):
    """The response to a request for a challenge (section 2.1)."""

    identity: str
    nonce: str
    lifetime: str


class SignedIn(msgspec.Struct, frozen=True):
    """Section 2.2; times in epoch seconds by the engine's clock. `key_expires_at` is told from a week before."""

    token: str
    permissions: tuple[str, ...]
    expires_at: int
    key_expires_at: int | None = None


class Inspection(msgspec.Struct, frozen=True):
    """Whose session a token belongs to, and what it may do now."""

    valid: bool
    identity: str
    permissions: tuple[str, ...]
    expires_at: int
    method: str
    session: str
    key_expires_at: int | None = None


class Accepted(msgspec.Struct, frozen=True):
    """A claimed code waits for the operator, who sees the same two digits. `expires_in` in seconds."""

    match: str
    expires_in: float


class Started(msgspec.Struct, frozen=True):
    """A started instance: the three items of section 2.7, named."""

    message: str
    identity: str
    img: str
    instance: str
    ip: str
    log_err_path: str
    log_out_path: str
    pid: int


def read_json(data: bytes) -> Any:
    """The value of a JSON text. Raises NotAnEngine for anything else."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NotAnEngine("the answer is not JSON: is this the address of an engine?") from None


def as_type(value: object, kind: type[T]) -> T:
    """`value` as `kind`. Raises NotAnEngine where a field is missing or of another type."""
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError):
        raise NotAnEngine("the answer has another form than an engine's: is this the address of one?") from None


def started(items: object) -> Started:
    """The list of three items of section 2.7 as one value. Raises NotAnEngine for anything else."""
    if not isinstance(items, list) or len(items) != 3 or not all(isinstance(item, dict) for item in items):
        raise NotAnEngine("the answer is not the list of three items that a start gives")
    status, identity, entity = (item.get("payload") for item in items)
    if not isinstance(status, dict) or not isinstance(entity, dict):
        raise NotAnEngine("the answer's items are not those that a start gives")
    return as_type({**entity, "message": status.get("message"), "identity": identity}, Started)


def problem(status: int, headers: Mapping[str, str], body: bytes, now: float) -> ClientFault:
    """The error for a response that is no success. `now` is in epoch seconds, by this host's clock."""
    if 300 <= status < 400:
        return NotAnEngine("the answer is a redirect, which is not followed: give the engine's own address")
    try:
        value = read_json(body)
    except NotAnEngine:
        value = None
    if not isinstance(value, dict) or not isinstance(value.get("detail"), str):
        return NotAnEngine(f"the answer is HTTP {status} without a problem: is this the address of an engine?")
    return refused(value, status, headers, now)


def refused(value: Mapping[str, Any], status: int, headers: Mapping[str, str], now: float) -> Refused:
    """A problem's JSON object as an error. `status` is for an object that names none."""
    told = value.get("status")
    code, detail = value.get("code"), value.get("detail")
    return Refused(
        told if isinstance(told, int) else status,
        code if isinstance(code, str) else "refused",
        detail if isinstance(detail, str) else "refused",
        retry_after=retry_after(headers),
        skew=clock_skew(headers, now),
    )


def retry_after(headers: Mapping[str, str]) -> int | None:
    """`Retry-After` in seconds; None where it is missing or a date."""
    text = headers.get("retry-after", "")
    return int(text) if re.fullmatch("[0-9]{1,6}", text) else None


def clock_skew(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds by which `now` is ahead of the response's `Date`; None where that is missing or wrong."""
    from email.utils import parsedate_to_datetime  # imported here: it matters where something was refused

    try:
        return now - parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, ValueError, OverflowError):
        return None


def skew_words(skew: float) -> str:
    """How wrong this host's clock is, in a sentence; `skew` are the seconds that it is ahead."""
    return f"this machine's clock is {abs(round(skew))} s {'ahead' if skew > 0 else 'behind'}"


def dialled(url: str) -> str:
    """The host and port of `url` as the Host header and the challenge name them: lower case, the port spelled out."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_nonce(nonce: str, host: str, identity: str) -> None:
    """Raises ChallengeRefused unless `nonce` is an engine's challenge, for `host` as dialled and for this key.

    A signature over anything else could be relayed to another engine, or be taken for one of another protocol.
    """
    if not nonce.startswith(NONCE_PREFIX):
        raise ChallengeRefused(
            f"refused to sign: the challenge of {host} does not begin with '{NONCE_PREFIX}'; no engine sends that"
        )
    parts = nonce.split(".")
    if len(nonce) > NONCE_LENGTH or not nonce.isascii() or not nonce.isprintable() or len(parts) != NONCE_PARTS:
        raise ChallengeRefused(f"refused to sign: the challenge of {host} has another form than an engine's")
    named, meant = (_decoded(part) for part in parts[1:3])
    if named != host:
        raise ChallengeRefused(
            f"refused to sign: the challenge is for {named or 'another host'}, and {host} was dialled; "
            "where that is a proxy, mend its configuration with: proxy_set_header Host $http_host;"
        )
    if meant not in (identity, "any"):
        raise ChallengeRefused("refused to sign: the challenge is for another key")


def _decoded(part: str) -> str | None:
    try:
        text = urlsafe_b64decode(part + "=" * (-len(part) % 4)).decode("ascii")
    except ValueError:
        return None
    return text if urlsafe_b64encode(text.encode()).rstrip(b"=").decode() == part else None


def token_facts(token: str) -> tuple[str | None, int | None]:
    """A token's session id and its lifetime in seconds, as the token says. They are not verified, and nothing that is
    to be safe may rest on them."""
    try:
        payload = msgspec.json.decode(urlsafe_b64decode(token.split(".")[1] + "=="))
        return str(payload["sid"]), int(payload["exp"]) - int(payload["iat"])
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None, None


def is_of_a_test(token: str) -> bool:
    """Whether a token says that a test engine issued it."""
    try:
        payload = msgspec.json.decode(urlsafe_b64decode(token.split(".")[1] + "=="))
        return bool(payload["iss"] == TEST_ISSUER)
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return False


class LineReader:
    """Splits a stream of bytes into lines. Blank lines, which only keep the connection open, are dropped."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that are complete with `data`. Raises NotAnEngine for a line past LINE_LIMIT."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_LIMIT or any(len(line) > LINE_LIMIT for line in lines):
            raise NotAnEngine("the answer has a line without an end")
        yield from (line for line in lines if line.strip())

    def rest(self) -> Iterator[bytes]:
        """A last line that had no end."""
        if self._rest.strip():
            yield self._rest
